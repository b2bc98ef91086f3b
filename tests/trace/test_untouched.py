"""The model, and the process around it, are left as they were: also after a trace that fails half-way."""

import collections
import math
import random

import jaxtyping
import numpy as np
import pytest
import torch
from torch import nn

import shapeflow as sf
from tests.trace.following import Forward

MODES = {"success": None, "error": RuntimeError, "interrupt": KeyboardInterrupt}


class Busy(nn.Module):
    """Changes all that a forward can change of its module; `stop` is raised half-way."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("cache", torch.zeros(4), persistent=False)
        self.seen, self.by_name, self.kinds = [1], {"a": 1}, {"x"}
        self.queue = collections.deque([1], maxlen=3)
        self.count, self.stop, self.last = 0, None, "nothing"
        self.kept = torch.ones(2)

    def forward(self, x):
        self.steps += 1
        self.cache = self.cache + x.mean()
        self.count += 1
        self.last = x
        self.fresh = x.shape
        self.seen.append(x)
        self.seen[0] = 2
        self.by_name["b"] = x
        self.by_name["a"] = 2
        self.kinds.add("y")
        self.queue.appendleft(x)
        self.kept.add_(1)
        del self.stop_was_none
        self.register_buffer("late", x)
        self.added = nn.Linear(4, 2)
        self.norm.eval()
        self.inner.train()
        self.inner[0].weight.data.zero_()
        self.inner[0].register_forward_hook(lambda *_: None)
        self.inner[0].weight.requires_grad_(False)
        x = self.norm(self.conv(x)) + torch.rand(4, 1, 1)
        random.random()
        np.random.rand()
        if self.stop is not None:
            raise self.stop("half-way")
        return self.inner(x.mean((2, 3)))


def busy(mode):
    model = Busy().train()
    model.inner.eval()
    model.stop, model.stop_was_none = MODES[mode], True
    model.conv.register_forward_hook(lambda *_: None)
    model.conv.register_forward_pre_hook(lambda *_: None)
    model.norm.register_full_backward_hook(lambda *_: None)
    return model


def trace(model, mode, spec="B 3 8 8"):
    """A trace that ends as `mode` says."""
    if mode == "success":
        return sf.trace(model, spec)
    with pytest.raises(sf.TraceError if mode == "error" else KeyboardInterrupt):
        sf.trace(model, spec)
    return None


def content(value):
    """The parts of an attribute that a forward may change, each as itself."""
    if isinstance(value, dict):
        return [(name, content(item)) for name, item in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return [content(item) for item in value]
    return sorted(value, key=str) if isinstance(value, set) else id(value)


def state(model):
    """Every attribute of every module, containers by their content; tensors by identity and by value."""
    attributes = {path: content(vars(module)) for path, module in model.named_modules()}
    tensors = {
        name: (id(tensor), tensor.clone(), tensor.requires_grad, tensor.grad, type(tensor))
        for name, tensor in [*model.named_parameters(), *model.named_buffers(), ("kept", model.kept)]
    }
    return attributes, tensors


@pytest.mark.parametrize("mode", MODES)
def test_the_model_is_as_before(mode):
    model = busy(mode)
    attributes, tensors = state(model)
    hidden = model.seen, model.by_name, model.kinds, model.queue
    trace(model, mode)
    attributes_after, tensors_after = state(model)
    assert attributes_after == attributes
    for ours, theirs in zip((model.seen, model.by_name, model.kinds, model.queue), hidden, strict=True):
        assert ours is theirs
    assert tensors_after.keys() == tensors.keys()
    for name, (identity, value, *rest) in tensors.items():
        identity_after, value_after, *rest_after = tensors_after[name]
        assert identity_after == identity, name
        assert torch.equal(value_after, value), name
        assert rest_after == rest, name


def test_a_plain_forward_changes_all_of_that():
    """The control: what the test above compares does change."""
    model = busy("success")
    attributes, tensors = state(model)
    model(torch.randn(2, 3, 8, 8))
    attributes_after, tensors_after = state(model)
    assert attributes_after[""] != attributes[""]
    assert attributes_after["norm"] != attributes["norm"]
    assert attributes_after["inner.0"] != attributes["inner.0"]
    for name in ("steps", "cache", "kept", "norm.running_mean", "norm.num_batches_tracked", "inner.0.weight"):
        changed = torch.equal(tensors_after[name][1], tensors[name][1])
        assert name.startswith("norm") or not changed, name


class Cache:
    """An object of the user's that a model keeps tensors in."""

    def __init__(self):
        self.length, self.keys = 0, [torch.zeros(1)]


HELD = {
    "a list in a dict": (lambda: {"a": [1]}, lambda held, x: held["a"].append(x), lambda held: held == {"a": [1]}),
    "a dict in a list": (lambda: [{}], lambda held, x: held[0].update(x=x), lambda held: held == [{}]),
    "a defaultdict": (
        lambda: collections.defaultdict(list),
        lambda held, x: held["x"].append(x),
        lambda held: not held and held.default_factory is list,
    ),
    "a counter": (collections.Counter, lambda held, x: held.update(["x"]), lambda held: not held),
    "an attribute of an object": (Cache, lambda held, x: setattr(held, "length", 1), lambda held: held.length == 0),
    "a list of an object": (Cache, lambda held, x: held.keys.append(x), lambda held: len(held.keys) == 1),
    "a module in a list": (
        lambda: [nn.Identity()],
        lambda held, x: setattr(held[0], "last", x),
        lambda held: not hasattr(held[0], "last"),
    ),
}


@pytest.mark.parametrize(("make", "change", "is_as_before"), HELD.values(), ids=HELD)
def test_what_a_model_holds_is_as_before(make, change, is_as_before):
    def body(self, x):
        change(self.held, x)
        raise RuntimeError("half-way")

    model = Forward(body, held=make())
    assert is_as_before(model.held)
    held = model.held
    trace(model, "error", "B")
    assert model.held is held
    assert is_as_before(held)
    change(held, torch.ones(2))
    assert not is_as_before(held), "the control: the change can be seen"


@pytest.mark.parametrize("mode", MODES)
def test_statistics_of_batch_norm_in_train_mode_stay(mode):
    model = Forward(lambda self, x: self.stop_here(self.norm(x)), norm=nn.BatchNorm2d(3)).train()

    def stop_here(x):
        if MODES[mode] is not None:
            raise MODES[mode]("half-way")
        return x

    model.stop_here = stop_here
    trace(model, mode)
    assert model.norm.num_batches_tracked == 0
    assert torch.equal(model.norm.running_mean, torch.zeros(3))
    assert torch.equal(model.norm.running_var, torch.ones(3))
    model(torch.randn(2, 3, 8, 8)) if mode == "success" else None
    assert model.norm.num_batches_tracked == (mode == "success")


@pytest.mark.parametrize("mode", MODES)
def test_modes_are_those_of_each_module(mode):
    model = busy(mode)
    before = {path: module.training for path, module in model.named_modules()}
    assert before[""] and not before["inner"] and not before["inner.1"]
    trace(model, mode)
    assert {path: module.training for path, module in model.named_modules()} == before


@pytest.mark.parametrize("mode", MODES)
def test_hooks_stay_and_none_is_left(mode):
    model = busy(mode)
    calls = []
    model.conv.register_forward_hook(lambda *_: calls.append("hook"))
    before = {path: hooks(module) for path, module in model.named_modules()}
    trace(model, mode)
    assert {path: hooks(module) for path, module in model.named_modules()} == before
    assert calls, "hooks of the user run as in any forward"


def hooks(module):
    return {name: list(value.items()) for name, value in vars(module).items() if name.endswith("hooks")}


@pytest.mark.parametrize("mode", MODES)
def test_random_numbers_go_on_as_if_nothing_had_run(mode):
    model = busy(mode)

    def draw():
        return torch.rand(3).tolist(), random.random(), np.random.rand(), torch.randint(100, (2,)).tolist()

    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(7)
    expected = draw()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(7)
    trace(model, mode)
    assert draw() == expected


def surroundings():
    """What a trace replaces while it runs: of torch, Python, jaxtyping and the user's own module."""
    names = globals()
    return {
        "nn.Module.__call__": nn.Module.__call__,
        "torch.SymInt.__hash__": torch.SymInt.__hash__,
        "jaxtyping": type(jaxtyping.AbstractArray).__instancecheck__,
        "math": dict(vars(math)),
        "builtins": [names.get(name) for name in ("isinstance", "len", "int", "float", "range")],
        "global names": sorted(names),
        "grad and autocast": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        ),
        "default dtype": torch.get_default_dtype(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "fake": type(torch.empty(2)),
    }


@pytest.mark.parametrize("mode", MODES)
def test_the_surroundings_are_as_before(mode):
    model = busy(mode)
    before = surroundings()
    trace(model, mode)
    assert surroundings() == before
    assert not {"isinstance", "len", "int", "float", "range"} & globals().keys()


def test_the_surroundings_are_ours_meanwhile():
    """The control for the test above: while the forward runs, they are not as before."""
    before, meanwhile = surroundings(), []

    def body(self, x):
        meanwhile.append(surroundings())
        return x + 1

    trace(Forward(body), "success", "B")
    changed = {name for name in before if before[name] != meanwhile[0][name]}
    assert changed >= {"nn.Module.__call__", "torch.SymInt.__hash__", "jaxtyping", "math", "builtins", "fake"}


@pytest.mark.parametrize("mode", MODES)
def test_the_model_runs_and_learns_afterwards(mode):
    model = Forward(lambda self, x: self.lin(x), lin=nn.Linear(4, 3))
    if MODES[mode] is not None:
        stopped = Forward(lambda self, x: self.inner(x) if MODES[mode]("x") is None else stop(mode), inner=model)
        trace(stopped, mode, "B 4")
    else:
        trace(model, mode, "B 4")
    model(torch.randn(2, 4)).sum().backward()
    assert model.lin.weight.grad is not None
    assert not torch.equal(model.lin.weight.grad, torch.zeros(3, 4))


def stop(mode):
    raise MODES[mode]("half-way")


def test_gradients_stay():
    model = Forward(lambda self, x: self.lin(x), lin=nn.Linear(4, 3))
    model(torch.randn(2, 4)).sum().backward()
    before = model.lin.weight.grad
    sf.trace(model, "B 4")
    assert model.lin.weight.grad is before


def test_real_inputs_are_not_written_to():
    x = torch.ones(3, 4)
    sf.trace(lambda x: x.mul_(2), x)
    assert torch.equal(x, torch.ones(3, 4))


def test_structures_given_as_inputs_are_not_written_to():
    batch = {"x": torch.ones(3, 4), "rows": [torch.ones(2)]}
    x, rows = batch["x"], batch["rows"]

    def forward(batch):
        batch["y"] = batch.pop("x") * 2
        batch["rows"].append(batch["y"])
        return batch["y"]

    sf.trace(forward, batch)
    assert list(batch) == ["x", "rows"]
    assert batch["x"] is x
    assert batch["rows"] is rows
    assert len(rows) == 1


def test_modules_kept_in_a_plain_list_are_left_alone():
    hidden = nn.BatchNorm1d(4).train()
    model = Forward(lambda self, x: self.convs[0](x), convs=[hidden])
    weight = hidden.weight
    sf.trace(model, "B 4")
    assert hidden.weight is weight
    assert hidden.num_batches_tracked == 0
    assert torch.equal(hidden.running_mean, torch.zeros(4))


def test_modules_that_a_function_calls_are_left_alone():
    norm = nn.BatchNorm1d(4).train()
    sf.trace(lambda x: norm(x), "B 4")
    assert norm.num_batches_tracked == 0
    assert torch.equal(norm.running_mean, torch.zeros(4))


def test_lazy_modules_stay_lazy():
    model = nn.Sequential(nn.LazyLinear(3))
    sf.trace(model, "B 4")
    assert isinstance(model[0], nn.LazyLinear)
    assert nn.parameter.is_lazy(model[0].weight)
    model(torch.randn(2, 7))
    assert model[0].weight.shape == (3, 7)


def test_an_outer_no_grad_and_autocast_stay():
    with torch.no_grad(), torch.autocast("cpu"):
        sf.trace(nn.Linear(4, 3), "B 4")
        assert not torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled()


def test_many_traces_leave_no_more_behind_than_one():
    model = nn.Linear(4, 3)
    call = nn.Module.__call__
    for _ in range(3):
        sf.trace(model, "B 4")
        with pytest.raises(sf.TraceError):
            sf.trace(model, "B 5")
    assert nn.Module.__call__ is call
    assert model(torch.randn(2, 4)).shape == (2, 3)


def test_a_hook_that_a_forward_removes_is_put_back():
    class Once(nn.Module):
        def forward(self, x):
            handle.remove()
            self.register_forward_hook(lambda *_: None)
            return x + 1

    seen = []
    model = Once()
    handle = model.register_forward_pre_hook(lambda *_: seen.append(1))
    before = dict(model._forward_pre_hooks), dict(model._forward_hooks)
    sf.trace(model, "B")
    assert (dict(model._forward_pre_hooks), dict(model._forward_hooks)) == before
    model(torch.ones(2))
    assert seen == [1, 1]
