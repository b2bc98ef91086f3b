"""Modules made of symbolic sizes: formulas equal real counts, names flow, what constructors ask is a condition."""

from dataclasses import dataclass
from math import prod

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import shapeflow as sf
from models import feed_forward, gpt, multi_head, transformer
from shapeflow.errors import InputError, TargetError
from shapeflow.trace.construct import construct
from tests.trace.following import outputs

T_CONFIG = transformer.TransformerConfig(vocab=11, d_model=8, n_heads=2, d_ff=12, n_layers=2)
GPT_SIZES = {"vocab": 11, "max_len": 13, "d_model": 8, "n_heads": 2, "d_ff": 12}

LAYERS = [
    (nn.Linear, {}, [{"in_features": 2, "out_features": 3}, {"in_features": 5, "out_features": 1}]),
    (
        nn.Conv2d,
        {},
        [
            {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "groups": 2},
            {"in_channels": 9, "out_channels": 3, "kernel_size": 1, "groups": 3},
        ],
    ),
    (nn.BatchNorm2d, {}, [{"num_features": 4}, {"num_features": 7}]),
    (nn.GroupNorm, {}, [{"num_groups": 2, "num_channels": 6}, {"num_groups": 5, "num_channels": 5}]),
    (nn.LayerNorm, {}, [{"normalized_shape": 4}, {"normalized_shape": 7}]),
    (nn.Embedding, {}, [{"num_embeddings": 4, "embedding_dim": 3}, {"num_embeddings": 1, "embedding_dim": 8}]),
    (nn.MultiheadAttention, {}, [{"embed_dim": 6, "num_heads": 2}, {"embed_dim": 5, "num_heads": 5}]),
    (
        nn.TransformerEncoderLayer,
        {"batch_first": True},
        [
            {"d_model": 6, "nhead": 2, "dim_feedforward": 5},
            {"d_model": 8, "nhead": 4, "dim_feedforward": 3},
            {"d_model": 512, "nhead": 8, "dim_feedforward": 2048},
        ],
    ),
    (
        nn.Transformer,
        {"num_encoder_layers": 2, "num_decoder_layers": 2, "batch_first": True},
        [{"d_model": 6, "nhead": 2, "dim_feedforward": 5}, {"d_model": 8, "nhead": 4, "dim_feedforward": 3}],
    ),
    (
        nn.LSTM,
        {"num_layers": 2, "bidirectional": True},
        [{"input_size": 3, "hidden_size": 4}, {"input_size": 6, "hidden_size": 5}],
    ),
    (
        nn.LSTM,
        {"num_layers": 2},
        [{"input_size": 3, "hidden_size": 4, "proj_size": 2}, {"input_size": 6, "hidden_size": 5, "proj_size": 3}],
    ),
    (nn.GRU, {}, [{"input_size": 3, "hidden_size": 4}, {"input_size": 6, "hidden_size": 5}]),
    (feed_forward.FeedForward, {}, [{"d_model": 3, "d_ff": 4}, {"d_model": 6, "d_ff": 5}]),
    (multi_head.MultiHeadAttention, {}, [{"d_model": 6, "n_heads": 2}, {"d_model": 8, "n_heads": 4}]),
    (
        transformer.EncoderLayer,
        {},
        [{"d_model": 6, "n_heads": 2, "d_ff": 5}, {"d_model": 8, "n_heads": 4, "d_ff": 3}],
    ),
    (gpt.toy, {"n_layers": 3}, [GPT_SIZES, {**GPT_SIZES, "d_model": 9, "n_heads": 3, "vocab": 4}]),
]


def count(recipe, sizes):
    return sum(prod(shape.at(**sizes)) for shape in recipe.parameters().values())


@pytest.mark.parametrize(("maker", "others", "sizes"), LAYERS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_formula_is_the_count_of_a_real_build(maker, others, sizes):
    recipe = construct(maker, dict.fromkeys(sizes[0]), **others)
    for some in [*sizes, {name: 4 * size for name, size in sizes[0].items()}]:
        real = sum(each.numel() for each in maker(**some, **others).parameters())
        assert count(recipe, some) == real, some


def test_the_formula_of_an_encoder_layer():
    recipe = construct(nn.TransformerEncoderLayer, {"d_model": None, "nhead": None, "dim_feedforward": None})
    total = sum(parameter.numel() for parameter in recipe.built().module.parameters())
    assert str(total) == "4*d_model^2 + 2*d_model*dim_feedforward + 9*d_model + dim_feedforward"


# Configurations


def test_names_are_fields_of_a_configuration():
    recipe = construct(transformer.Transformer, {"d_model": None, "d_ff": None, "n_heads": None}, config=T_CONFIG)
    sizes = {"d_model": 12, "d_ff": 5, "n_heads": 3}
    real = transformer.Transformer(
        transformer.TransformerConfig(vocab=11, n_layers=2, **sizes)  # the vocabulary and the layers of T_CONFIG
    )
    assert count(recipe, sizes) == sum(each.numel() for each in real.parameters())


def test_a_configuration_is_made_of_the_names_of_its_fields():
    recipe = construct(gpt.GPT, dict.fromkeys(GPT_SIZES), n_layers=2)
    real = gpt.GPT(gpt.GPTConfig(n_layers=2, **GPT_SIZES))
    assert count(recipe, GPT_SIZES) == sum(each.numel() for each in real.parameters())


@dataclass
class Config:
    width: int
    rate: float = 0.1


class Configured(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)


def test_a_configuration_of_the_users_own():
    recipe = construct(Configured, {"width": None})
    assert [str(shape) for shape in recipe.parameters().values()] == ["4*width width", "4*width"]


# What a constructor asks


@pytest.mark.parametrize(
    ("maker", "names", "condition"),
    [
        (multi_head.MultiHeadAttention, ["d_model", "n_heads"], "d_model % n_heads == 0"),
        (multi_head.MultiHeadAttention, ["n_heads", "d_model"], "d_model % n_heads == 0"),
        (nn.GroupNorm, ["num_groups", "num_channels"], "num_channels % num_groups == 0"),
        (nn.MultiheadAttention, ["embed_dim", "num_heads"], "embed_dim % num_heads == 0"),
    ],
)
def test_a_division_is_a_condition(maker, names, condition):
    built = construct(maker, dict.fromkeys(names)).built()
    assert [str(each) for each in built.conditions] == [condition]
    assert built.domain.relations == (condition,)


def test_a_size_that_has_to_exceed_another_does():
    recipe = construct(nn.LSTM, {"input_size": None, "hidden_size": None, "proj_size": None})
    assert [str(each) for each in recipe.built().conditions] == ["hidden_size >= proj_size + 1"]


def test_several_conditions_at_once():
    class Grouped(nn.Module):
        def __init__(self, d_model, n_heads, n_kv_heads):
            super().__init__()
            if d_model % n_heads or n_heads % n_kv_heads or (d_model // n_heads) % 2:
                raise ValueError("does not divide")
            self.kv = nn.Linear(d_model, n_kv_heads * (d_model // n_heads))

    built = construct(Grouped, {"d_model": None, "n_heads": None, "n_kv_heads": None}).built()
    divisions = {str(each) for each in built.conditions}
    assert {"d_model % n_heads == 0", "n_heads % n_kv_heads == 0"} < divisions
    assert len(divisions) == 3
    d_model, n_heads, n_kv_heads = (built.sizes[name] for name in ("d_model", "n_heads", "n_kv_heads"))
    assert not d_model % n_heads and not n_heads % n_kv_heads and not (d_model // n_heads) % 2


def test_a_number_that_only_counts_is_told_as_fixed():
    built = construct(gpt.toy, {"d_model": None, "n_heads": None, "n_layers": None}).built()
    assert built.fixed == {"n_layers": 2}


def test_a_tied_parameter_stands_once():
    class Tied(nn.Module):
        def __init__(self, vocab, width):
            super().__init__()
            self.table = nn.Embedding(vocab, width)
            self.head = nn.Linear(width, vocab, bias=False)
            self.head.weight = self.table.weight

    recipe = construct(Tied, {"vocab": None, "width": None})
    assert {path: str(shape) for path, shape in recipe.parameters().items()} == {"table.weight": "vocab width"}


# Traces


@pytest.mark.parametrize(
    ("maker", "names", "inputs", "others", "shapes"),
    [
        (nn.Linear, ["in_features", "out_features"], ["B in_features"], {}, ["B out_features"]),
        (nn.Conv2d, ["in_channels", "out_channels"], ["B in_channels H W"], {"kernel_size": 1}, ["B out_channels H W"]),
        (nn.BatchNorm2d, ["num_features"], ["B num_features H W"], {}, ["B num_features H W"]),
        (nn.LayerNorm, ["normalized_shape"], ["B normalized_shape"], {}, ["B normalized_shape"]),
        (nn.Embedding, ["num_embeddings", "embedding_dim"], ["B T:int64"], {}, ["B T embedding_dim"]),
        (
            nn.MultiheadAttention,
            ["embed_dim", "num_heads"],
            ["T B embed_dim", "S B embed_dim", "S B embed_dim"],
            {},
            ["T B embed_dim", "B T S"],
        ),
        (
            nn.LSTM,
            ["input_size", "hidden_size"],
            ["T B input_size"],
            {},
            ["T B hidden_size", "1 B hidden_size", "1 B hidden_size"],
        ),
        (transformer.EncoderLayer, ["d_model", "n_heads", "d_ff"], [], {}, ["B T d_model"]),
        (gpt.toy, ["d_model", "n_heads", "d_ff", "vocab", "max_len"], [], {}, ["B T vocab"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_trace_carries_the_names(maker, names, inputs, others, shapes):
    trace = sf.trace(construct(maker, dict.fromkeys(names), **others), *inputs)
    assert outputs(trace) == shapes
    assert set(names) <= set(trace.free)


def test_a_quotient_bears_the_name_of_the_attribute_that_holds_it():
    trace = sf.trace(construct(multi_head.MultiHeadAttention, {"d_model": None, "n_heads": None}))
    shapes = {str(shape) for node in trace.nodes for shape in node.outputs}
    assert {"B n_heads T d_head", "B n_heads T T", "B T 2*d_model"} <= shapes
    assert not [shape for shape in shapes if "//" in shape]
    assert str(trace.dims["d_head"]) == "d_model//n_heads"
    assert str(trace.at(B=2, T=5, d_model=12, n_heads=3).outputs[0].shape) == "2 5 12"


def test_the_conditions_of_a_trace_are_the_constructors_and_the_forwards():
    trace = sf.trace(construct(gpt.toy, {"d_model": None, "n_heads": None, "max_len": None}))
    assert [str(each) for each in trace.conditions] == ["d_model % n_heads == 0", "max_len >= T"]
    assert {"d_model % n_heads == 0", "max_len >= T"} == set(trace.domain.relations)
    assert trace.conditions[0].location.code == "if d_model % n_heads != 0:"


def test_a_width_that_is_a_constant_in_the_forward_is_found():
    class Fixed(nn.Module):
        def __init__(self, d_model):
            super().__init__()
            self.inner = nn.Linear(d_model, 8)
            self.outer = nn.Linear(24, d_model)

        def forward(self, x: Float[Tensor, "B d"]):
            return self.outer(self.inner(x).repeat(1, 3)) + x

    assert str(sf.trace(construct(Fixed, {"d_model": None}), "B d_model").domain) == "d_model >= 2, B >= 2"
    trace = sf.trace(construct(nn.Linear, {"in_features": None, "out_features": None}), "B 40")
    assert "in_features == 40" in str(trace.domain)


def test_a_trace_prints_parameters_as_formulas():
    text = str(sf.trace(construct(multi_head.MultiHeadAttention, {"d_model": None, "n_heads": None})))
    assert "4*d_model^2 + 4*d_model parameters" in text


# Checks


def test_a_recipe_can_be_checked():
    report = sf.check(construct(multi_head.MultiHeadAttention, {"d_model": None, "n_heads": None}))
    assert report.ok, str(report)
    assert "d_model % n_heads == 0" in str(report.domain)


def test_a_constant_among_symbols_is_a_fault():
    class Wrong(nn.Module):
        def __init__(self, d_model):
            super().__init__()
            self.up = nn.Linear(d_model, 4 * d_model)
            self.down = nn.Linear(2048, d_model)

        def forward(self, x: Float[Tensor, "B d_model"]):
            return self.down(self.up(x))

    report = sf.check(construct(Wrong, {"d_model": None}))
    assert not report.ok
    assert "d_model == 512" in str(report.domain) or "2048" in str(report)


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: construct(nn.Linear, {"in_feature": None}, out_features=3),
            "no argument in_feature; did you mean in_f",
        ),
        (lambda: construct(nn.Linear, {"in_features": None}), "Linear needs out_features"),
        (
            lambda: construct(nn.Linear, {"bias": None}, in_features=2, out_features=3),
            "bias of Linear is a bool, no size",
        ),
        (lambda: construct(nn.Linear(2, 3), {"in_features": None}), "Linear is built already"),
        (lambda: construct(nn.Linear, {"in_features": None}, in_features=2, out_features=3), "is to be a symbol"),
        (lambda: construct(Configured, {"rate": None}, width=3), "rate of Configured is a float, no size"),
        (lambda: construct(3, {}), "makes modules, not int"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_told(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_constructor_that_refuses_all_sizes_says_where():
    class Never(nn.Module):
        def __init__(self, width):
            super().__init__()
            raise ValueError(f"{width} is too wide")

    with pytest.raises(
        TargetError, match=r"Never\(width=7\) could not be built: ValueError: width is too wide\n.*raise"
    ):
        construct(Never, {"width": None}).parameters()


def test_sizes_that_the_user_wants_are_kept():
    assert (
        sf.trace(construct(nn.Linear, {"in_features": 8, "out_features": None}), "B in_features").sizes["in_features"]
        == 8
    )
    with pytest.raises(TargetError, match="d_model must be divisible by n_heads"):
        construct(multi_head.MultiHeadAttention, {"d_model": 8, "n_heads": 3}).parameters()


def test_building_leaves_torch_as_it_was():
    before = torch.get_rng_state(), vars(nn.modules.rnn).keys() & {"isinstance", "len"}, torch.SymInt.__hash__
    construct(nn.LSTM, {"input_size": None, "hidden_size": None}).parameters()
    assert torch.equal(before[0], torch.get_rng_state())
    assert vars(nn.modules.rnn).keys() & {"isinstance", "len"} == before[1] == set()
    assert isinstance(nn.Linear(2, 3).weight, nn.Parameter)
    assert torch.SymInt.__hash__ is before[2]
