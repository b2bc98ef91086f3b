"""Formulas: for each layer of `models/` they equal the count of ten builds; what cannot be symbolic is fitted."""

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from torch import nn

from models import (
    bag_of_words,
    bert,
    deepseek,
    distance_bias,
    embeddings,
    experts,
    feed_forward,
    gpt,
    gpt_oss,
    grouped,
    latent,
    llama,
    mistral,
    mixtral,
    multi_head,
    norms,
    qwen3,
    qwen3_moe,
    recurrent,
    residual,
    rope,
    routing,
    single_head,
    swiglu,
    switch,
    t5,
    transformer,
    word2vec,
)
from shapeflow.cost import params
from shapeflow.cost.formula import Formula
from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError, TargetError

ATTENTION = "d_model n_heads"
FFN = "d_model d_ff"
GQA = "d_model n_heads n_kv_heads d_head"
BERT = bert.BertConfig(vocab=11, max_len=13, n_segments=2, d_model=8, n_heads=2, d_ff=12, n_layers=2)
PLAIN = transformer.TransformerConfig(vocab=11, d_model=8, n_heads=2, d_ff=12, n_layers=2)
WRITER = recurrent.RecurrentConfig(vocab=11, d_model=8)
T5_TOY = t5.toy().config

LAYERS = [
    (bag_of_words.BagOfWords, "vocab", {}),
    (bert.SegmentEmbedding, "n_segments d_model", {}),
    (bert.EncoderBlock, "d_model n_heads d_ff", {"config": BERT}),
    (bert.Encoder, "vocab d_model n_heads d_ff", {"config": BERT}),
    (bert.Pooler, "d_model", {}),
    (bert.MaskedTokenHead, "vocab d_model", {"config": BERT}),
    (bert.NextSentenceHead, "d_model", {}),
    (bert.Bert, "vocab d_model n_heads d_ff", {"config": BERT}),
    (bert.BertForMaskedTokens, "vocab d_model", {"config": BERT}),
    (bert.BertForPretraining, "vocab d_model", {"config": BERT}),
    (deepseek.toy, "vocab d_nope d_v d_latent d_latent_q d_ff d_expert", {}),
    (distance_bias.DistanceBias, "n_buckets n_heads", {"max_distance": 64, "causal": True}),
    (embeddings.TokenEmbedding, "vocab d_model", {}),
    (embeddings.LearnedPositions, "max_len d_model", {}),
    (embeddings.SinusoidalPositions, "d_model", {}),
    (experts.SwiGLUExperts, "n_experts d_model d_expert", {}),
    (feed_forward.FeedForward, FFN, {}),
    (feed_forward.FeedForward, FFN, {"bias": False}),
    (gpt.LearnedPositions, "max_len d_model", {}),
    (gpt.MultiHeadSelfAttention, ATTENTION, {}),
    (gpt.DecoderBlock, "d_model n_heads d_ff", {}),
    (gpt.toy, "vocab max_len d_model n_heads d_ff n_layers", {}),
    (gpt_oss.ClampedExperts, "n_experts d_model d_expert", {"sharpness": 1.7, "limit": 7.0}),
    (gpt_oss.toy, "vocab d_model n_heads n_kv_heads d_head d_expert n_experts", {}),
    (grouped.GroupedQueryAttention, GQA, {}),
    (grouped.GroupedQueryAttention, GQA, {"norm_eps": 1e-6, "bias": True, "out_bias": True, "sinks": True}),
    (latent.Queries, "d_model n_heads d_head", {}),
    (latent.LowRankQueries, "d_model n_heads d_head d_latent_q", {"norm_eps": 1e-6}),
    (latent.LatentAttention, "d_model n_heads d_nope d_rope d_v d_latent d_latent_q", {}),
    (llama.toy, "vocab d_model n_heads n_kv_heads d_head d_ff", {}),
    (mistral.toy, "vocab d_model n_heads n_kv_heads d_head d_ff", {}),
    (mixtral.toy, "vocab d_model n_heads n_kv_heads d_head d_expert n_experts", {}),
    (multi_head.MultiHeadAttention, ATTENTION, {}),
    (norms.RMSNorm, "width", {}),
    (qwen3.toy, "vocab d_model n_heads n_kv_heads d_head d_ff", {}),
    (qwen3_moe.toy, "vocab d_model n_heads n_kv_heads d_head d_expert n_experts", {}),
    (recurrent.Reader, "vocab d_model", {"config": WRITER}),
    (recurrent.Glance, "d_model", {}),
    (recurrent.Writer, "vocab d_model", {"config": WRITER}),
    (recurrent.RecurrentSeq2Seq, "vocab d_model", {"config": WRITER}),
    (residual.PostNorm, "d_model", {}),
    (residual.PreNorm, "d_model", {}),
    (rope.Rotary, "d_head", {}),
    (routing.Router, "d_model n_experts", {"top_k": 1, "bias": True}),
    (single_head.MaskedSelfAttention, "d_model", {}),
    (swiglu.SwiGLU, FFN, {}),
    (switch.ReLUExperts, "n_experts d_model d_ff", {}),
    (t5.Attention, "d_model n_heads d_head", {"config": T5_TOY}),
    (t5.GatedGELU, FFN, {}),
    (t5.T5, "vocab d_model n_heads d_head d_ff", {"config": T5_TOY}),
    (transformer.EncoderLayer, "d_model n_heads d_ff", {}),
    (transformer.EncoderLayer, "d_model n_heads d_ff", {"norm": "pre", "bias": False}),
    (transformer.DecoderLayer, "d_model n_heads d_ff", {}),
    (transformer.Encoder, "vocab d_model n_heads d_ff", {"config": PLAIN}),
    (transformer.Decoder, "vocab d_model n_heads d_ff", {"config": PLAIN}),
    (transformer.Transformer, "vocab d_model n_heads d_ff n_layers", {"config": PLAIN}),
    (word2vec.SkipGram, "vocab d_model", {}),
]


def some_sizes(names, choice):
    """Sizes that the constructors take: heads share the width evenly, and halves of them turn together."""
    sizes = {name: choice.randint(2, 19) for name in names}
    if "n_heads" in sizes:
        sizes["n_heads"] = choice.choice([1, 2, 3, 4])
    if "n_kv_heads" in sizes:
        sizes["n_kv_heads"] = choice.choice([each for each in (1, 2, 3, 4) if sizes["n_heads"] % each == 0])
    if "d_model" in sizes:
        sizes["d_model"] = 12 * choice.randint(1, 9)
    sizes |= {name: 2 * choice.randint(1, 9) for name in ("d_head", "d_rope") if name in sizes}
    sizes |= {name: choice.randint(8, 14) for name in ("n_experts", "n_buckets") if name in sizes}
    if "n_buckets" in sizes:
        sizes["n_buckets"] = 4 * choice.randint(1, 7)
    if "n_layers" in sizes:
        sizes["n_layers"] = choice.randint(1, 5)
    return sizes


@pytest.mark.parametrize(
    ("maker", "names", "others"), LAYERS, ids=[maker.__module__[7:] + "." + maker.__name__ for maker, _, _ in LAYERS]
)
def test_the_formula_of_a_layer_is_the_count_of_ten_builds(maker, names, others):
    report = params(maker, symbolic=names.split(), **others)
    choice = random.Random(f"{maker.__qualname__} {names}")
    for _ in range(10):
        sizes = some_sizes(names.split(), choice)
        with torch.device("meta"):
            real = params(build(maker, sizes, others))
        numbers = report.at(**sizes)
        assert (numbers.total, numbers.trainable, numbers.buffers) == (real.total, real.trainable, real.buffers), sizes


def build(maker, sizes, others):
    if "config" in others:
        return maker(replace(others["config"], **sizes))
    return maker(**sizes, **others)


# How they read


@pytest.mark.parametrize(
    ("maker", "symbolic", "others", "text"),
    [
        (transformer.EncoderLayer, "d_model,d_ff,n_heads", {}, "4*d_model^2 + 2*d_model*d_ff + 9*d_model + d_ff"),
        (transformer.EncoderLayer, "d_model,d_ff,n_heads", {"only": "weights"}, "4*d_model^2 + 2*d_model*d_ff"),
        (transformer.DecoderLayer, "d_model,d_ff,n_heads", {"only": "weights"}, "8*d_model^2 + 2*d_model*d_ff"),
        (multi_head.MultiHeadAttention, "d_model,n_heads", {"only": "weights"}, "4*d_model^2"),
        (feed_forward.FeedForward, "d_model,d_ff", {"only": "weights"}, "2*d_model*d_ff"),
        (feed_forward.FeedForward, "d_ff,d_model", {"only": "weights"}, "2*d_ff*d_model"),
        (
            nn.TransformerEncoderLayer,
            "d_model,nhead,dim_feedforward",
            {},
            "4*d_model^2 + 2*d_model*dim_feedforward + 9*d_model + dim_feedforward",
        ),
        (nn.Linear, "out_features,in_features", {}, "out_features*in_features + out_features"),
        (nn.Conv2d, "in_channels,out_channels", {"kernel_size": 3}, "9*in_channels*out_channels + out_channels"),
        (nn.LSTM, "input_size,hidden_size", {}, "4*input_size*hidden_size + 4*hidden_size^2 + 8*hidden_size"),
        (nn.BatchNorm2d, "num_features", {}, "2*num_features"),
        (nn.GroupNorm, "num_groups,num_channels", {}, "2*num_channels"),
        (nn.Embedding, "num_embeddings,embedding_dim", {}, "num_embeddings*embedding_dim"),
        (nn.MultiheadAttention, "embed_dim,num_heads", {}, "4*embed_dim^2 + 4*embed_dim"),
        (
            nn.Transformer,
            "d_model,dim_feedforward",
            {"nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
            "12*d_model^2 + 4*d_model*dim_feedforward + 28*d_model + 2*dim_feedforward",
        ),
        (
            gpt.toy,
            "n_layers,d_model,d_ff",
            {"vocab": 97, "only": ["weights", "norms"]},
            "n_layers*(4*d_model^2 + 2*d_model*d_ff + 4*d_model) + 99*d_model",
        ),
    ],
)
def test_formulas_read_as_people_write_them(maker, symbolic, others, text):
    found = str(params(maker, symbolic=symbolic, **others).total)
    assert sorted(found.split(" + ")) == sorted(text.split(" + ")) if maker is nn.LSTM else found == text


def test_the_table_has_a_formula_in_each_line():
    lines = str(params(feed_forward.FeedForward, symbolic="d_model,d_ff")).splitlines()
    assert lines[0].split() == ["module", "kind", "parameters"]
    assert lines[2].split() == ["up", "Linear", "d_model*d_ff", "+", "d_ff"]
    assert lines[-1] == "2*d_model*d_ff + d_model + d_ff parameters, all trainable"


def test_numbers_stand_beside_formulas():
    sheet = params(nn.Linear, symbolic="in_features,out_features").sheet(sizes={"in_features": 2, "out_features": 3})
    assert [column.head for column in sheet.columns][2:4] == ["parameters", "at in_features=2, out_features=3"]
    assert sheet.lines[0].cells[3] == 9
    assert sheet.summary[1] == "at in_features=2, out_features=3: 9 parameters"


def test_formulas_add_up_and_compare():
    d, f = Expr.symbol("d"), Expr.symbol("f")
    total = Formula(2 * d * f, ("f", "d"))
    assert str(total + 1 - Formula(f)) == "2*f*d - f + 1"
    assert total == 2 * d * f and total != d and total - total == 0 and -total == total * -1
    assert str(Formula(d * d + d, ("d",), 2)) == "(d^2 + d)/2"
    assert Formula(d * d + d, ("d",), 2).at(d=5) == 15
    assert hash(Formula(d)) == hash(Formula(d, ("d",)))


# Fitted


class Refuses(nn.Module):
    """What needs real numbers: an array, text, a table of sizes."""

    def __init__(self, d_model: int, d_ff: int, n_heads: int = 2, n_layers: int = 1):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("heads do not divide the width")
        sizes = np.zeros(int(d_model)).shape
        self.up = nn.ModuleList(nn.Linear(sizes[0], d_ff) for _ in range(n_layers))
        self.heads = nn.Linear(d_model // n_heads, d_model)
        self.register_buffer("table", torch.zeros(d_ff))


@pytest.mark.parametrize(
    ("names", "total"),
    [
        ("d_ff", "25*d_ff + 312"),
        ("d_model,d_ff", "d_model*d_ff + d_model*(d_model//2) + d_model + d_ff"),
        ("d_model,d_ff,n_heads", "d_model*d_ff + d_model*(d_model//n_heads) + d_model + d_ff"),
    ],
)
def test_a_constructor_that_takes_no_symbols_is_fitted(names, total):
    others = {} if "d_model" in names else {"d_model": 24}
    report = params(Refuses, symbolic=names, **others)
    for sizes in ({"d_model": 36, "d_ff": 7, "n_heads": 6}, {"d_model": 10, "d_ff": 1, "n_heads": 5}):
        mine = {name: sizes[name] for name in names.split(",")}
        numbers, real = report.at(**mine), params(Refuses(**others, **mine))
        assert (numbers.total, numbers.buffers, numbers.parameter_bytes) == (
            real.total,
            real.buffers,
            real.parameter_bytes,
        )
    assert [row.path for row in report.rows] == ["", "up", "up.0", "heads"]
    assert bool(report.notes) == ("d_model" in names)  # which becomes a number; the other does not
    assert all(note.startswith("fitted to ") and "checked on 2 more, as " in note for note in report.notes)
    if names != "d_model,d_ff":  # there half the width may be a quotient or a fraction
        assert str(report.total) == total


def test_layers_that_are_only_counted():
    report = params(Refuses, symbolic="n_layers,d_ff", d_model=24)
    assert str(report.total) == "25*n_layers*d_ff + 312"
    assert [row.path for row in report.rows] == ["", "up", "up.*", "heads"]
    assert report.notes[0].startswith("fitted")
    report = params(gpt.toy, symbolic="n_layers")
    assert report.notes == (
        "fitted to 3 builds and checked on 2 more, as n_layers becomes a number in the constructor",
    )


@pytest.mark.parametrize(
    ("kind", "others", "total"),
    [
        (nn.GRU, {"input_size": 5, "hidden_size": 3}, "72*num_layers + 18"),
        (nn.LSTM, {"input_size": 3, "hidden_size": 3, "bidirectional": True}, "264*num_layers - 72"),
    ],
)
def test_layers_whose_parameters_are_numbered_in_one_module(kind, others, total):
    report = params(kind, symbolic="num_layers", **others)
    for num_layers in (1, 2, 7):
        assert report.at(num_layers=num_layers).total == params(kind(num_layers=num_layers, **others)).total
    assert [line.cells[0] for line in report.sheet("parameter").lines][:2] == ["weight_ih_l*", "weight_hh_l*"]
    assert str(report.total) == total


class Powers(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 ** int(np.int64(int(n)))))


class Triangle(nn.Module):
    """n rows of rising length: a polynomial with fractions."""

    def __init__(self, n: int):
        super().__init__()
        self.rows = nn.ParameterList(nn.Parameter(torch.zeros(row + 1)) for row in range(n))


def test_a_count_that_is_no_polynomial_is_told():
    with pytest.raises(TargetError, match=r"no polynomial of degree 4 or less in n|was built at"):
        params(Powers, symbolic="n")


def test_a_polynomial_with_fractions():
    report = params(Triangle, symbolic="n")
    assert str(report.total) == "(n^2 + n)/2"
    assert report.total.at(n=7) == 28


@pytest.mark.parametrize(
    ("name", "symbolic", "others"),
    [
        ("BertConfig", "hidden_size,intermediate_size", {"num_hidden_layers": 1}),
        ("BertConfig", "vocab_size,hidden_size,num_hidden_layers", {"intermediate_size": 40}),
        ("GPT2Config", "n_embd,vocab_size", {"n_layer": 1}),
        ("MixtralConfig", "hidden_size,intermediate_size,num_local_experts", {"num_hidden_layers": 1}),
    ],
)
def test_configurations_of_transformers(name, symbolic, others):
    transformers = pytest.importorskip("transformers")
    from shapeflow import zoo

    maker = zoo.builder_of(getattr(transformers, name))
    report = params(maker, symbolic=symbolic, **others)
    for factor in (1, 2):
        values = {"hidden_size": 768, "n_embd": 768, "num_hidden_layers": 1, "num_local_experts": 3}
        sizes = {each: values.get(each, 500) * factor for each in symbolic.split(",")}
        with torch.device("meta"):
            assert report.at(**sizes).total == params(maker(**sizes, **others)).total


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: params(nn.Linear, symbolic="in_feature", out_features=3),
            InputError,
            "no argument in_feature; did you",
        ),
        (lambda: params(nn.Linear, symbolic="in_features"), InputError, "Linear needs out_features"),
        (
            lambda: params(nn.Linear, symbolic="in_features,bias", out_features=3),
            InputError,
            "bias of Linear is a bool",
        ),
        (
            lambda: params(nn.Dropout, symbolic="p"),
            InputError,
            "p of Dropout is a float, no size: only integers can be",
        ),
        (
            lambda: params(nn.Linear(2, 3), symbolic="in_features"),
            InputError,
            "Linear is built already: give the class",
        ),
        (lambda: params(nn.Linear, "B 3", symbolic="in_features"), InputError, "takes no inputs"),
        (
            lambda: params(nn.Linear, symbolic="in_features,out_features").at(in_features=2),
            InputError,
            "is given for out_",
        ),
        (
            lambda: attention().at(d_model=10, n_heads=4),
            InputError,
            r"MultiHeadAttention takes sizes with d_model % n_heads",
        ),
        (
            lambda: attention().at(d_model=10, heads=2),
            InputError,
            r"no size is called heads; did you mean n_heads\?; there",
        ),
        (lambda: attention().at(d_model=0, n_heads=2), InputError, "d_model = 0: a size is at least 1"),
        (lambda: params(nn.Linear(2, 3)).at(d=3), InputError, "no size is called d; there are: none"),
    ],
)
def test_bad_input_is_told(call, error, message):
    with pytest.raises(error, match=message):
        call()


def attention():
    return params(multi_head.MultiHeadAttention, symbolic="d_model,n_heads")


def test_counts_of_parameters_are_products_of_their_shapes():
    for each in params(transformer.EncoderLayer, symbolic="d_model,d_ff,n_heads").parameters:
        sizes = {"d_model": 12, "d_ff": 7, "n_heads": 3}
        shape = [size if isinstance(size, int) else size.at(**sizes) for size in each.shape]
        assert each.count.at(**sizes) == prod(shape)
