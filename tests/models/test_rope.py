"""Rotary positions: scores depend on the offset alone; the scalings against transformers; what is refused."""

import math
from dataclasses import replace

import pytest
import torch
from jaxtyping import TypeCheckError
from torch.testing import assert_close
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import shapeflow as sf
from models.embeddings import SinusoidalPositions
from models.rope import LinearScaling, Llama3Scaling, Rotary, YarnScaling, token_positions, yarn_magnitude
from tests.models.checks import unnamed_axes

D_HEAD = 14


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def turned(x, position, **options):
    """One vector at one position."""
    return Rotary(x.shape[-1], **options)(torch.tensor([[position]])).turn(x[None, None, None])[0, 0, 0]


# The pairs of positions of the notes, section 4.1: an offset of -1 everywhere.
NEIGHBOURS = [(3, 2), (7, 6), (100, 99)]


@pytest.mark.parametrize("options", [{}, {"base": 500000.0}, {"scaling": YarnScaling(factor=4.0, original_max_len=32)}])
def test_scores_depend_on_the_offset_alone(options):
    q, k = torch.randn(2, D_HEAD)
    scores = torch.stack([turned(q, i, **options) @ turned(k, j, **options) for i, j in NEIGHBOURS])
    assert_close(scores, scores[:1].expand(3), atol=1e-4, rtol=0)
    other = turned(q, 3, **options) @ turned(k, 1, **options)
    assert (scores - other).abs().min() > 1e-2


def test_added_positions_do_not():
    q, k = torch.randn(2, D_HEAD)
    positions = SinusoidalPositions(D_HEAD)(torch.arange(101))
    scores = torch.stack([(q + positions[i]) @ (k + positions[j]) for i, j in NEIGHBOURS])
    assert (scores[1:] - scores[0]).abs().min() > 1e-2


def test_a_turn_by_the_angle_of_each_pair():
    x = torch.randn(6)
    frequencies = [10000 ** (-2 * i / 6) for i in range(3)]
    for i, frequency in enumerate(frequencies):
        point = complex(x[i], x[i + 3]) * complex(math.cos(5 * frequency), math.sin(5 * frequency))
        assert_close(turned(x, 5)[[i, i + 3]], torch.tensor([point.real, point.imag]))


def test_position_0_changes_nothing_and_lengths_stay():
    x = torch.randn(D_HEAD)
    assert_close(turned(x, 0), x)
    assert_close(turned(x, 977).norm(), x.norm())


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"rope_type": "linear", "factor": 4.0}, LinearScaling(factor=4.0)),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=64),
        ),
        ({"rope_type": "yarn", "factor": 40.0}, YarnScaling(factor=40.0, original_max_len=64)),
        (
            {"rope_type": "yarn", "factor": 32.0, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
            YarnScaling(factor=32.0, original_max_len=64, truncate=False, beta_fast=16.0, beta_slow=2.0),
        ),
    ],
)
@pytest.mark.parametrize("d_head", [26, 4])
# A low base has its ramp end behind the last pair; a first length of under one turn leaves no ramp but a step.
@pytest.mark.parametrize(("base", "max_len"), [(1000.0, 64), (5.0, 64), (1000.0, 6)])
def test_scaled_frequencies_are_those_of_transformers(theirs, ours, d_head, base, max_len):
    if not isinstance(ours, LinearScaling):
        ours = replace(ours, original_max_len=max_len)
    common = {"rope_theta": base, "original_max_position_embeddings": max_len}
    config = LlamaConfig(hidden_size=2 * d_head, num_attention_heads=2, rope_parameters=theirs | common)
    expected, magnitude = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, None)
    rotary = Rotary(d_head, base=base, scaling=ours)
    assert_close(rotary.steps(torch.device("cpu")), expected, rtol=1e-5, atol=0)
    if theirs["rope_type"] == "yarn":
        assert magnitude == pytest.approx(yarn_magnitude(theirs["factor"]))
    if (base, max_len) == (1000.0, 64):
        assert not torch.allclose(expected, Rotary(d_head, base=base).steps(torch.device("cpu")))


def test_the_magnitude_lengthens_turned_vectors():
    x = torch.randn(D_HEAD)
    scaling = YarnScaling(factor=40.0, original_max_len=64, magnitude=yarn_magnitude(40.0))
    assert_close(turned(x, 5, scaling=scaling).norm() / x.norm(), torch.tensor(0.1 * math.log(40) + 1))


def test_yarn_leaves_a_shorter_text_alone():
    assert yarn_magnitude(0.5) == yarn_magnitude(1.0) == 1.0


def test_half_precision_keeps_its_dtype_and_loses_no_position():
    x = torch.randn(D_HEAD)
    rotary = Rotary(D_HEAD).bfloat16()
    half = rotary(torch.tensor([[1001]])).turn(x.bfloat16()[None, None, None])[0, 0, 0]
    assert half.dtype is torch.bfloat16
    assert_close(half.float(), turned(x, 1001), atol=3e-2, rtol=0)  # rounded frequencies would be off by radians


def test_positions_count_real_tokens_behind_those_read_before():
    ids = torch.zeros(2, 3, dtype=torch.int64)
    assert token_positions(ids, offset=4).tolist() == [[4, 5, 6]] * 2
    valid = torch.tensor([[True] * 5, [False, False, True, True, True]])
    assert token_positions(ids, valid=valid, offset=2).tolist() == [[2, 3, 4], [0, 1, 2]]


@pytest.mark.parametrize("covered", [2, 3, 8])
def test_valid_must_cover_all_positions_read(covered):
    ids = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=rf"valid covers {covered} positions, but 7 have been read"):
        token_positions(ids, valid=torch.ones(2, covered, dtype=torch.bool), offset=4)


def test_axes_that_make_no_pairs_are_refused():
    with pytest.raises(ValueError, match=r"d_head must be even, got 7"):
        Rotary(7)


def test_a_head_of_another_width_is_refused():
    rotation = Rotary(D_HEAD)(torch.arange(5)[None])
    with pytest.raises(RuntimeError, match=r"sum exactly to 16"):
        rotation.turn(torch.ones(1, 5, 3, 16))
    with pytest.raises(TypeCheckError, match=r"'x'[\s\S]*f32\[1,5,14\][\s\S]*B T _ d_head"):
        rotation.turn(torch.ones(1, 5, D_HEAD))


def test_the_trace_has_names():
    assert unnamed_axes(sf.trace(Rotary(D_HEAD))) == []
