"""The graph is the program: replayed on real tensors, at sizes other than the traced ones, it equals the model."""

import math
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models.gpt import toy
from shapeflow.trace.replay import ReplayError
from tests.trace.following import Forward, assert_replays, conditions, follow, outputs, real


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


# Whole models


class Tagger(nn.Module):
    """Classes of a sequence from the last state of an LSTM."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 6)
        self.lstm = nn.LSTM(6, 7, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(14, 3)

    def forward(self, ids):
        y, (h, _) = self.lstm(self.table(ids))
        return self.head(y[:, -1]), h


class UNet(nn.Module):
    """Down twice and up again; what comes from below is brought to the size of what it is joined with."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in [(3, 4), (4, 8), (8, 16)])
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (4, 8, 16))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in [(16, 8), (8, 4)])
        self.join = nn.ModuleList(nn.Conv2d(2 * n, n, 3, padding=1) for n in (8, 4))

    def forward(self, x):
        skips = []
        for conv, norm in zip(self.down, self.norms, strict=True):
            x = F.max_pool2d(x, 2) if skips else x
            skips.append(x := norm(conv(x)).relu())
        for up, join, skip in zip(self.up, self.join, reversed(skips[:-1]), strict=True):
            x = up(x)
            x = F.pad(x, (0, skip.shape[-1] - x.shape[-1], 0, skip.shape[-2] - x.shape[-2]))
            x = join(torch.cat([skip, x], dim=1))
        return x


@pytest.mark.parametrize(
    ("model", "spec", "inputs"),
    [
        pytest.param(toy, "B T:int64", [((1, 5), 100), ((2, 64), 100), ((5, 1), 100)], id="toy GPT"),
        pytest.param(Tagger, "B T:int64", [((1, 5), 50), ((2, 19), 50), ((5, 1), 50)], id="LSTM classifier"),
        pytest.param(
            UNet, "B 3 H W", [((1, 3, 16, 24), None), ((2, 3, 17, 22), None), ((2, 3, 31, 12), None)], id="U-Net"
        ),
    ],
)
def test_a_model_of_ours(model, spec, inputs):
    model = model().eval()
    trace = follow(model, spec)
    for shape, high in inputs:
        assert_replays(trace, model, real(*shape, high=high))


def test_resnet50():
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.resnet50().eval()
    trace = follow(model, "B 3 H W")
    assert outputs(trace) == ["B 1000"]
    assert not conditions(trace)
    for shape in [(1, 3, 64, 64), (2, 3, 49, 65), (3, 3, 32, 97)]:
        assert_replays(trace, model, real(*shape))


@pytest.mark.parametrize("use_cache", [False, True])
def test_gpt2(use_cache):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=99, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).eval()
    trace = follow(model, "B T:int64", use_cache=use_cache)
    assert outputs(trace)[0] == "B T 99"
    assert len(trace.outputs) == (5 if use_cache else 1)
    for shape in [(1, 5), (2, 19), (5, 2)]:
        assert_replays(trace, model, real(*shape, high=99), use_cache=use_cache)


def test_bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        num_hidden_layers=2, num_attention_heads=2, hidden_size=32, intermediate_size=64, vocab_size=99
    )
    model = transformers.BertModel(config).eval()
    trace = follow(model, "B T:int64", "B T:int64")
    for shape in [(1, 5), (2, 19), (5, 2)]:
        mask = torch.ones(shape, dtype=torch.int64)
        mask[0, shape[1] // 2 :] = 0
        assert_replays(trace, model, real(*shape, high=99), mask)


# Numbers made of sizes


LENGTHS = [(2, 5, 4), (1, 9, 4), (5, 2, 4), (4, 40, 4)]


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x / math.sqrt(x.shape[1]), id="math.sqrt"),
        pytest.param(lambda x: x / x.shape[1] ** 0.5, id="root"),
        pytest.param(lambda x: x * x.shape[1] ** -0.5, id="inverse root"),
        pytest.param(lambda x: x * math.log(x.shape[1] + 1), id="math.log"),
        pytest.param(lambda x: x * math.log2(x.shape[1]), id="math.log2"),
        pytest.param(lambda x: x * math.exp(-x.shape[1]), id="math.exp"),
        pytest.param(lambda x: x * math.log(x.shape[1], 10), id="math.log to a base"),
        pytest.param(lambda x: x * math.pow(x.shape[1], 0.25), id="math.pow"),
        pytest.param(lambda x: x / float(x.shape[1]), id="float"),
        pytest.param(lambda x: x / torch.tensor(x.shape[1]), id="torch.tensor"),
        pytest.param(lambda x: x / torch.tensor([1.0, 2.0, 3.0, x.shape[1]]), id="torch.tensor of a list"),
        pytest.param(lambda x: x.sum(1) / x.size(1), id="division by a size"),
        pytest.param(lambda x: x + torch.full((x.shape[1], 1), 1 / x.shape[1]), id="torch.full"),
        pytest.param(lambda x: x + torch.linspace(0, 1, x.shape[1])[:, None], id="torch.linspace"),
        pytest.param(lambda x: x * (x.shape[1] / 3 + x.shape[2] * 0.5), id="sum of floats"),
        pytest.param(lambda x: x[:, : int(x.shape[1] * 0.5)], id="int of a half"),
        pytest.param(lambda x: x[:, : int(x.shape[1] / 3)], id="int of a third"),
        pytest.param(lambda x: x[:, : int(x.shape[1] * 0.3)], id="int of a rounded factor"),
        pytest.param(lambda x: x[:, : math.ceil(x.shape[1] / 2)], id="math.ceil"),
        pytest.param(lambda x: x[:, : math.floor(x.shape[1] / 2)], id="math.floor"),
        pytest.param(lambda x: x[:, : round(x.shape[1] / 2)], id="round"),
        pytest.param(lambda x: x[:, : int(math.sqrt(x.shape[1]))], id="int of math.sqrt"),
        pytest.param(lambda x: x[:, : int(x.shape[1] ** 0.5)], id="int of a root"),
        pytest.param(lambda x: x[:, : math.isqrt(x.shape[1])], id="math.isqrt"),
        pytest.param(lambda x: x[:, : max(x.shape[1] - 3, 1)], id="max"),
        pytest.param(lambda x: x[:, : min(x.shape[1], 6)], id="min"),
        pytest.param(lambda x: F.pad(x, (0, 0, 0, -x.shape[1] % 8)), id="padding to a multiple"),
        pytest.param(lambda x: x.roll(x.shape[1] // 2, dims=1), id="roll by a half"),
        pytest.param(lambda x: x.view(x.shape[0], -1), id="view with -1"),
        pytest.param(lambda x: x.reshape(-1, 4).view(x.size(0), x.size(1), 2, 2).transpose(1, 2), id="view back"),
        pytest.param(lambda x: x + torch.arange(len(x))[:, None, None], id="len of a tensor"),
        pytest.param(lambda x: F.interpolate(x.mT, size=3 * x.shape[1]), id="interpolate to a size"),
        pytest.param(lambda x: F.interpolate(x.mT, scale_factor=2.5), id="interpolate by a factor"),
        pytest.param(lambda x: torch.fft.rfft(x, dim=1).abs(), id="rfft"),
    ],
)
def test_numbers_made_of_sizes_are_computed_anew(function):
    trace = follow(function, "B T 4")
    assert "==" not in str(trace.domain)
    for shape in LENGTHS:
        assert_replays(trace, function, real(*shape))


def test_a_number_that_fixes_a_size_is_a_condition():
    """A loop over an axis is unrolled: it holds for that length alone, and the trace says so."""
    trace = follow(lambda x: sum(x[:, i] for i in range(x.shape[1])), "B T 4")
    assert conditions(trace) == [f"T == {trace.sizes['T']}"]
    assert_replays(trace, lambda x: x.sum(1), real(2, trace.sizes["T"], 4))


def test_iterating_over_a_tensor_is_a_condition_on_its_length():
    trace = follow(lambda x: torch.stack([row.sum(0) for row in x]), "B T 4")
    assert conditions(trace) == [f"B == {trace.sizes['B']}"]


# Writes


def scale_the_input(x):
    x.mul_(0.5)
    return x + 1


def write_through_views(x):
    y = x + 0
    first, second = y.chunk(2, dim=-1)
    first.zero_()
    second.copy_(first + 1)
    row = y[:, 0]
    row += 2
    return y.sum(1), row


def write_by_index(x):
    y = torch.zeros_like(x)
    y[:, :2] = x[:, :2]
    y[:, 2:].add_(1.0)
    y[..., 0] = 7
    y[:, -1, :] = torch.arange(4.0)
    y[:, 0] *= 2
    y[y > 3] = 0
    return y


def write_to_out(x):
    y = torch.empty(x.shape[0], x.shape[1])
    torch.sum(x, -1, out=y)
    return y


def write_what_was_read(x):
    y = x.clone()
    before = y.sum(1)
    y.relu_()
    return before, y.sum(1)


def write_after_a_view_was_taken(x):
    flat = x.view(-1)
    x.add_(1)
    return flat * 2


def write_scattered(x):
    y = torch.zeros_like(x)
    y.scatter_(1, x.argmax(1, keepdim=True), 1.0)
    return y.index_add(1, torch.tensor([0, 1]), x[:, :2]).masked_fill_(x > 1, 5.0)


def set_data(x):
    y = x.clone()
    y.data = y.data * 2
    return y + 1


@pytest.mark.parametrize(
    "function",
    [
        scale_the_input,
        write_through_views,
        write_by_index,
        write_to_out,
        write_what_was_read,
        write_after_a_view_was_taken,
        write_scattered,
        set_data,
    ],
    ids=lambda function: function.__name__,
)
def test_writes_in_place(function):
    trace = follow(function, "B T 4")
    for shape in LENGTHS:
        assert_replays(trace, function, real(*shape))


# Values


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x * x.sum().item(), id="item of a float"),
        pytest.param(lambda x: x[:, : (x > 0).sum().item() % 3], id="item of an integer"),
        pytest.param(lambda x: x * float(x.sum()), id="float of a tensor"),
        pytest.param(lambda x: x[:, : int(x[0, :, 0].argmax()) + 1], id="int of a tensor"),
        pytest.param(lambda x: x + torch.arange(4)[int(x[0, 0].argmax())], id="an index from a value"),
        pytest.param(lambda x: x * x[0, 0].tolist()[1], id="tolist"),
        pytest.param(lambda x: x.new_full((2,), x.max().item()), id="item as a fill value"),
        pytest.param(lambda x: x.nonzero(), id="nonzero"),
        pytest.param(lambda x: x.nonzero(as_tuple=True), id="nonzero as tuple"),
        pytest.param(lambda x: torch.where(x > 0)[0], id="where of one argument"),
        pytest.param(lambda x: torch.argwhere(x > 0), id="argwhere"),
        pytest.param(lambda x: x[x > 0], id="boolean mask"),
        pytest.param(lambda x: x[x.sum(-1) > 0] @ torch.ones(4, 2), id="boolean mask of rows"),
        pytest.param(lambda x: x[:, x[0].sum(-1) > 0], id="boolean mask on one axis"),
        pytest.param(lambda x: torch.masked_select(x, x > 0).sum(), id="masked_select"),
        pytest.param(lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True), id="unique"),
        pytest.param(lambda x: torch.unique(x.round(), dim=0), id="unique along an axis"),
        pytest.param(lambda x: torch.unique_consecutive(x.round()), id="unique_consecutive"),
        pytest.param(lambda x: torch.bincount(x[0, :, 0].abs().long()), id="bincount"),
        pytest.param(lambda x: F.one_hot(x[..., 0].abs().long()), id="one_hot without a count"),
        pytest.param(lambda x: torch.repeat_interleave(x[0], x[0, :, 0].abs().long(), dim=0), id="repeat_interleave"),
        pytest.param(lambda x: x + 1 if (x.pow(2).sum() >= 0) else x, id="branch as assumed"),
    ],
)
def test_values_are_read_anew(function):
    trace = follow(function, "B T 4")
    for shape in LENGTHS:
        assert_replays(trace, function, real(*shape))


def test_two_equal_masks_made_one_after_the_other_are_taken_for_equal():
    """Nothing tells that both find the same number of rows; that they differ would raise, so they do not."""

    def forward(x):
        return x[x > 0] + (2 * x)[x > 0]

    trace = follow(forward, "B T")
    assert trace.assumptions
    assert_replays(trace, forward, real(2, 5))


def test_an_empty_result_of_a_mask_replays():
    trace = follow(lambda x: x[x > 0] * 2, "B T")
    assert_replays(trace, lambda x: x[x > 0] * 2, -torch.ones(2, 5))


def refuse_negatives(x):
    if (x < 0).any():
        raise ValueError("negative")
    return x + 1


def halve_until_small(x):
    while x.abs().max() > 1:
        x = x * 0.5
    return x


@pytest.mark.parametrize(
    ("function", "meets", "contradicts"),
    [
        pytest.param(refuse_negatives, torch.ones(2, 5), -torch.ones(2, 5), id="any"),
        pytest.param(halve_until_small, torch.ones(2, 5), 8 * torch.ones(2, 5), id="while"),
        pytest.param(lambda x: x + 1 if x.sum().item() > 0 else x - 1, None, None, id="item"),
        pytest.param(lambda x: x + 1 if float(x.sum()) > 0 else x - 1, None, None, id="float"),
        pytest.param(lambda x: x * max(x.max().item(), 0.0), None, None, id="max"),
        pytest.param(
            lambda x: x + 1 if torch.equal(x, x.abs()) else x - 1, torch.ones(2, 5), -torch.ones(2, 5), id="equal"
        ),
        pytest.param(lambda x: x + 1 if x.sum() > 0 else x - 1, None, None, id="bool"),
        pytest.param(lambda x: x + 1 if bool((x > 0).all()) and x.shape[0] > 1 else x - 1, None, None, id="and"),
    ],
)
def test_an_assumed_branch_is_asserted(function, meets, contradicts):
    """Whatever side the trace took: one of the two inputs follows it and replays, the other one is refused."""
    trace = follow(function, "B T")
    inputs = [torch.ones(2, 5), -torch.ones(2, 5)] if meets is None else [meets, contradicts]
    refused = []
    for x in inputs:
        try:
            assert_replays(trace, function, x)
        except ReplayError as error:
            assert "assumed" in str(error)
            refused.append(x)
    assert len(refused) == 1
    assert meets is None or refused == [contradicts]


def test_an_assumed_number_that_sized_a_loop_is_asserted():
    trace = follow(lambda x: sum((x for _ in range(int(x[0, 0]))), start=x), "B T:int64")
    with pytest.raises(ReplayError):
        trace.graph_module(torch.full((2, 5), 40))


# Structures


@dataclass
class Pair:
    first: torch.Tensor
    rest: list
    note: str = "none"


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: {"a": x + 1, "b": [x.mean(1), {"c": x}]}, id="dict"),
        pytest.param(lambda x: (x + 1, [x * 2], None, 3, "text"), id="tuple"),
        pytest.param(lambda x: Point(x + 1, (x,)), id="namedtuple"),
        pytest.param(lambda x: Pair(x + 1, [x * 2, x]), id="dataclass"),
        pytest.param(lambda x: (x, x.shape[1], x.shape), id="sizes"),
        pytest.param(lambda x: x, id="the input itself"),
        pytest.param(lambda x: x.topk(2, -1), id="torch's named tuple"),
        pytest.param(lambda x: torch.split(x, [1, 3], -1), id="split"),
    ],
)
def test_structures_that_a_model_returns(function):
    trace = follow(function, "B T 4")
    for shape in LENGTHS:
        assert_replays(trace, function, real(*shape))


@pytest.mark.parametrize(
    ("function", "spec", "make"),
    [
        (lambda pair: pair[0] @ pair[1][0], ("B T 4", ["4 S"]), lambda b, t: (real(b, t, 4), [real(4, 6)])),
        (
            lambda batch: batch["x"] * batch["m"],
            {"x": "B T", "m": "B T"},
            lambda b, t: {"x": real(b, t), "m": real(b, t)},
        ),
        (lambda pair: pair.first + pair.rest[0], Pair("B T", ["B T"]), lambda b, t: Pair(real(b, t), [real(b, t)])),
        (lambda point: point.x.sum(0) + point.y, Point("B T", " T"), lambda b, t: Point(real(b, t), real(t))),
    ],
    ids=["tuple", "dict", "dataclass", "namedtuple"],
)
def test_structures_that_a_model_takes(function, spec, make):
    trace = follow(function, spec)
    for b, t in [(2, 5), (1, 9), (5, 2)]:
        assert_replays(trace, function, make(b, t))


def test_keyword_inputs_replay_by_position_in_the_order_of_the_signature():
    def forward(x, *, scale, shift):
        return x * scale + shift

    trace = follow(forward, "B T", shift=" T", scale=2.0)
    assert [node.name for node in trace.inputs] == ["x", "shift"]
    assert_replays(trace, forward, real(2, 5), scale=2.0, shift=real(5))


def test_a_plain_value_other_than_the_traced_one_is_refused():
    """It may have decided how the forward ran."""

    def forward(x, how="mean"):
        return x.mean(1) if how == "mean" else x.amax(1)

    trace = follow(forward, "B T", how="mean")
    assert_replays(trace, forward, real(2, 5), how="mean")
    with pytest.raises(ReplayError, match="how"):
        trace.graph_module(real(2, 5), how="max")


def test_the_graph_reads_the_parameters_of_the_model_itself():
    model = nn.Linear(4, 3)
    graph = follow(model, "B 4").graph_module
    with torch.no_grad():
        model.weight.zero_()
        model.bias.fill_(2.0)
    assert graph(real(5, 4)).unique().tolist() == [2.0]
    assert graph.get_parameter("weight") is model.weight


def test_constants_of_the_forward_are_kept():
    table = torch.tensor([1.0, 2.0, 3.0, 4.0])
    model = Forward(lambda self, x: x * table + torch.tensor(2.0) + self.offsets[0], offsets=[torch.ones(4)])
    trace = follow(model, "B T 4")
    for shape in LENGTHS:
        assert_replays(trace, model, real(*shape))


def test_the_graph_has_the_metadata_of_fx():
    trace = follow(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), "B 4")
    (linear,) = (node for node in trace.graph.nodes if getattr(node.target, "__name__", "") == "linear")
    assert [str(size) for size in linear.meta["val"].shape] == ["B", "3"]
    assert list(linear.meta["nn_module_stack"].values())[-1] == ("0", nn.Linear)
    trace.graph.lint()


def test_a_size_that_the_code_singles_out_is_refused():
    def forward(x):
        return x + 1 if x.shape[0] != 7 or x.shape[1] != 7 else x - 1

    trace = follow(forward, "B H")
    assert_replays(trace, forward, real(3, 9))
    with pytest.raises(ReplayError):
        trace.graph_module(real(7, 7))


@pytest.mark.parametrize(("spec", "size"), [("B 2*h", 10), ("B h+1", 6), ("B 3*h-2", 7)])
def test_a_size_inside_an_expression_is_solved_for(spec, size):
    def forward(x):
        return x[:, 1:].mean(1, keepdim=True) * (x.shape[1] // 2)

    trace = follow(forward, spec)
    assert_replays(trace, forward, real(3, size))
