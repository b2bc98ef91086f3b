"""The Transformer of 2017: torch's own with the same weights, its counts, what it may read, cache, refusals, trace."""

import dataclasses
import inspect
import re

import pytest
import torch
import torch.nn as nn
from jaxtyping import TypeCheckError
from torch.testing import assert_close

import shapeflow as sf
from models import multi_head
from models.cache import Cache
from models.embeddings import SinusoidalPositions
from models.masks import blocked, causal_allowed, padding_allowed
from models.properties import batch_leaks, changed_positions, future_leaks
from models.transformer import BASE, BIG, DecoderLayer, Encoder, EncoderLayer, Transformer, toy

B, S, T, D_MODEL, N_HEADS, D_FF, VOCAB = 2, 7, 5, 33, 3, 47, 101


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def random_ids(t, b=B):
    return torch.randint(VOCAB, (b, t))


def randomised(module):
    """The module with every parameter drawn anew: zero biases and norms of one would hide a swap."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    return module.double()


NAMES = {  # ours: torch's, by prefix
    "attention.out": "self_attn.out_proj",
    "attention_residual.norm": "norm1",
    "cross.out": "multihead_attn.out_proj",
    "cross_residual.norm": "norm2",
    "ffn.up": "linear1",
    "ffn.down": "linear2",
}


def torch_state(layer):
    """A layer's weights under torch's names."""
    names = NAMES | {"ffn_residual.norm": "norm3" if hasattr(layer, "cross") else "norm2"}
    state = {}
    for name, value in layer.state_dict(keep_vars=True).items():
        prefix, _, kind = name.rpartition(".")
        if prefix in names:
            state[f"{names[prefix]}.{kind}"] = value
    for ours, theirs in (("attention", "self_attn"), ("cross", "multihead_attn")):
        if hasattr(layer, ours):
            attention = getattr(layer, ours)
            for kind in ("weight", "bias"):
                packed = torch.cat([getattr(attention.q, kind), getattr(attention.kv, kind)])
                state[f"{theirs}.in_proj_{kind}"] = packed
    return state


def torch_layer(kind, layer, norm, activation):
    theirs = kind(
        D_MODEL, N_HEADS, D_FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    ).double()
    theirs.load_state_dict(torch_state(layer))
    return theirs


def assert_same_gradients(ours, theirs, inputs, layer, their_layer):
    """Of inputs and of all parameters, along one random direction."""
    direction = torch.randn_like(ours)
    our_parameters, their_parameters = dict(layer.named_parameters()), dict(their_layer.named_parameters())
    our_gradients = torch.autograd.grad(ours, [*inputs, *our_parameters.values()], direction)
    their_gradients = torch.autograd.grad(theirs, [*inputs, *their_parameters.values()], direction)
    assert_close(our_gradients[: len(inputs)], their_gradients[: len(inputs)])

    with torch.no_grad():
        for parameter, gradient in zip(our_parameters.values(), our_gradients[len(inputs) :], strict=True):
            parameter.copy_(gradient)
    renamed = torch_state(layer)
    named = dict(zip(their_parameters, their_gradients[len(inputs) :], strict=True))
    assert set(renamed) == set(named)
    assert_close({name: value.detach() for name, value in renamed.items()}, named)


layers = pytest.mark.parametrize(("norm", "activation"), [("post", "relu"), ("pre", "gelu")])


@layers
@pytest.mark.parametrize("masked", [False, True])
def test_an_encoder_layer_equals_that_of_torch(norm, activation, masked):
    ours = randomised(EncoderLayer(D_MODEL, N_HEADS, D_FF, dropout=0.0, norm=norm, activation=activation))
    theirs = torch_layer(nn.TransformerEncoderLayer, ours, norm, activation)
    x = torch.randn(B, S, D_MODEL, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(S) < torch.tensor([[4], [S]]) if masked else torch.ones(B, S, dtype=torch.bool)
    outputs = ours(x, allowed=padding_allowed(valid)), theirs(x, src_key_padding_mask=blocked(valid))
    assert_close(*outputs)
    assert_same_gradients(*outputs, [x], ours, theirs)


@layers
def test_a_decoder_layer_equals_that_of_torch(norm, activation):
    ours = randomised(DecoderLayer(D_MODEL, N_HEADS, D_FF, dropout=0.0, norm=norm, activation=activation))
    theirs = torch_layer(nn.TransformerDecoderLayer, ours, norm, activation)
    x = torch.randn(B, T, D_MODEL, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(B, S, D_MODEL, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(S) < torch.tensor([[4], [S]])
    allowed = causal_allowed(T, T)
    outputs = (
        ours(x, memory, allowed=allowed, memory_allowed=padding_allowed(valid)),
        theirs(x, memory, tgt_mask=blocked(allowed), memory_key_padding_mask=blocked(valid)),
    )
    assert_close(*outputs)
    assert_same_gradients(*outputs, [x, memory], ours, theirs)


def torch_transformer(config):
    """torch's own ends a post-norm stack in a norm that 2017 does not have: its stacks are given without."""
    sizes = {"dim_feedforward": config.d_ff, "dropout": 0.0, "batch_first": True, "norm_first": config.norm == "pre"}
    layers = [
        kind(config.d_model, config.n_heads, **sizes)
        for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    ]
    norms = [nn.LayerNorm(config.d_model) if config.norm == "pre" else None for _ in layers]
    encoder = nn.TransformerEncoder(layers[0], config.n_layers, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(layers[1], config.n_layers, norms[1])
    return nn.Transformer(
        config.d_model, config.n_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    ).double()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_both_stacks_equal_the_transformer_of_torch(norm):
    ours = randomised(toy(norm=norm)).eval()
    theirs = torch_transformer(ours.config)
    state = {}
    for side, stack in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        for i, layer in enumerate(stack.layers):
            state |= {f"{side}.layers.{i}.{name}": value for name, value in torch_state(layer).items()}
        state |= {f"{side}.norm.{name}": value for name, value in stack.norm.state_dict().items()}
    theirs.load_state_dict(state)

    source, ids = random_ids(S), random_ids(T)
    valid = torch.arange(S) < torch.tensor([[4], [S]])
    padded = blocked(valid)
    hidden = theirs(
        ours.encoder.embedding(source),
        ours.decoder.embedding(ids),
        tgt_mask=blocked(causal_allowed(T, T)),
        src_key_padding_mask=padded,
        memory_key_padding_mask=padded,
    )
    assert_close(ours(source, ids, source_valid=valid), ours.head(hidden))


def test_the_numbers_of_weights_of_section_15_1():
    def weights(layer):
        return sum(p.numel() for name, p in layer.named_parameters() if p.ndim == 2)

    encoder_layer, decoder_layer = EncoderLayer(512, 8, 2048), DecoderLayer(512, 8, 2048)
    assert weights(encoder_layer.attention) == 4 * 512**2 == 1_048_576
    assert weights(encoder_layer.ffn) == 2 * 512 * 2048 == 2_097_152
    assert weights(encoder_layer) == 3_145_728
    assert weights(decoder_layer) == 4_194_304
    # Section 7.2: twice the projections of attention, two thirds of the layer.
    assert 3 * weights(encoder_layer.ffn) == 6 * weights(encoder_layer.attention) == 2 * weights(encoder_layer)


@pytest.mark.parametrize(("config", "count"), [(BASE, 63_082_496), (BIG, 214_245_376)])
def test_the_number_of_parameters_of_the_paper_s_models_is_the_formula(config, count):
    with torch.device("meta"):
        model = Transformer(config)
    d, d_ff = config.d_model, config.d_ff
    attention = 4 * d**2 + 4 * d
    ffn = 2 * d * d_ff + d_ff + d
    norm = 2 * d
    layers = config.n_layers * ((attention + ffn + 2 * norm) + (2 * attention + ffn + 3 * norm))
    assert sum(p.numel() for p in model.parameters()) == config.vocab * d + layers == count


@pytest.mark.parametrize(
    ("config", "sizes"), [(BASE, (512, 8, 2048, 6, 0.1, "post")), (BIG, (1024, 16, 4096, 6, 0.3, "post"))]
)
def test_the_configurations_are_those_of_table_3(config, sizes):
    fields = ("d_model", "n_heads", "d_ff", "n_layers", "dropout", "norm")
    assert tuple(getattr(config, name) for name in fields) == sizes
    assert config.activation == "relu"
    assert config.max_len is None


def test_tied_matrices_are_one_and_untied_ones_three():
    tied, untied = toy(tied=True), toy(tied=False)
    table = tied.encoder.embedding.tokens.table.weight
    assert tied.head.weight is table
    assert tied.decoder.embedding.tokens.table.weight is table
    assert tied.head.bias is None

    def count(model):
        return sum(p.numel() for p in model.parameters())

    vocab, d_model = untied.config.vocab, untied.config.d_model
    assert count(untied) - count(tied) == 2 * vocab * d_model + vocab


def test_both_streams_start_as_scaled_token_plus_sinusoidal_position():
    model = toy(tied=False).eval()
    ids, d_model = random_ids(T), model.config.d_model
    code = SinusoidalPositions(d_model)(torch.arange(T))
    for stack in (model.encoder, model.decoder):
        assert_close(stack.embedding(ids), d_model**0.5 * stack.embedding.tokens.table(ids) + code)


def test_dropout_stands_where_2017_has_it():
    model = Transformer(dataclasses.replace(toy().config, dropout=0.25))
    sites = [name for name, module in model.named_modules() if isinstance(module, nn.Dropout)]
    stack = ["embedding", "layers.0.attention_residual", "layers.0.ffn_residual"]
    assert {f"encoder.{name}.dropout" for name in stack} <= set(sites)
    # One behind each embedding sum, one behind each sublayer: 2 of an encoder layer, 3 of a decoder layer.
    assert len(sites) == 2 + model.config.n_layers * (2 + 3)
    assert all(module.p == 0.25 for module in model.modules() if isinstance(module, nn.Dropout))

    source, ids = random_ids(S), random_ids(T)
    assert not torch.allclose(model.train()(source, ids), model(source, ids))
    assert torch.equal(model.eval()(source, ids), model(source, ids))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_target_position_sees_no_later_one_and_every_source_position(norm):
    model = toy(norm=norm).eval()
    source, ids = random_ids(S), random_ids(T)
    assert future_leaks(lambda ids: model(source, ids), ids) == ()
    # The control: the same layers without the causal mask.
    memory, x = model.encoder(source), model.decoder.embedding
    layer = model.decoder.layers[0]
    assert future_leaks(lambda ids: layer(x(ids), memory), ids) == tuple(range(T - 1))
    # A token is read at its own position and by all later ones, whether its prediction is scored or not.
    assert changed_positions(lambda ids: model(source, ids), ids, 2) == (2, 3, 4)
    for s in range(S):
        other = source.clone()
        other[:, s] = (other[:, s] + 1) % VOCAB
        assert ((model(source, ids) - model(other, ids)).abs().amax(dim=(0, 2)) > 1e-5).all()


def test_the_encoder_reads_both_ways_and_causal_encoder_layers_make_a_decoder_only_model():
    encoder = toy().encoder.eval()
    source = random_ids(S)
    assert future_leaks(encoder, source) == tuple(range(S - 1))

    def decoder_only(ids):
        x = encoder.embedding(ids)
        for layer in encoder.layers:
            x = layer(x, allowed=causal_allowed(S, S))
        return x

    assert future_leaks(decoder_only, source) == ()


def test_no_sequence_reads_another_of_the_batch():
    model = toy().eval()
    source = random_ids(S, b=1)
    assert batch_leaks(lambda ids: model(source.expand(len(ids), -1), ids), random_ids(T, b=3)) == ()
    assert batch_leaks(model.encoder, random_ids(S, b=3)) == ()


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_of_the_source_changes_nothing(side):
    model = toy().eval()
    source, ids = random_ids(4), random_ids(T)
    parts = [source, random_ids(3)] if side == "right" else [random_ids(3), source]
    padded = torch.cat(parts, dim=1)
    valid = torch.arange(7).expand(B, 7) < 4 if side == "right" else torch.arange(7).expand(B, 7) >= 3
    assert_close(model(padded, ids, source_valid=valid), model(source, ids))
    assert not torch.allclose(model(padded, ids), model(source, ids), atol=1e-3)


def test_padding_of_the_target_on_the_left_changes_nothing():
    model = toy().eval()
    source, ids = random_ids(S), random_ids(T)
    padded = torch.cat([random_ids(2), ids], dim=1)
    valid = torch.arange(T + 2).expand(B, T + 2) >= 2
    assert_close(model(source, padded, valid=valid)[:, 2:], model(source, ids))
    assert not torch.allclose(model(source, padded)[:, 2:], model(source, ids), atol=1e-3)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("max_len", [None, 11])
def test_cached_decoding_equals_the_full_forward_token_by_token(norm, max_len):
    model = toy(norm=norm, max_len=max_len).eval()
    source, ids = random_ids(S), random_ids(T)
    source_valid = torch.arange(S) < torch.tensor([[4], [S]])
    whole = model(source, ids, source_valid=source_valid)
    decode, cache = model.reading(source, source_valid=source_valid), Cache(2)
    for t in range(T):
        logits = decode(ids[:, t : t + 1], cache=cache)
        assert_close(logits[:, 0], whole[:, t])
        assert cache.length == t + 1


def test_cached_decoding_equals_the_full_forward_with_padding_on_the_left():
    model = toy().eval()
    source, ids = random_ids(S), random_ids(T)
    valid = torch.tensor([[False, False, True, True, True], [True] * T])
    whole = model(source, ids, valid=valid)
    decode, cache = model.reading(source), Cache(2)
    prompt = decode(ids[:, :3], valid=valid[:, :3], cache=cache)
    steps = [decode(ids[:, t : t + 1], valid=valid[:, : t + 1], cache=cache) for t in (3, 4)]
    cached = torch.cat([prompt, *steps], dim=1)
    assert_close(cached[valid], whole[valid])
    # Each row alone, without its padding, is the same again.
    assert_close(cached[:1, 2:], model(source[:1], ids[:1, 2:]))


def test_a_learned_table_of_positions_has_an_end_with_a_cache_too():
    model = toy(max_len=5).eval()
    with pytest.raises(ValueError, match=r"a sequence of 6 tokens is longer than max_len = 5"):
        model(random_ids(5), random_ids(6))
    decode, cache = model.reading(random_ids(5)), Cache(2)
    decode(random_ids(5), cache=cache)
    with pytest.raises(ValueError, match=r"a sequence of 6 tokens is longer than max_len = 5"):
        decode(random_ids(1), cache=cache)


def test_a_cache_of_another_depth_is_refused():
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is longer"):
        toy().reading(random_ids(S))(random_ids(1), cache=Cache(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": torch.zeros(S, dtype=torch.int64)}, r"parameter 'source'[\s\S]*'B S'"),
        ({"source": torch.zeros(B, S)}, r"parameter 'source'[\s\S]*Int\[Tensor"),
        ({"ids": torch.zeros(B + 1, T, dtype=torch.int64)}, r"parameter 'ids'[\s\S]*'B T'[\s\S]*B=2"),
        ({"source_valid": torch.ones(B, S + 1, dtype=torch.bool)}, r"'source_valid'[\s\S]*'B S'[\s\S]*S=7"),
        ({"source_valid": torch.ones(B, S)}, r"'source_valid'[\s\S]*Bool\[Tensor"),
        ({"valid": torch.ones(T, dtype=torch.bool)}, r"'valid'[\s\S]*'B R'"),
    ],
)
def test_wrong_shapes_dtypes_and_masks_are_refused_by_name(change, message):
    arguments = {"source": random_ids(S), "ids": random_ids(T)}
    with pytest.raises(TypeCheckError, match=message):
        toy()(**(arguments | change))


def test_a_decoder_layer_wants_a_memory_of_its_width():
    layer = DecoderLayer(D_MODEL, N_HEADS, D_FF)
    with pytest.raises(TypeCheckError, match=r"'memory'[\s\S]*B S d_model[\s\S]*d_model=33"):
        layer(torch.zeros(B, T, D_MODEL), torch.zeros(B, S, 32))


def test_valid_must_cover_what_the_cache_holds():
    model = toy().eval()
    decode, cache = model.reading(random_ids(S)), Cache(2)
    decode(random_ids(3), cache=cache)
    with pytest.raises(ValueError, match=r"valid covers 1 positions, but 4 have been read"):
        decode(random_ids(1), valid=torch.ones(B, 1, dtype=torch.bool), cache=cache)


def test_a_broken_transpose_is_caught_by_name(mutant):
    model = toy()
    broken = mutant(multi_head, "self.d_head).transpose(1, 2)", "self.d_head)")
    model.decoder.layers[1].cross.__class__ = broken.MultiHeadAttention
    with pytest.raises(TypeCheckError, match=r"split_heads[\s\S]*B n_heads T d_head"):
        model(random_ids(S), random_ids(T))


def test_a_layer_of_another_width_is_refused():
    model = toy()
    model.decoder.layers[1] = DecoderLayer(33, 3, 47)
    with pytest.raises(RuntimeError, match=r"\(\d+x22 and 33x33\)"):
        model(random_ids(S), random_ids(T))


@pytest.fixture(scope="module")
def trace():
    return sf.trace(toy())


def test_it_traces_with_its_own_names_and_nothing_written_by_hand(trace):
    text = str(trace)
    assert "free        B, S, T\n" in text
    assert "outputs     B T vocab\n" in text
    for line in (
        r"B S d_model +-> B S 2\*d_model",
        r"B n_heads T d_head, B n_heads d_head S -> B n_heads T S",
        r"B n_heads T d_head, B n_heads d_head T -> B n_heads T T",
        r"B T d_model +-> B T d_ff",
        r"B T d_model +-> B T vocab",
    ):
        assert re.search(line, text), line


def test_every_axis_of_every_edge_has_a_name(trace):
    numbers = {str(dim) for edge in trace.edges for dim in edge.shape.dims if str(dim).isdigit()}
    assert numbers <= {"1", "2"}  # broadcasting, and the sine and the cosine of a pair


@pytest.mark.parametrize(("b", "s", "t"), [(2, 7, 5), (3, 4, 11)])
def test_the_traced_graph_replays_at_other_sizes(b, s, t):
    model = toy().eval()
    source, ids = random_ids(s, b), random_ids(t, b)
    assert_close(sf.trace(model).graph_module(source, ids), model(source, ids))


@pytest.mark.parametrize(
    ("part", "inputs"),
    [
        (Encoder(toy().config), lambda: (random_ids(S),)),
        (EncoderLayer(D_MODEL, N_HEADS, D_FF), lambda: (torch.randn(B, S, D_MODEL),)),
        (DecoderLayer(D_MODEL, N_HEADS, D_FF), lambda: (torch.randn(B, T, D_MODEL), torch.randn(B, S, D_MODEL))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_part_alone_traces_and_replays(part, inputs):
    trace, arguments = sf.trace(part.eval()), inputs()
    assert str(trace.outputs[0].shape) in {"B S d_model", "B T d_model"}
    assert_close(trace.graph_module(*arguments), part(*arguments))


def test_the_first_arguments_of_a_layer_are_its_sizes():
    for layer in (EncoderLayer, DecoderLayer):
        assert list(inspect.signature(layer).parameters)[:3] == ["d_model", "n_heads", "d_ff"]
