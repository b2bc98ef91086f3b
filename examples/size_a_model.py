"""What a decoder takes: parameters, operations, KV cache and memory for training, as formulas in B and T and at sizes.

    pip install -e ".[plot]" && python examples/size_a_model.py llama-3-8b

The models are those of `models/`: published ones by name, any field of theirs changed by an option, or one that the
options alone describe. `--experts` makes it a mixture of experts, `--d-latent` gives it latent attention. `--compare`
puts dense, grouped, latent attention and experts side by side: four published models, those that are named, or one set
of sizes in four ways.

    python examples/size_a_model.py llama-3-8b --layers 40 --at B=4,T=32768
    python examples/size_a_model.py --d-model 1024 --layers 24 --heads 16 --kv-heads 4 --vocab 32000
    python examples/size_a_model.py --compare --plot cost.png
    python examples/size_a_model.py --compare llama-3-70b mixtral-8x7b
    python examples/size_a_model.py --d-model 4096 --layers 32 --heads 32 --compare

Nothing is computed and no weight takes memory: models are built on the meta device and traced. Of equal layers, and of
the experts in a layer, each adds the same: counted are few layers with few experts, one layer more and one expert more,
and the differences are carried on to all. That is exact; `--whole` counts every layer, and shows the same, for a large
model in minutes.

FLOPs are those of a forward, two for a multiply-add, with the attention's products in full: a kernel that leaves out
what the causal mask hides does half of the `T^2` term. Training is Adam with mixed precision, 16 bytes for a parameter
(with `--dtype float32` as well), and what autograd keeps of the forward, without recomputation.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.filesize import pick_unit_and_suffix
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # models/ is in no wheel

import shapeflow as sf
from models.deepseek import DEEPSEEK_V2, DEEPSEEK_V3, DeepSeek, DeepSeekConfig
from models.gpt import GPT, GPT2_SMALL, GPT2_XL, GPTConfig
from models.llama import LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B, Llama, LlamaConfig
from models.mistral import MISTRAL_7B, Mistral, MistralConfig
from models.mixtral import MIXTRAL_8X7B, Mixtral, MixtralConfig
from models.qwen3 import QWEN3_8B, Qwen3, Qwen3Config
from models.qwen3_moe import QWEN3_30B_A3B, QWEN3_235B_A22B, Qwen3Moe, Qwen3MoeConfig
from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr, minimum

MODELS = {
    GPTConfig: GPT,
    LlamaConfig: Llama,
    MistralConfig: Mistral,
    Qwen3Config: Qwen3,
    MixtralConfig: Mixtral,
    Qwen3MoeConfig: Qwen3Moe,
    DeepSeekConfig: DeepSeek,
}
Config = GPTConfig | LlamaConfig | MistralConfig | Qwen3Config | MixtralConfig | Qwen3MoeConfig | DeepSeekConfig

NAMED: dict[str, Config] = {
    "gpt2": GPT2_SMALL,
    "gpt2-xl": GPT2_XL,
    "llama-2-7b": LLAMA_2_7B,
    "llama-3-8b": LLAMA_3_8B,
    "llama-3-70b": LLAMA_3_70B,
    "mistral-7b": MISTRAL_7B,
    "qwen3-8b": QWEN3_8B,
    "qwen3-30b-a3b": QWEN3_30B_A3B,
    "qwen3-235b-a22b": QWEN3_235B_A22B,
    "mixtral-8x7b": MIXTRAL_8X7B,
    "deepseek-v2": DEEPSEEK_V2,
    "deepseek-v3": DEEPSEEK_V3,
}
COMPARED = ("llama-2-7b", "qwen3-8b", "deepseek-v2", "mixtral-8x7b")  # dense, grouped, latent, experts

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

T = Symbol("T")
ONE_SEQUENCE = {Symbol("B"): Expr.const(1)}
FARTHEST = 131072


class Refused(Exception):
    """A configuration or an option that cannot be; the message is one line."""


# From options to configurations


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


def changed(name: str, sizes: dict[str, int]) -> Config:
    """A published configuration, with some of its fields changed."""
    config = NAMED[name]
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


# Counting


@dataclass(frozen=True, slots=True)
class Bill:
    """Formulas: numbers, operations, bytes. `flops`, `cache` are for one sequence, `activations` for B of them."""

    parameters: Expr
    active: Expr  # that one token can touch
    flops: Expr
    cache: Expr
    weights: Expr  # bytes while training
    gradients: Expr
    states: Expr
    activations: Expr

    @property
    def flops_per_token(self) -> Expr:
        return self.flops // Expr.from_atom(T)

    @property
    def cache_per_token(self) -> Expr:
        return self.cache.replace({T: Expr.from_atom(T) + 1}) - self.cache

    @property
    def training(self) -> Expr:
        return self.weights + self.gradients + self.states + self.activations

    def __add__(self, other: "Bill") -> "Bill":
        return self.combined(lambda field: getattr(self, field) + getattr(other, field))

    def __sub__(self, other: "Bill") -> "Bill":
        return self.combined(lambda field: getattr(self, field) - getattr(other, field))

    def __mul__(self, times: int) -> "Bill":
        return self.combined(lambda field: getattr(self, field) * times)

    def combined(self, by: Callable[[str], Expr]) -> "Bill":
        return Bill(**{field.name: by(field.name) for field in fields(self)})


def bill(config: Config, dtype: torch.dtype, *, whole: bool = False) -> Bill:
    """Carried on from few layers and experts, or counted whole. Raises Refused for what cannot be built."""
    build(config, dtype)  # what is wrong with it is told of the sizes that were given
    return windowed(counted(config, dtype) if whole else carried_on(config, dtype), config)


def carried_on(config: Config, dtype: torch.dtype) -> Bill:
    first, few, step = fewest_layers(config), *fewest_experts(config)
    start = counted(smaller(config, first, few), dtype)
    total = start
    if config.n_layers > first:
        total += (counted(smaller(config, first + 1, few), dtype) - start) * (config.n_layers - first)
    if n_experts(config) > few:
        steps = (n_experts(config) - few) // step * layers_of_experts(config)
        total += (counted(smaller(config, first, few + step), dtype) - start) * steps
    return total


def fewest_layers(config: Config) -> int:
    """So many that the last is like all that follow, and the only one of its kind."""
    return 1 if layers_of_experts(config) in (0, config.n_layers) else config.n_layers - layers_of_experts(config) + 1


def fewest_experts(config: Config) -> tuple[int, int]:
    """More than a token goes to, where groups are to be filled in all of them; and how many make the next number."""
    groups = getattr(config, "groups", None)
    if not layers_of_experts(config):
        return n_experts(config), 1
    if groups is None:
        return min(config.top_k + 1, config.n_experts), 1
    size = max(groups.n_best, -(-config.top_k // groups.top_groups))
    return min(groups.n_groups * size, config.n_experts), groups.n_groups


def n_experts(config: Config) -> int:
    return getattr(config, "n_experts", 0)


def layers_of_experts(config: Config) -> int:
    return config.n_layers - getattr(config, "n_dense_layers", 0) if n_experts(config) else 0


def smaller(config: Config, n_layers: int, n_experts: int) -> Config:
    changes = {"n_layers": n_layers}
    if hasattr(config, "n_experts"):
        changes["n_experts"] = n_experts
    if hasattr(config, "n_dense_layers"):
        changes["n_dense_layers"] = min(config.n_dense_layers, n_layers)
    return replace(config, **changes)


def counted(config: Config, dtype: torch.dtype) -> Bill:
    trace = sf.trace(build(config, dtype), "B T:int64")
    report, cost = sf.params(trace), sf.cost(trace)
    memory = cost.training_memory(optimizer="adam", precision="float32" if dtype == torch.float32 else "mixed")
    return Bill(
        parameters=Expr.const(report.total),
        active=Expr.const(report.active),
        flops=cost.flops.replace(ONE_SEQUENCE),
        cache=cost.kv_cache_bytes_per_sequence,
        weights=memory.parameters,
        gradients=memory.gradients,
        states=memory.states,
        activations=cost.activation_bytes,
    )


def build(config: Config, dtype: torch.dtype) -> torch.nn.Module:
    try:
        with torch.device("meta"):
            return MODELS[type(config)](config).to(dtype)
    except ValueError as error:
        raise Refused(str(error)) from error


def windowed(whole: Bill, config: Config) -> Bill:
    """With a sliding window a cache holds what the next query reads besides itself."""
    if getattr(config, "window", None) is None:
        return whole
    return replace(whole, cache=whole.cache.replace({T: minimum(Expr.from_atom(T), config.window - 1)}))


# Showing


ROWS: dict[str, tuple[str, Callable[[Bill], Expr]]] = {
    "parameters": ("", lambda bill: bill.parameters),
    "  active for a token": ("", lambda bill: bill.active),
    "forward, a token": ("FLOP", lambda bill: bill.flops_per_token),
    "forward, a sequence": ("FLOP", lambda bill: bill.flops),
    "KV cache, a token": ("B", lambda bill: bill.cache_per_token),
    "KV cache, a sequence": ("B", lambda bill: bill.cache),
    "training": ("B", lambda bill: bill.training),
    "  weights": ("B", lambda bill: bill.weights),
    "  gradients": ("B", lambda bill: bill.gradients),
    "  states of Adam": ("B", lambda bill: bill.states),
    "  activations": ("B", lambda bill: bill.activations),
}


def formulas(bills: dict[str, Bill]) -> Table:
    table = Table("", *(["model"] if len(bills) > 1 else []), "formula", box=box.SIMPLE_HEAD)
    for row, (_, formula) in ROWS.items():
        for at, (name, each) in enumerate(bills.items()):
            table.add_row("" if at else row, *([name] if len(bills) > 1 else []), as_formula(formula(each)))
    return table


def as_formula(formula: Expr) -> str:
    return str(formula) if formula.value is None else f"{formula.value:,}"


def numbers(bills: dict[str, Bill], sizes: dict[str, int]) -> Table:
    table = Table("at " + ", ".join(f"{name}={size}" for name, size in sizes.items()), box=box.SIMPLE_HEAD)
    for name in bills:
        table.add_column(name, justify="right")
    for row, (unit, formula) in ROWS.items():
        table.add_row(row, *(written(formula(each).at(**sizes), unit) for each in bills.values()))
    return table


def written(number: int, unit: str) -> str:
    """Four digits with a prefix; counts of parameters in full."""
    if not unit:
        return f"{number:,}"
    size, prefix = pick_unit_and_suffix(number, ["", "k", "M", "G", "T", "P", "E"], 1000)
    return f"{number / size:.4g} {prefix}{unit}"


def refuse_unwritable(path: Path) -> None:
    """Before anything is counted."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise Refused(f"--plot {path}: a picture is a .png, .svg or .pdf")
    if not path.absolute().parent.is_dir():
        raise Refused(f"--plot {path}: there is no folder {path.parent}")


def plot(bills: dict[str, Bill], sizes: dict[str, int], farthest: int, path: str) -> None:
    """Three panels against T, to a file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Refused('--plot takes matplotlib: pip install "shapeflow[plot]"') from error
    figure = Figure(figsize=(13, 4.5), layout="constrained")
    lengths = sorted({round(farthest ** (step / 64)) for step in range(24, 65)} | {farthest})
    for axes, row in zip(figure.subplots(1, 3), ("forward, a token", "KV cache, a sequence", "training"), strict=True):
        unit, formula = ROWS[row]
        for name, each in bills.items():
            curve = formula(each)
            axes.plot(lengths, [curve.at(**sizes | {"T": length}) for length in lengths], label=name)
        axes.set(yscale="log", xlabel="T", ylabel={"B": "bytes"}.get(unit, unit), title=row)
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.axes[-1].set_title(f"training, B = {sizes['B']}")
    try:
        figure.savefig(path)
    except OSError as error:
        raise Refused(f"--plot {path}: {error}") from error


# The command line


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(2, f"size_a_model: {message}\n")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no size: a positive whole number")
    return int(text)


def parser() -> Parser:
    made = Parser("size_a_model", description="What a decoder takes: parameters, FLOPs, KV cache, memory for training.")
    made.add_argument("name", nargs="?", choices=NAMED, metavar="NAME", help=", ".join(NAMED))
    for option, (field, told) in OPTIONS.items():
        made.add_argument(option, dest=field, type=positive, metavar="N", help=told)
    made.add_argument("--at", default="", metavar="B=1,T=8192", help="sizes for the numbers")
    made.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="of the weights")
    made.add_argument("--compare", nargs="*", choices=NAMED, metavar="NAME", help="several models side by side")
    made.add_argument("--plot", metavar="FILE", help="draw costs against T, to a .png, .svg or .pdf")
    made.add_argument("--whole", action="store_true", help="count every layer and expert")
    return made


def chosen(options: argparse.Namespace) -> dict[str, Config]:
    """The configurations to size, by name."""
    sizes = {field: getattr(options, field) for field, _ in OPTIONS.values() if getattr(options, field) is not None}
    if options.compare is None:
        return {options.name or "model": changed(options.name, sizes) if options.name else described(sizes)}
    if sizes and not options.compare and not options.name:
        return four_ways(sizes)
    if sizes:
        raise Refused("--compare of named models takes them as they are; options alone are compared in four ways")
    names = [options.name] if options.name else []
    return {name: NAMED[name] for name in [*names, *(options.compare or COMPARED)]}


def sizes_at(text: str, configs: dict[str, Config]) -> tuple[dict[str, int], int]:
    """B and T for the numbers, and the longest T that all of the models take, if there is one, for the plot."""
    bounds = {name: config.max_len for name, config in configs.items() if isinstance(config, GPTConfig)}
    longest = min(bounds.values(), default=FARTHEST)
    given = dict(part.partition("=")[::2] for part in text.split(",") if text)
    if not given.keys() <= {"B", "T"} or not all(size.isdecimal() and int(size) for size in given.values()):
        raise Refused(f"--at {text}: sizes are written as B=1,T=8192")
    sizes = {"B": 1, "T": min(8192, longest)} | {name: int(size) for name, size in given.items()}
    for name, bound in bounds.items():
        if sizes["T"] > bound:
            raise Refused(f"--at {text}: {name} takes T <= {bound}, the length of its table of positions")
    return sizes, longest


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        configs = chosen(options)
        sizes, longest = sizes_at(options.at, configs)
        dtype = getattr(torch, options.dtype)
        if options.plot:
            refuse_unwritable(Path(options.plot))
        bills = {name: bill(config, dtype, whole=options.whole) for name, config in configs.items()}
        if options.plot:
            plot(bills, sizes, longest, options.plot)
    except Refused as error:
        print(f"size_a_model: {error}", file=sys.stderr)
        return 2
    show(configs, bills, sizes)
    return 0


def show(configs: dict[str, Config], bills: dict[str, Bill], sizes: dict[str, int]) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for name, config in configs.items():
        console.print(
            f"{name}: {MODELS[type(config)].__name__} of models/, {config.n_layers} layer{'s'[: config.n_layers - 1]}"
        )
    console.print(formulas(bills), numbers(bills, sizes), soft_wrap=True)


if __name__ == "__main__":
    if status := main():
        sys.exit(status)
