"""The case modules: models as people write them that trip tools up. Each file says what is right (`EXPECT`)."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import shapeflow as sf
from shapeflow.torch_private import real_module
from tests.trace.following import operators, outputs, same

FOLDER = Path(__file__).parents[1] / "cases" / "modules"
CASES = sorted(path.stem for path in FOLDER.glob("*.py"))
RAISING = [case for case in CASES if "raises" in case]
WHOLE = [case for case in CASES if case not in RAISING]


def load(case):
    name = f"case_{case}"
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{case}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def case(request):
    torch.manual_seed(0)
    module = load(request.param)
    return (*module.make(), module.EXPECT)


def test_all_twenty_are_here():
    assert len(CASES) == 20


@pytest.mark.parametrize("case", WHOLE, indirect=True)
def test_output_shapes(case):
    model, args, kwargs, expect = case
    trace = sf.trace(model, *args, **kwargs)
    found = [edge.shape for edge in trace.outputs]
    fresh = dict.fromkeys(trace.fresh, expect["out"][0][0])
    assert [shape.at(**fresh) for shape in found] == expect["out"]


@pytest.mark.parametrize("case", WHOLE, indirect=True)
def test_parameters_and_calls(case):
    model, args, kwargs, expect = case
    modules = sf.trace(model, *args, **kwargs).modules
    assert modules[""].parameters == expect["params"]
    for path, calls in expect.get("calls", {}).items():
        assert modules[path].called == calls


@pytest.mark.parametrize("case", [each for each in WHOLE if "lazy" not in each], indirect=True)
def test_replay(case):
    model, args, kwargs, _ = case
    model.eval()
    graph = sf.trace(model, *args, **kwargs).graph_module
    ours, theirs = clone(args), clone(args)
    with torch.no_grad():
        same(graph(*ours, **kwargs), model(*theirs, **kwargs))
    same(ours, theirs)


def clone(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: clone(item) for name, item in value.items()}
    return tuple(map(clone, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_untouched(case):
    model, args, kwargs, expect = case
    before = everything(model)
    inputs = clone(args)
    try:
        sf.trace(model, *args, **kwargs)
    except sf.TraceError:
        assert "raises" in expect
    assert everything(model) == before
    same(args, inputs)


def everything(model):
    tensors = [*model.named_parameters(), *model.named_buffers()]
    lazy = torch.nn.parameter.is_lazy
    return {
        "modes": [module.training for module in model.modules()],
        "attributes": [{name: id(value) for name, value in vars(module).items()} for module in model.modules()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "tensors": [(name, id(tensor), "lazy" if lazy(tensor) else tensor.tolist()) for name, tensor in tensors],
        "random": torch.get_rng_state().tolist(),
    }


@pytest.mark.parametrize("case", RAISING, indirect=True)
def test_an_error_names_where_it_arose(case):
    model, args, kwargs, expect = case
    with pytest.raises(sf.TraceError, match=rf"{expect['raises']} in {expect['raises_at']} \(Linear\)"):
        sf.trace(model, *args, **kwargs)


@pytest.mark.parametrize("case", ["26_same_tensor_used_twice"], indirect=True)
def test_every_reader_of_an_input_has_an_edge(case):
    model, args, kwargs, expect = case
    trace = sf.trace(model, *args, **kwargs)
    (name,) = (node.name for node in trace.inputs)
    assert sum(edge.source == name for edge in trace.edges) == expect["input_fanout"]
    last = trace.nodes[-2]
    assert [edge.argument for edge in trace.edges if edge.target == last.name] == [0, 1]


@pytest.mark.parametrize("case", ["16_inplace_ops"], indirect=True)
def test_writes_in_place_connect_input_and_output(case):
    model, args, kwargs, _ = case
    trace = sf.trace(model, *args, **kwargs)
    reached = {trace.inputs[0].name}
    for edge in trace.edges:
        if edge.source in reached:
            reached.add(edge.target)
    assert {node.name for node in trace.nodes if node.operator in ("linear", "relu", "setitem", "add")} <= reached
    assert "output" in reached


@pytest.mark.parametrize("case", ["31_data_dependent_branch"], indirect=True)
def test_rows_kept_by_value_are_a_fresh_dim(case):
    trace = sf.trace(case[0], "N 4")
    assert outputs(trace) == ["u0 4"]
    assert operators(trace).count("linear") == 1
    assert [str(assumption) for assumption in trace.assumptions] == ["gt(...) is True"]


@pytest.mark.parametrize(
    "case", [each for each in WHOLE if each[:2] in ("01", "02", "03", "10", "11", "21", "23")], indirect=True
)
def test_with_a_symbolic_batch(case):
    model, args, _, expect = case
    specs = [f"B {' '.join(map(str, x.shape[1:]))}:{str(x.dtype).removeprefix('torch.')}" for x in args]
    trace = sf.trace(model, *specs)
    assert [shape.at(B=expect["out"][0][0]) for shape in (edge.shape for edge in trace.outputs)] == expect["out"]
    assert not trace.conditions


def test_a_wrapped_model_is_the_model_inside():
    model, args, _ = load("09_dataparallel_wrapped").make()
    trace = sf.trace(model, *args)
    assert trace.name == type(real_module(model)).__name__ == "Sequential"
    assert not any("module" in path for path in trace.modules)
