"""Configurations by their sizes: a published one with some of them changed, or one that they alone describe.

>>> described({"d_model": 1024, "n_heads": 16, "n_kv_heads": 4}).d_head
64
"""

from dataclasses import fields, replace

from models.deepseek import DeepSeekConfig
from models.llama import LlamaConfig
from models.mistral import MistralConfig
from models.mixtral import MixtralConfig

from .mistake import Refused
from .published import MODELS, Config

OPTIONS = {
    "--d-model": ("d_model", "width of the residual stream"),
    "--layers": ("n_layers", "blocks"),
    "--heads": ("n_heads", "query heads"),
    "--kv-heads": ("n_kv_heads", "key and value heads; divides the query heads"),
    "--d-head": ("d_head", "width of a head, even"),
    "--d-ff": ("d_ff", "hidden width of the feed-forward layer"),
    "--vocab": ("vocab", "tokens that there are"),
    "--window": ("window", "positions that a query reads"),
    "--experts": ("n_experts", "experts in a layer"),
    "--top-k": ("top_k", "experts for a token"),
    "--d-expert": ("d_expert", "hidden width of an expert"),
    "--shared": ("n_shared", "experts for every token"),
    "--dense-layers": ("n_dense_layers", "first layers, without experts"),
    "--d-latent": ("d_latent", "width of what keys and values are made from"),
    "--d-latent-q": ("d_latent_q", "width of what queries are made from"),
    "--d-rope": ("d_rope", "width of a head's rotary part, even"),
    "--d-nope": ("d_nope", "width of its other part"),
    "--d-v": ("d_v", "width of a head's values"),
}
ALONE = {"d_model": 768, "n_layers": 12, "n_heads": 12, "vocab": 32000}  # where options alone describe a model


def described(sizes: dict[str, int]) -> Config:
    """The model that options alone describe: Llama's block, with experts or latent attention where they ask for it."""
    sizes = ALONE | sizes
    if "d_head" not in sizes and sizes["d_model"] % sizes["n_heads"]:
        raise Refused(f"d_model = {sizes['d_model']} is not divisible by n_heads = {sizes['n_heads']}: give --d-head")
    d_head = sizes.pop("d_head", sizes["d_model"] // sizes["n_heads"])
    d_ff = sizes.pop("d_ff", sizes["d_model"] * 8 // 3)
    if "n_experts" in sizes:
        sizes = {"top_k": 2, "d_expert": d_ff} | sizes
    if "d_latent" in sizes:
        return latent(sizes | {"d_ff": d_ff}, d_head)
    sizes = {"n_kv_heads": sizes["n_heads"], "d_head": d_head} | sizes
    if "n_experts" in sizes:
        return fitted("a model with --experts", MixtralConfig, sizes)
    return fitted(
        "a model without --experts", MistralConfig if "window" in sizes else LlamaConfig, sizes | {"d_ff": d_ff}
    )


def latent(sizes: dict[str, int], d_head: int) -> Config:
    """DeepSeek's block; without experts all layers are dense ones."""
    if "n_experts" in sizes:
        experts = {"n_shared": 1, "n_dense_layers": 0}
    else:
        experts = {"d_expert": 1, "n_experts": 1, "top_k": 1, "n_shared": 1, "n_dense_layers": sizes["n_layers"]}
    heads = {"d_nope": d_head, "d_v": d_head, "d_rope": d_head // 4 * 2 or 2, "d_latent_q": None}
    return fitted("a model with --d-latent", DeepSeekConfig, heads | experts | sizes)


def fitted(name: str, kind: type[Config], sizes: dict[str, int | None]) -> Config:
    refuse_strange(name, kind, sizes)
    return kind(**sizes)


def changed(name: str, config: Config, sizes: dict[str, int]) -> Config:
    """A configuration with some of its fields changed."""
    refuse_strange(name, type(config), sizes)
    return replace(config, **sizes)


def refuse_strange(name: str, kind: type[Config], sizes: dict[str, int | None]) -> None:
    strange = sizes.keys() - {field.name for field in fields(kind)}
    if strange:
        option = next(option for option, (field, _) in OPTIONS.items() if field in strange)
        raise Refused(f"{name} is {MODELS[kind].__name__} of models/, which has nothing for {option}")


COMMON = ("d_model", "n_layers", "n_heads", "vocab", "d_ff", "d_head")
LATENT = ("d_latent", "d_latent_q", "d_rope", "d_nope", "d_v")
EXPERTS = ("n_experts", "top_k", "d_expert")


def four_ways(sizes: dict[str, int]) -> dict[str, Config]:
    """One set of sizes with dense, grouped and latent attention, and with experts (and grouped attention)."""
    for option, (field, _) in OPTIONS.items():
        if field in sizes and field not in (*COMMON, *LATENT, *EXPERTS, "n_kv_heads"):
            raise Refused(f"{option} belongs to none of the four that --compare makes of options")
    common = only(sizes, COMMON)
    dense = described(common)
    fewer = (n for n in (8, 4, 3, 2) if dense.n_heads % n == 0 and n < dense.n_heads)
    groups = {"n_kv_heads": sizes.get("n_kv_heads", next(fewer, 1))}
    return {
        "dense": dense,
        "grouped": described(common | groups),
        "latent": described(common | {"d_latent": 4 * dense.d_head} | only(sizes, LATENT)),
        "experts": described(common | groups | {"n_experts": 8} | only(sizes, EXPERTS)),
    }


def only(sizes: dict[str, int], names: tuple[str, ...]) -> dict[str, int]:
    return {field: size for field, size in sizes.items() if field in names}
