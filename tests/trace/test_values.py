"""Values that do not exist while tracing: which branch is taken, what is assumed, which dims are fresh."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import shapeflow as sf
from tests.trace.following import conditions, operators, outputs


def assumed(trace):
    return [str(assumption) for assumption in trace.assumptions]


# Branches: the side that raises is avoided


def if_raises(x):
    if torch.isnan(x).any():
        raise ValueError("NaN")
    return x + 1


def if_not_raises(x):
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    return x + 1


def else_raises(x):
    if (x > 0).all():
        y = x + 1
    else:
        raise ValueError("not positive")
    return y


def asserted(x):
    assert (x > 0).all(), "not positive"
    return x + 1


def assert_not(x):
    assert not (x < 0).any()
    return x + 1


def joined_with_and(x):
    if x.shape[0] > 1 and (x < 0).any():
        raise ValueError("negative")
    return x + 1


def joined_with_or(x):
    if x.dim() == 1 or not (x > 0).all():
        raise ValueError("not positive")
    return x + 1


def over_several_lines(x):
    if (
        x.shape[0] > 1
        and torch.isnan(x).any()
    ):  # fmt: skip
        raise ValueError("NaN")
    return x + 1


def raises_elsewhere(x):
    if x.max() > 1:
        refuse()
    return x + 1


def raises_elsewhere_unless(x):
    if x.max() > 1:
        return x + 1
    return refuse()


def raises_later(x):
    answer = bool(x.max() > 1)
    if answer:
        raise ValueError("too large")
    return x + 1


def refuse():
    raise ValueError("refused")


def with_an_item(x):
    if x.sum().item() > 0:
        refuse()
    return x + 1


def with_the_other_item(x):
    if x.sum().item() < 0:
        refuse()
    return x + 1


def with_two_branches(x):
    if x.max() > 1:
        refuse()
    if x.min() < 0:
        refuse()
    return x + 1


@pytest.mark.parametrize(
    ("function", "answers"),
    [
        (if_raises, ["any(...) is False"]),
        (if_not_raises, ["all(...) is True"]),
        (else_raises, ["all(...) is True"]),
        (asserted, ["all(...) is True"]),
        (assert_not, ["any(...) is False"]),
        (joined_with_and, ["any(...) is False"]),
        (joined_with_or, ["all(...) is True"]),
        (over_several_lines, ["any(...) is False"]),
        (raises_elsewhere, ["gt(...) is False"]),
        (raises_elsewhere_unless, ["gt(...) is True"]),
        (raises_later, ["gt(...) is False"]),
        (with_two_branches, ["gt(...) is False", "lt(...) is False"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_side_that_raises_is_avoided(function, answers):
    trace = sf.trace(function, "B T")
    assert outputs(trace) == ["B T"]
    assert operators(trace)[-1] == "add"
    assert assumed(trace) == answers
    assert not trace.conditions


@pytest.mark.parametrize("function", [with_an_item, with_the_other_item], ids=lambda function: function.__name__)
def test_a_comparison_of_an_item_is_a_branch_like_any_other(function):
    trace = sf.trace(function, "B T")
    assert outputs(trace) == ["B T"]
    assert len(trace.assumptions) == 1


def test_an_assumption_tells_its_line():
    (assumption,) = sf.trace(if_raises, "B T").assumptions
    assert assumption.location.file.endswith("test_values.py")
    assert assumption.location.code == "if torch.isnan(x).any():"


def test_where_both_sides_raise_the_error_is_that_of_the_first_try():
    def forward(x):
        if (x > 0).all():
            raise ValueError("first")
        raise KeyError("second")

    with pytest.raises(sf.TraceError) as caught:
        sf.trace(forward, "B")
    with pytest.raises((ValueError, KeyError)) as alone:
        forward(torch.ones(3) * (1 if "first" in str(caught.value) else -1))
    assert type(caught.value.__cause__) is alone.type
    assert str(alone.value) in str(caught.value)


def test_an_error_that_no_branch_avoids_is_reported_as_it_was():
    def forward(x):
        y = x + 1 if x.sum() > 0 else x - 1
        raise RuntimeError(f"always, {y.dim()}")

    with pytest.raises(sf.TraceError, match="always, 1"):
        sf.trace(forward, "B")


def test_an_operator_that_fails_is_not_hidden_by_another_branch():
    """A wrong width is the model's fault whichever way the branch goes."""

    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 3)

        def forward(self, x):
            if (x > 0).all():
                return self.lin(x[:, :3])
            return x

    with pytest.raises(sf.TraceError, match="lin"):
        sf.trace(Broken(), "B 4")


# Loops


def halve(x):
    while x.abs().max() > 1:
        x = x * 0.5
    return x + 1


def halve_and_break(x):
    while True:
        x = x * 0.5
        if x.abs().max() < 1:
            break
    return x + 1


def halve_for_long(x):
    for _ in range(10):
        if (x < 1).all():
            break
        x = x * 0.5
    return x + 1


def double_until(x):
    while not (x > 1).any():
        x = x * 2
    return x + 1


@pytest.mark.parametrize(
    "function", [halve, halve_and_break, halve_for_long, double_until], ids=lambda function: function.__name__
)
@pytest.mark.timeout(20)
def test_loops_on_values_end(function):
    trace = sf.trace(function, "B T")
    assert outputs(trace) == ["B T"]
    assert len(operators(trace)) < 40


# Fresh dims


@pytest.mark.parametrize(
    ("function", "shapes", "origins"),
    [
        pytest.param(lambda x: x.nonzero(), ["u0 2"], ["nonzero"], id="nonzero"),
        pytest.param(lambda x: x.nonzero(as_tuple=True), ["u0", "u0"], ["nonzero"], id="nonzero as tuple"),
        pytest.param(lambda x: torch.where(x > 0), ["u0", "u0"], ["nonzero"], id="where"),
        pytest.param(lambda x: x[x > 0], ["u0"], ["nonzero"], id="boolean index"),
        pytest.param(lambda x: x[x[:, 0] > 0], ["u0 T"], ["nonzero"], id="boolean index of rows"),
        pytest.param(lambda x: torch.masked_select(x, x > 0), ["u0"], ["masked_select"], id="masked_select"),
        pytest.param(lambda x: torch.unique(x), ["u0"], ["unique"], id="unique"),
        pytest.param(
            lambda x: torch.unique(x, return_inverse=True, return_counts=True),
            ["u0", "B T", "u0"],
            ["unique"],
            id="counts",
        ),
        pytest.param(lambda x: torch.unique(x, dim=1), ["B u0"], ["unique"], id="unique along an axis"),
        pytest.param(lambda x: torch.unique_consecutive(x), ["u0"], ["unique"], id="unique_consecutive"),
        pytest.param(lambda x: x.new_zeros(x.sum().long().item()), ["u0"], ["item"], id="item"),
        pytest.param(lambda x: (x[x > 0], x[x > 1]), ["u0", "u1"], ["nonzero"] * 2, id="two masks"),
        pytest.param(lambda x: F.one_hot(x.long()), ["B T u0"], ["one_hot"], id="one_hot"),
        pytest.param(lambda x: torch.bincount(x[0].long()), ["u0"], ["bincount"], id="bincount"),
    ],
)
def test_sizes_that_only_values_decide_are_fresh_dims(function, shapes, origins):
    trace = sf.trace(function, "B T")
    found = outputs(trace)
    assert found[0].replace("(u0 + 1)", "u0") == shapes[0]  # one_hot counts from the largest class
    assert found[1:] == shapes[1:]
    assert list(trace.fresh.values()) == origins
    assert trace.free == ("B", "T")
    assert str(trace.domain) == "B >= 2, T >= 2"


def test_boxes_after_nms_are_a_fresh_dim():
    torchvision = pytest.importorskip("torchvision")
    trace = sf.trace(lambda boxes: boxes[torchvision.ops.nms(boxes, boxes[:, 0], 0.5)], "N 4")
    assert outputs(trace) == ["u0 4"]
    assert trace.fresh == {"u0": "nms"}


def test_the_same_mask_used_twice_gives_the_same_dim():
    def forward(x):
        mask = x > 0
        return x[mask] + (2 * x)[mask], mask.nonzero(), torch.masked_select(x, mask)

    trace = sf.trace(forward, "B T")
    assert outputs(trace) == ["u0", "u0 2", "u0"]
    assert not trace.conditions


def test_a_mask_that_was_written_to_is_another_one():
    def forward(x):
        mask = x > 0
        before = x[mask]
        mask[:, 0] = True
        return before, x[mask]

    assert outputs(sf.trace(forward, "B T")) == ["u0", "u1"]


def test_a_mask_written_through_a_view_is_another_one():
    def forward(x):
        mask = x > 0
        before = x[mask]
        mask[0].fill_(True)
        return before, x[mask]

    assert outputs(sf.trace(forward, "B T")) == ["u0", "u1"]


def test_what_torch_asks_of_a_fresh_dim_for_its_own_sake_is_no_condition():
    """Is it 1, so that it broadcasts? Is it 0, so that nothing is to do? Both are well with any number of rows."""
    trace = sf.trace(lambda x: (x[x > 0] * 2 + 1).sum(), "B T")
    assert conditions(trace) == []
    trace = sf.trace(lambda x: torch.ones(4, 2).T @ x[x.sum(-1) > 0].mT, "B 4")
    assert outputs(trace) == ["2 u0"]
    assert conditions(trace) == []


def test_values_that_are_known_are_read():
    """Constants, parameters and buffers that are not written to have values."""

    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("lengths", torch.tensor([2, 3]))
            self.gate = nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            parts = x.split(self.lengths.tolist(), dim=1)
            return parts[1] * 2 if self.gate > 0 and bool(torch.tensor(True)) else parts[0]

    trace = sf.trace(Scheduled(), "B 5")
    assert outputs(trace) == ["B 3"]
    assert not trace.assumptions
    assert not trace.fresh


def test_a_buffer_that_was_written_to_has_no_known_value():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.tensor(0))

        def forward(self, x):
            self.count += 1
            if self.count > 5:
                raise ValueError("called too often")
            return x * 2

    trace = sf.trace(Counting(), "B")
    assert assumed(trace) == ["gt(...) is False"]


def test_a_numpy_array_of_a_traced_tensor_is_refused_with_the_reason():
    with pytest.raises(sf.TraceError, match="numpy"):
        sf.trace(lambda x: torch.from_numpy(x.numpy()), "B")


def test_a_size_can_be_written_into_a_text():
    def forward(x):
        assert f"{x.shape[0]}" and f"{x.shape[1]:03d}"
        return x

    assert conditions(sf.trace(forward, "B T")) == []


def test_a_comparison_of_sizes_is_a_flag_of_an_operator():
    def attend(x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[2] > 1)

    assert str(sf.trace(attend, "B h T d").outputs[0].shape) == "B h T d"


def test_counts_of_a_given_number_of_kinds():
    def counts(x, n_kinds):
        return torch.bincount(x, minlength=n_kinds.shape[0]) * n_kinds

    traced = sf.trace(counts, "N:int64", "n_kinds:int64")
    assert str(traced.outputs[0].shape) == "n_kinds"
    kinds = torch.tensor([2, 3, 5])
    assert torch.equal(traced.graph_module(torch.tensor([0, 2, 2, 1]), kinds), torch.tensor([2, 3, 10]))
