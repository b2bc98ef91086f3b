"""What a model may be traced with: specs, tensors, structures of them, plain values, or nothing but its annotations."""

import inspect
import re
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import shapeflow as sf
from shapeflow.errors import InputError
from tests.trace.following import Forward, conditions, outputs


def given(trace):
    """The inputs as name and shape."""
    return {node.name: f"{node.outputs[0]}:{node.outputs[0].dtype}" for node in trace.inputs}


# Specs and tensors


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("B T", "B T:float32"),
        ("B T:int64", "B T:int64"),
        ("B T:bool", "B T:bool"),
        ("B 3 H W:bfloat16", "B 3 H W:bfloat16"),
        ("", ":float32"),
        (" T", "T:float32"),
        ("2*B T+1", "2*B (T + 1):float32"),
        ("B T<=512", "B T:float32"),
        ("B C=3", "B C:float32"),
        ("... 4", "x_0 4:float32"),
        ("_ 4", "x_0 4:float32"),
        ("*batch 4", "batch 4:float32"),
    ],
)
def test_a_spec_is_the_shape_of_the_input(spec, shape):
    assert given(sf.trace(lambda x: x.clone(), spec)) == {"x": shape}


def test_one_name_is_one_size_in_all_inputs():
    trace = sf.trace(lambda a, b: torch.cat([a, b], 1) @ torch.ones(7), "B 3", "B 4")
    assert outputs(trace) == ["B"]
    assert trace.free == ("B",)
    assert not trace.conditions


def test_two_names_are_two_sizes():
    with pytest.raises(sf.TraceError, match=r"add\(B, N\)\n(?s:.*)\(B\) must match .*\(N\)"):
        sf.trace(lambda a, b: a + b, "B", "N")


def test_a_real_tensor_gives_numbers():
    trace = sf.trace(lambda x: x[:, 1:], torch.zeros(5, 4, dtype=torch.int32))
    assert given(trace) == {"x": "5 4:int32"}
    assert outputs(trace) == ["5 3"]
    assert trace.free == ()
    assert str(trace.domain) == ""


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_meta_tensor_will_do(device):
    model = nn.Linear(4, 3, device=device)
    assert outputs(sf.trace(model, torch.empty(5, 4, device="meta"))) == ["5 3"]


def test_strides_of_a_real_tensor_count():
    trace = sf.trace(lambda x: x.view(-1), torch.zeros(4, 5))
    assert outputs(trace) == ["20"]
    with pytest.raises(sf.TraceError, match="view"):
        sf.trace(lambda x: x.view(-1), torch.zeros(5, 4).T)


def test_specs_and_tensors_together():
    trace = sf.trace(lambda x, y: x @ y, "B 4", torch.zeros(4, 3))
    assert outputs(trace) == ["B 3"]


def test_a_model_on_meta_is_enough():
    with torch.device("meta"):
        model = nn.Linear(4, 3)
    assert outputs(sf.trace(model, "B 4")) == ["B 3"]


# Structures

Point = namedtuple("Point", "x y")


@dataclass
class Batch:
    ids: torch.Tensor
    extra: tuple
    scale: float = 2.0


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor


@pytest.mark.parametrize(
    ("function", "value", "shapes"),
    [
        (lambda v: v[0] @ v[1][0], ("B 4", ["4 S"]), {"v_0": "B 4", "v_1_0": "4 S"}),
        (lambda v: v["a"] * v["b"]["c"], {"a": "B T", "b": {"c": " T"}}, {"v.a": "B T", "v.b.c": "T"}),
        (lambda v: v.x * v.y, Point("B T", " T"), {"v.x": "B T", "v.y": "T"}),
        (lambda v: v.ids * v.extra[0] * v.scale, Batch("B T", (" T", 3)), {"v.ids": "B T", "v.extra_0": "T"}),
        (lambda v: v.x * 2, Frozen("B T"), {"v.x": "B T"}),
        (lambda v: v[0].outer(v[1]), [torch.zeros(3), "B=3"], {"v_0": "3", "v_1": "B"}),
        (lambda v: v["a"] * v["n"], {"a": "B", "n": 3, "none": None}, {"v.a": "B"}),
    ],
    ids=["tuple", "dict", "namedtuple", "dataclass", "frozen dataclass", "tensors and specs", "plain values"],
)
def test_structures(function, value, shapes):
    trace = sf.trace(function, value)
    assert [str(node.outputs[0]) for node in trace.inputs] == list(shapes.values())
    assert trace.outputs
    read = {edge.source for edge in trace.edges}
    assert {node.name for node in trace.inputs} <= read, "every tensor of the structure is connected"


def test_the_given_structure_is_left_alone():
    batch = Batch("B T", (" T", 3))
    sf.trace(lambda v: v.ids * 2, batch)
    assert batch == Batch("B T", (" T", 3))


def test_an_object_with_real_tensors_inside():
    class Held:
        def __init__(self):
            self.x, self.many = torch.zeros(3, 4), [torch.zeros(4)]

    held = Held()
    trace = sf.trace(lambda v: v.x + v.many[0], held)
    assert outputs(trace) == ["3 4"]
    assert type(held.x) is Tensor


# The call


def test_by_position_and_by_name():
    def forward(a, b, c):
        return a + b + c

    expected = {"a": "B T:float32", "b": "T:float32", "c": ":float32"}
    for inputs, named in [
        (("B T", " T", ""), {}),
        (("B T",), {"c": "", "b": " T"}),
        ((), {"c": "", "b": " T", "a": "B T"}),
    ]:
        assert given(sf.trace(forward, *inputs, **named)) == expected


def test_keyword_only_and_positional_only():
    def forward(a, /, b, *, c):
        return a + b + c

    assert list(given(sf.trace(forward, "B", "B", c="B"))) == ["a", "b", "c"]


def test_any_number_of_inputs():
    def forward(*parts, **more):
        return torch.cat([*parts, *more.values()])

    trace = sf.trace(forward, "A 3", "B 3", last="C 3")
    assert outputs(trace) == ["(A + B + C) 3"]
    assert len(trace.inputs) == 3


def test_any_number_of_inputs_after_a_named_one():
    def forward(first, *rest):
        return torch.cat([first, *rest])

    assert outputs(sf.trace(forward, "A 3", "B 3", "C 3")) == ["(A + B + C) 3"]


def test_defaults_stay():
    def forward(x, how="mean", *, times=2, mask=None):
        assert mask is None
        return getattr(x, how)(1) * times

    trace = sf.trace(forward, "B T")
    assert given(trace) == {"x": "B T:float32"}
    assert [node.operator for node in trace.nodes if node.kind == "operator"] == ["mean", "mul"]


@pytest.mark.parametrize(("how", "operator"), [("mean", "mean"), ("sum", "sum")])
def test_text_for_a_parameter_that_takes_text_is_no_spec(how, operator):
    def forward(x, how="mean"):
        return getattr(x, how)(1)

    trace = sf.trace(forward, "B T", how=how)
    assert [node.operator for node in trace.nodes if node.kind == "operator"] == [operator]


def test_plain_values():
    def forward(x, n: int, flag, kind: str, nothing):
        assert (n, flag, kind, nothing) == (2, True, "B T", None)
        return x[:n]

    assert outputs(sf.trace(forward, "B T", 2, True, "B T", None)) == ["2 T"]


# Annotations


class Pair(NamedTuple):
    left: Float[Tensor, "B T"]
    right: Int[Tensor, " T"]


class Fields(TypedDict):
    left: Float[Tensor, "B T"]
    right: Int[Tensor, " T"]


@dataclass
class Record:
    left: Float[Tensor, "B T"]
    right: Int[Tensor, " T"]


def test_annotations_are_inputs_enough():
    def forward(x: Float[Tensor, "B T"], ids: Int[Tensor, " T"], scale: float = 2.0):
        return x * ids * scale

    assert given(sf.trace(forward)) == {"x": "B T:float32", "ids": "T:int64"}


def test_optional_inputs_with_a_default_are_left_out():
    def forward(x: Float[Tensor, "B T"], mask: Float[Tensor, " T"] | None = None):
        assert mask is None
        return x * 2

    assert list(given(sf.trace(forward))) == ["x"]


def pair(v: Pair):
    return v.left * v.right


def fields(v: Fields):
    return v["left"] * v["right"]


def record(v: Record):
    return v.left * v.right


def a_tuple(v: tuple[Float[Tensor, "B T"], Int[Tensor, " T"]]):
    return v[0] * v[1]


@pytest.mark.parametrize("function", [pair, fields, record, a_tuple], ids=lambda function: function.__name__)
def test_annotated_structures_are_inputs_enough(function):
    trace = sf.trace(function)
    assert [f"{node.outputs[0]}:{node.outputs[0].dtype}" for node in trace.inputs] == ["B T:float32", "T:int64"]
    assert outputs(trace) == ["B T"]


def test_what_annotations_leave_out_has_to_be_given():
    def forward(x: Float[Tensor, "B T"], n, *, flag: bool):
        return x[:n]

    with pytest.raises(InputError, match="forward needs n, flag"):
        sf.trace(forward)
    assert outputs(sf.trace(forward, n=2, flag=True)) == ["2 T"]


# Sizes


def test_bounds_in_specs_are_the_domain():
    trace = sf.trace(lambda x: x * 2, "B<8 T>=5<=512")
    assert str(trace.domain) == "2 <= B <= 7, 5 <= T <= 512"
    assert 2 <= trace.sizes["B"] <= 7
    assert 5 <= trace.sizes["T"] <= 512


def test_bounds_in_specs_decide():
    def forward(x):
        if x.shape[1] > 512:
            raise ValueError("too long")
        return x * 2

    assert conditions(sf.trace(forward, "B T")) == ["T <= 512"]
    assert conditions(sf.trace(forward, "B T<=512")) == []
    with pytest.raises(sf.TraceError, match="too long"):
        sf.trace(forward, "B T>=513")


def test_sizes_of_a_run_are_different_and_no_size_of_the_model():
    model = Forward(lambda self, x: self.lin(x[..., :7]), lin=nn.Linear(7, 3))
    model.widths = 11
    trace = sf.trace(model, "B T S 7")
    sizes = [trace.sizes[name] for name in "BTS"]
    assert len(set(sizes)) == 3
    assert not {3, 7, 11} & set(sizes)


def test_hints_choose_the_sizes_of_the_run():
    trace = sf.trace(lambda x: x * 2, "B T", hints={"T": 19})
    assert trace.sizes["T"] == 19
    assert trace.free == ("B", "T")


def test_a_hint_decides_which_way_a_branch_on_a_size_goes():
    def forward(x):
        return x[:, :16] if x.shape[1] > 16 else x

    long, short = (sf.trace(forward, "B T", hints={"T": t}) for t in (19, 9))
    assert (outputs(long), str(long.domain)) == (["B 16"], "B >= 2, T >= 17")
    assert (outputs(short), str(short.domain)) == (["B T"], "B >= 2, 2 <= T <= 16")


def test_images_are_large_enough_for_a_deep_stack():
    """Five halvings, then a kernel of 3: an image of 7 by 11 would be gone by then."""
    layers = [nn.Conv2d(3, 3, 3, stride=2) for _ in range(5)]
    trace = sf.trace(nn.Sequential(*layers, nn.Conv2d(3, 3, 3)), "B 3 H W")
    assert trace.free == ("B", "H", "W")
    assert trace.sizes["H"] >= 127


def test_an_image_size_that_the_head_demands_is_found():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(4 * 112 * 112, 5))
    trace = sf.trace(model, "B 3 H W")
    assert outputs(trace) == ["B 5"]
    assert trace.sizes["H"] == trace.sizes["W"] == 224


def test_a_size_that_the_code_demands_is_found():
    def forward(x):
        assert x.shape[1] == 16, "wrong length"
        return x + 1

    trace = sf.trace(forward, "B T")
    assert conditions(trace) == ["T == 16"]
    assert trace.conditions[0].location.code == 'assert x.shape[1] == 16, "wrong length"'
    assert str(trace.domain) == "B >= 2, T == 16"
    assert trace.sizes["T"] == 16


def test_a_size_that_a_layer_demands_is_found():
    trace = sf.trace(nn.Linear(40, 3), "B F")
    assert conditions(trace) == ["F == 40"]
    trace = sf.trace(nn.Sequential(nn.Flatten(), nn.Linear(40, 3)), "B 5 T")
    assert conditions(trace) == ["T == 8"]


def test_a_multiple_that_the_code_demands_is_found():
    def forward(x):
        if x.shape[1] % 32:
            raise ValueError("not a multiple of 32")
        return x.view(x.shape[0], x.shape[1] // 32, 32)

    trace = sf.trace(forward, "B T")
    assert outputs(trace) == ["B T//32 32"]
    assert conditions(trace) == ["T % 32 == 0"]
    assert re.fullmatch(r"B >= 2, T >= \d+, T % 32 == 0", str(trace.domain))


def test_a_size_that_was_given_is_not_changed():
    def forward(x):
        assert x.shape[1] == 16, "wrong length"
        return x + 1

    with pytest.raises(sf.TraceError, match="wrong length"):
        sf.trace(forward, "B T", hints={"T": 9})
    with pytest.raises(sf.TraceError, match="wrong length"):
        sf.trace(forward, "B T=9")


# At sizes, and the domain


def test_a_trace_at_sizes():
    trace = sf.trace(nn.Conv2d(3, 8, 7, stride=2, padding=3), "B 3 H W")
    at = trace.at(B=2, H=15, W=20)
    assert outputs(at) == ["2 8 8 10"]
    assert [str(node.outputs[0]) for node in at.nodes if node.kind != "output"] == ["2 3 15 20", "2 8 8 10"]
    assert outputs(trace.at(B=2)) == ["2 8 ((H - 1)//2 + 1) ((W - 1)//2 + 1)"]
    assert outputs(trace)[0].startswith("B 8 "), "the trace itself is as before"
    assert trace.outputs[0].shape.at(B=2, H=15, W=20) == (2, 8, 8, 10)


def test_at_refuses_a_name_that_is_none():
    with pytest.raises(InputError, match="Linear has no dim Q; its dims are B"):
        sf.trace(nn.Linear(4, 3), "B 4").at(B=2, Q=3)


def test_a_shape_at_sizes_wants_every_name():
    (edge,) = sf.trace(lambda x: x * 2, "B T").outputs
    with pytest.raises(InputError, match="T"):
        edge.shape.at(B=2)


@pytest.mark.parametrize(
    ("function", "spec", "domain"),
    [
        (lambda x: x * 2, "B T", "B >= 2, T >= 2"),
        (lambda x: x * 2, "B T=5", "B >= 2"),
        (lambda x: x * 2, "3 4", ""),
        (lambda x: x[:, :4] if x.shape[1] >= 4 else None, "B T", "B >= 2, T >= 4"),
        (lambda x: x if x.shape[0] <= 64 and x.shape[1] != x.shape[0] else None, "B T", ("2 <= B <= 64", "T", "!=")),
        (lambda x: x.unfold(1, 3, 1), "B T", "B >= 2, T >= 3"),
        (lambda x: x + torch.ones(9), "B T", "B >= 2, T == 9"),
        (lambda x: x.view(-1, 2), "B T", "% 2 == 0"),
        (nn.Conv2d(3, 8, 7), "B 3 H W", "B >= 2, H >= 7, W >= 7"),
        (nn.Embedding(10, 4), "B T:int64", "B >= 2, T >= 2"),
    ],
)
def test_the_domain_as_text(function, spec, domain):
    found = str(sf.trace(function, spec).domain)
    if isinstance(domain, tuple) or domain.startswith("%"):
        assert all(part in found for part in ([domain] if isinstance(domain, str) else domain))
    else:
        assert found == domain


def test_the_signature_says_what_trace_takes():
    parameters = inspect.signature(sf.trace).parameters
    assert [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY] == ["hints", "progress"]


def test_progress_is_told():
    lines = []
    sf.trace(nn.Linear(4, 3), "B 4", progress=lines.append)
    assert lines
    assert all("Linear" in line for line in lines[:1])
