"""What a user is told who gives too little, too much, or a model that cannot be followed: the fault and the way out."""

import contextlib
import inspect
import math
import re
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import shapeflow as sf
from shapeflow.errors import InputError, SpecError, TraceError
from tests.trace.following import Forward, outputs


class Scaled(nn.Module):
    def forward(self, ids, mask, scale=1.0):
        return ids * mask * scale


# Inputs


@pytest.mark.parametrize(
    ("inputs", "named", "error", "message"),
    [
        ((), {}, InputError, r"Scaled needs ids, mask: give each as .*B T:int64.*or annotate forward with jaxtyping"),
        (("B T",), {}, InputError, r"Scaled needs mask: give one as"),
        ((), {"ids": "B T"}, InputError, r"Scaled needs mask"),
        (("B T",) * 4, {}, InputError, r"Scaled takes \(ids, mask, scale\): too many positional arguments"),
        (("B T", "B T"), {"ids": "B T"}, InputError, r"multiple values for argument 'ids'"),
        (("B T",), {"maks": "B T"}, InputError, r"there is no input 'maks'; did you mean 'mask'\?"),
        (("B T", "B T"), {"xyz": "B T"}, InputError, r"there is no input 'xyz'$"),
        (("B,T", "B T"), {}, SpecError, r"(?s)separated by spaces, not commas\n    B,T\n     \^"),
        (("B T:int46", "B T"), {}, SpecError, r"(?s)int46.*\n    B T:int46\n        \^"),
        (("B T", ("B T", "B ;")), {}, SpecError, r"(?s)    B ;\n      \^"),
        (("B T", {"x": "B="}), {}, SpecError, r"    B="),
    ],
)
def test_inputs_that_do_not_fit(inputs, named, error, message):
    with pytest.raises(error, match=message):
        sf.trace(Scaled(), *inputs, **named)


def test_a_missing_input_of_a_function():
    with pytest.raises(InputError, match="<lambda> needs y"):
        sf.trace(lambda x, y: x + y, "B")


def test_two_sizes_of_one_name_that_do_not_agree():
    with pytest.raises((SpecError, InputError), match="d"):
        sf.trace(lambda x, y: x + y, "B d=4", "B d=5")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (3, r"a module or a function can be traced, not int"),
        (nn.Linear, r"Linear is a class: give an instance, as in sf\.trace\(Linear\(\.\.\.\)"),
        (None, r"not NoneType"),
    ],
)
def test_targets_that_are_none(target, message):
    with pytest.raises(InputError, match=message):
        sf.trace(target, "B 4")


def test_a_model_without_inputs():
    class Prior(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(3))

        def forward(self):
            return self.mean * 2

    with pytest.raises(InputError, match="Prior takes no inputs: there is no shape to follow"):
        sf.trace(Prior())


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: None, "NoneType"),
        (lambda x: "text", "str"),
        (lambda x: x.shape[0] + 1, "int|SymInt"),
        (lambda x: {"n": 3}, "dict"),
    ],
)
def test_an_output_without_tensors(function, kind):
    with pytest.raises(InputError, match=rf"<lambda> returns no tensor but ({kind})\b"):
        sf.trace(function, "B 4")


# A forward that raises


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(9, 2)

    def forward(self, x):
        return self.out(self.norm(x))


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), Head()

    def forward(self, x):
        return self.head(self.body(x).relu())


def test_a_forward_that_raises_tells_where_and_with_what():
    with pytest.raises(TraceError) as caught:
        sf.trace(Broken(), "B T 4")
    message = str(caught.value)
    for line in [
        r"Broken: RuntimeError in head\.out \(Linear\), at linear",
        r"    tests/trace/test_bad_input\.py:\d+: return self\.out\(self\.norm\(x\)\)",
        r"    linear\(B T 8, .*2 9.*\)",
        r"    .*\bB\b.*\bT\b.*8.*9.*2",
        r"the path so far \(3 operators.*\):",
        r"    body: linear -> B T 8",
        r"    Broken: relu -> B T 8",
        r"    head\.norm: layer_norm -> B T 8",
    ]:
        assert re.search(rf"^{line}", message, re.MULTILINE), line
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "frame #" not in message


def test_the_error_carries_the_path_so_far_as_a_trace():
    with pytest.raises(TraceError) as caught:
        sf.trace(Broken(), "B T 4")
    path = caught.value.trace
    assert [(node.kind, node.operator) for node in path.nodes] == [
        ("input", ""),
        ("operator", "linear"),
        ("operator", "relu"),
        ("operator", "layer_norm"),
    ]
    assert not path.outputs
    assert "layer_norm" in str(path)


def test_an_error_of_the_users_own_code():
    def forward(x):
        y = x * 2
        if x.shape[1] < 10**9:
            raise ValueError(f"too short: {x.shape[1]}")
        return y

    with pytest.raises(TraceError) as caught:
        sf.trace(forward, "B T")
    message = str(caught.value)
    assert re.search(r"^forward: ValueError in forward$", message, re.MULTILINE)
    assert 'raise ValueError(f"too short: {x.shape[1]}")' in message
    assert re.search(r"^    too short: T$", message, re.MULTILINE)
    assert "forward: mul -> B T" in message


def test_an_attribute_that_does_not_exist():
    model = nn.Sequential(nn.Linear(4, 4), Forward(lambda self, x: self.missing(x)))
    with pytest.raises(TraceError, match=r"Sequential: AttributeError in 1 \(Forward\)") as caught:
        sf.trace(model, "B 4")
    assert "missing" in str(caught.value)


def test_an_error_that_was_caught_by_the_model_is_none():
    def forward(x):
        try:
            y = x @ torch.ones(5, 5)
        except RuntimeError:
            y = x
        return y * 2

    assert outputs(sf.trace(forward, "B 4")) == ["B 4"]


def test_an_error_behind_one_that_was_caught_tells_of_the_second():
    def forward(x):
        with contextlib.suppress(RuntimeError):
            x = x @ torch.ones(5, 5)
        return torch.cat([x, x.sum(1)], dim=1)

    with pytest.raises(TraceError, match=r"at cat\n(?s:.*)cat\(B 4, B\)"):
        sf.trace(forward, "B 4")


@pytest.mark.parametrize(
    ("module", "spec", "line"),
    [
        (nn.Conv2d(3, 8, 7), "B 4 H W", r"conv2d\(B 4 H W, .*8 3 7 7"),
        (nn.Conv2d(3, 8, 7), "B 3 5 5", r"conv2d\(B 3 5 5"),
        (nn.BatchNorm1d(4), "B 5", r"batch_norm\(B 5"),
        (nn.LayerNorm(4), "B 5", r"layer_norm\(B 5, .*4"),
        (nn.LSTM(3, 5), "T B 4", r"lstm\(T B 4|expected 3, got 4|Expected 3, got 4"),
        (nn.MultiheadAttention(8, 2), ("T B 8", "S B 9", "S B 9"), r"8|9"),
        (nn.Bilinear(3, 4, 5), ("B 3", "B 5"), r"bilinear\(B 3, B 5"),
        (nn.Flatten(3), "B 4", r"flatten\(B 4\)"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, nn.Module) else None,
)
def test_operators_of_torch_that_refuse_their_inputs(module, spec, line):
    with pytest.raises(TraceError, match=line):
        sf.trace(module, *([spec] if isinstance(spec, str) else spec))


# Operators without a fake kernel


@pytest.fixture(scope="module")
def mystery():
    """The same operator registered in torch's two ways, each without a fake kernel."""
    library = torch.library.Library("shapeflow_tests", "DEF")
    library.define("old(Tensor x, int k) -> Tensor")
    library.impl("old", lambda x, k: x.clone(), "CPU")

    @torch.library.custom_op("shapeflow_tests::new", mutates_args=())
    def new(x: torch.Tensor, k: int) -> torch.Tensor:
        return x.clone()

    @torch.library.custom_op("shapeflow_tests::known", mutates_args=())
    def known(x: torch.Tensor, k: int) -> torch.Tensor:
        return x.new_zeros(x.shape[0], k)

    known.register_fake(lambda x, k: x.new_empty(x.shape[0], k))
    yield {"old": torch.ops.shapeflow_tests.old, "new": new, "known": known}
    library._destroy()


@pytest.mark.parametrize("name", ["old", "new"])
def test_an_operator_without_a_fake_kernel_is_named_with_the_way_to_register_one(mystery, name):
    model = Forward(lambda self, x: self.lin(mystery[name](self.lin(x), 2)), lin=nn.Linear(4, 4))
    with pytest.raises(TraceError) as caught:
        sf.trace(model, "B 4")
    message = str(caught.value)
    assert f"shapeflow_tests::{name}" in message
    assert "no fake" in message
    assert "register_fake" in message
    assert "    lin: linear -> B 4" in message
    assert re.search(r"    tests/trace/test_bad_input\.py:\d+: ", message)


def test_an_operator_with_a_fake_kernel_is_followed(mystery):
    trace = sf.trace(lambda x: mystery["known"](x, 3), "B 4")
    assert outputs(trace) == ["B 3"]


# Wrappers


def test_data_parallel_is_unwrapped():
    trace = sf.trace(nn.DataParallel(nn.Sequential(nn.Linear(4, 3))), "B 4")
    assert trace.name == "Sequential"
    assert [node.module for node in trace.nodes if node.kind == "operator"] == ["0"]


def test_compiled_models_are_unwrapped():
    trace = sf.trace(torch.compile(nn.Linear(4, 3)), "B 4")
    assert trace.name == "Linear"
    assert outputs(trace) == ["B 3"]


def test_compiled_functions_are_unwrapped():
    assert outputs(sf.trace(torch.compile(lambda x: x[:, 1:]), "B 4")) == ["B 3"]


def test_a_compiled_part_of_a_model_is_unwrapped():
    model = nn.Sequential(nn.Linear(4, 3), torch.compile(nn.Linear(3, 2)))
    trace = sf.trace(model, "B 4")
    assert outputs(trace) == ["B 2"]
    assert [node.operator for node in trace.nodes if node.kind == "operator"] == ["linear", "linear"]


@pytest.fixture
def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated, which is no matter here
        return torch.jit.script(nn.Linear(4, 3))


def test_a_scripted_model_is_refused_with_the_reason(scripted):
    with pytest.raises(
        InputError, match=r"TorchScript: its code is no longer Python.*give the module that was scripted"
    ):
        sf.trace(scripted, "B 4")


def test_a_scripted_part_of_a_model_is_named_with_the_reason(scripted):
    model = nn.Sequential(nn.Linear(4, 4), scripted)
    with pytest.raises(sf.ShapeflowError, match=r"(?s)\b1\b.*TorchScript"):
        sf.trace(model, "B 4")


# Classes that torch does not know are walked, never refused


def test_a_distribution():
    trace = sf.trace(lambda x: torch.distributions.Normal(x, x.exp()), "B 4")
    assert outputs(trace) == ["B 4", "B 4"]


def test_a_sample_of_a_distribution():
    assert outputs(sf.trace(lambda x: torch.distributions.Categorical(logits=x).sample(), "B 4")) == ["B"]


def test_dataclasses_and_objects():
    @dataclass
    class Output:
        logits: torch.Tensor
        hidden: list
        loss: torch.Tensor | None = None

    class Box:
        __slots__ = ("inside",)

        def __init__(self, inside):
            self.inside = inside

    trace = sf.trace(lambda x: (Output(x[:, :2], [x, {"x": x + 1}]), Box({"y": Box(x.sum(1))})), "B 4")
    assert outputs(trace) == ["B 2", "B 4", "B 4", "B"]


def test_an_object_that_refers_to_itself():
    class Ring:
        def __init__(self, value):
            self.value, self.next = value, self

    assert outputs(sf.trace(lambda x: Ring(x * 2), "B 4")) == ["B 4"]


def test_a_cache_of_transformers_out_and_in():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=32, vocab_size=99, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    first = sf.trace(model, "B T:int64", use_cache=True)
    assert outputs(first) == ["B T 99", *["B 2 T 16"] * 4]
    held = model(torch.zeros(3, 5, dtype=torch.int64), use_cache=True).past_key_values
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    second = sf.trace(model, torch.zeros(3, 1, dtype=torch.int64), use_cache=True, **{name: held})
    assert outputs(second) == ["3 1 99", *["3 2 6 16"] * 4]
    assert held.get_seq_length() == 5, "the caller's cache is left as it was"


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.view(x.shape[0] % 0, -1),
        lambda x: x * math.sqrt(-x.shape[1]),
        lambda x: x[:, : 1 // (x.shape[1] - x.shape[1])],
    ],
)
def test_arithmetic_on_sizes_that_fails_is_the_models_own_error(forward):
    with pytest.raises(sf.TraceError, match=r"ZeroDivisionError|ValueError"):
        sf.trace(forward, "B T")


def test_a_division_that_needs_a_larger_size_gets_one():
    trace = sf.trace(lambda x: torch.zeros(60 // (x.shape[0] // 8)), " T")
    assert [str(edge.shape) for edge in trace.outputs] == ["60//(T//8)"]


@pytest.mark.parametrize(
    "target",
    [
        nn.Linear(8, 3),
        nn.Conv1d(5, 3, 1),
        lambda x: x @ torch.ones(8, 3),
        lambda x: torch.matmul(x, torch.ones(8, 3)),
    ],
)
def test_factors_of_two_dtypes_do_not_trace_where_they_do_not_run(target):
    with pytest.raises(RuntimeError):
        target(torch.ones(2, 5, 8, dtype=torch.int64))
    with pytest.raises(TraceError, match=r"Long and Float|long int"):
        sf.trace(target, "B 5 8:int64")


def test_autocast_makes_factors_of_one_dtype():
    def cast(x):
        with torch.autocast("cpu", torch.bfloat16):
            return nn.functional.linear(x, torch.ones(3, 8, dtype=torch.bfloat16))

    assert sf.trace(cast, "B 8").outputs[0].shape.dtype == "bfloat16"
