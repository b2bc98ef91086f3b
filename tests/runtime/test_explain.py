"""`sf.explain()`: when a note comes, that there is one, and that it costs and keeps nothing."""

import asyncio
import copy
import functools
import gc
import re
import threading
import weakref

import pytest
import torch
from torch import nn
from torch._utils import ExceptionWrapper
from torch.utils.checkpoint import checkpoint

import shapeflow as sf
from shapeflow.runtime.explain import report
from tests.runtime import failing
from tests.runtime.failing import ones


def caught(target, *inputs, kind=Exception):
    with pytest.raises(kind) as raised, sf.explain():
        target(*inputs)
    return raised.value


def notes(error):
    return getattr(error, "__notes__", [])


def test_type_and_text_stay():
    with pytest.raises(RuntimeError) as plain:
        failing.Table()(ones(2, 33, 16))
    error = caught(failing.Table(), ones(2, 33, 16))
    assert type(error) is RuntimeError
    assert str(error) == str(plain.value)
    assert len(notes(error)) == 1


def test_without_an_error_the_value_passes():
    with sf.explain() as explaining:
        assert torch.equal(failing.Table()(ones(2, 3, 16)), ones(2, 3, 16))
    with explaining, explaining:
        pass


class Decorated(nn.Module):
    @sf.explain()
    def forward(self, x):
        return x @ x


@sf.explain
class Whole(nn.Module):
    def forward(self, x):
        return x @ x


@sf.explain
def function(x):
    return x @ x


class Plain(nn.Module):
    def method(self, x):
        return x @ x


@sf.explain()
def generator(x):
    yield x
    yield x @ x


@sf.explain
async def coroutine(x):
    return x @ x


@sf.explain
async def iterator(x):
    yield x
    yield x @ x


async def consumed(x):
    return [each async for each in iterator(x)]


@pytest.mark.parametrize(
    ("target", "where"),
    [
        (Decorated(), "in Decorated"),
        (Whole(), "in Whole"),
        (nn.Sequential(nn.Identity(), Whole()), r"in 1 \(Whole of Sequential\)"),
        (function, "in function"),
        (sf.explain(functools.partial(lambda x, y: x @ y, torch.ones(2, 3))), "axis 1 of x is 3, axis 0 of y is 2"),
        (sf.explain()(Plain().method), "in Plain"),
        (lambda x: list(generator(x)), "in generator"),
        (lambda x: asyncio.run(coroutine(x)), "in coroutine"),
        (lambda x: asyncio.run(consumed(x)), "in iterator"),
    ],
)
def test_as_a_decorator(target, where):
    with pytest.raises(RuntimeError) as raised:
        target(ones(2, 3))
    (note,) = notes(raised.value)
    assert note.startswith("shapeflow: ")
    assert re.search(where, note)
    assert re.search(r"axis: axis 1 of x is 3, axis 0 of [xy] is 2", note)


def test_a_decorated_function_is_the_same_function():
    assert function.__name__ == "function"
    assert isinstance(Whole(), Whole)
    with pytest.raises(
        sf.InputError, match=r"decorates functions and classes of modules, not a Linear.*with sf.explain"
    ):
        sf.explain(nn.Linear(2, 3))
    with pytest.raises(sf.InputError, match="Empty has no forward of its own"):

        @sf.explain
        class Empty(nn.Module):
            pass


def test_nested_explains_give_one_note_with_the_whole_path():
    model = nn.Sequential(nn.Identity(), nn.Sequential(Whole()))
    error = caught(sf.explain(lambda x: model(x)), ones(2, 3))
    (note,) = notes(error)
    assert note.startswith("shapeflow: in 1.0 (Whole of Sequential)")


def test_raised_again_it_keeps_its_note():
    def again(x):
        try:
            with sf.explain():
                return Whole()(x)
        except RuntimeError as error:
            raise error

    assert len(notes(caught(again, ones(2, 3)))) == 1


def test_raised_from_another_it_tells_what_it_began_as():
    def turned(x):
        try:
            return failing.Table()(x)
        except RuntimeError as error:
            raise ValueError("bad batch") from error

    error = caught(turned, ones(2, 33, 16))
    (note,) = notes(error)
    assert type(error) is ValueError
    assert "it began as RuntimeError: The size of tensor a (33)" in note
    assert "in Table" in note
    assert "axis 1 of x is T = 33" in note
    assert not notes(error.__cause__)


def test_raised_from_one_that_has_a_note_it_points_there():
    def turned(x):
        try:
            with sf.explain():
                return failing.Table()(x)
        except RuntimeError:
            raise ValueError("bad batch")  # noqa: B904 - the case

    error = caught(turned, ones(2, 33, 16))
    (note,) = notes(error)
    assert note.startswith("shapeflow: explained in the note of the error below it, RuntimeError: The size of")
    assert len(notes(error.__context__)) == 1


def test_an_error_while_another_is_handled_is_its_own():
    def recovers(x):
        try:
            return {}["x"]
        except KeyError:
            return failing.Table()(x)

    (note,) = notes(caught(recovers, ones(2, 33, 16)))
    assert "axis 1 of x is T = 33" in note
    assert "it began as" not in note


def test_each_error_of_a_group_is_explained():
    def group():
        errors = []
        for target, inputs in ((failing.Table(), [ones(2, 33, 16)]), (function.__wrapped__, [ones(2, 3)])):
            try:
                target(*inputs)
            except RuntimeError as error:
                errors.append(error)
        raise ExceptionGroup("both", [*errors, KeyError("no tensors")])

    error = caught(group, kind=ExceptionGroup)
    first, second, third = error.exceptions
    assert "in Table" in notes(first)[0]
    assert "in function" in notes(second)[0]
    assert not notes(third)
    assert not notes(error)


@pytest.mark.parametrize(
    "target", [lambda: 1 / 0, lambda: {}["x"], lambda: int("no"), lambda: (_ for _ in ()).throw(KeyError("x"))]
)
def test_what_has_nothing_to_do_with_tensors_has_no_note(target):
    assert not notes(caught(target))


def test_interrupts_pass():
    def interrupted():
        raise KeyboardInterrupt

    assert not notes(caught(interrupted, kind=KeyboardInterrupt))


def test_a_fault_of_the_explainer_is_told_in_one_line(monkeypatch):
    def faulty(error):
        return {}["missing"]

    monkeypatch.setattr(report, "report_of", faulty)
    error = caught(failing.Table(), ones(2, 33, 16))
    assert type(error) is RuntimeError
    (note,) = notes(error)
    assert note.startswith(
        "shapeflow: no explanation, which is a fault of shapeflow's own: KeyError: 'missing' (test_ex"
    )
    assert "\n" not in note


class Hostile:
    """Whatever is asked of it raises."""

    def __getattribute__(self, name):
        raise OSError("do not touch")


class Odd(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = [held]

    def forward(self, x, thing):
        return x @ x + thing.size(self.held)


@pytest.mark.parametrize("make", [Hostile, object, lambda: None, lambda: lambda: 1])
def test_strange_values_in_frames_do_no_harm(make):
    thing = make()
    (note,) = notes(caught(Odd(thing), ones(2, 3), thing))
    assert "axis: axis 1 of x is 3, axis 0 of x is 2" in note


def test_the_note_keeps_no_tensor_alive():
    model, x = failing.Table(), ones(2, 33, 16)
    watched = weakref.ref(x)
    error = caught(model, x)
    note = notes(error)[0]
    error.__traceback__ = None
    del x, error
    gc.collect()
    assert watched() is None
    assert "2 33 16" in note


def test_the_user_s_code_is_not_run_again():
    calls = []

    class Counts(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x

        @property
        def width(self):
            calls.append(2)
            return 3

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Counts()

        def forward(self, x):
            return self.inner(x) @ x.reshape(self.inner.width, 2).T.reshape(3, 2)[:1]

    (note,) = notes(caught(Outer(), ones(2, 3)))
    assert calls == [1, 2]
    assert "self.inner(x)" in note


def test_the_state_of_the_model_and_of_chance_stays():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))

    def fails(x):
        return torch.matmul(model(x), model(x)[:, :2])

    before, state = copy.deepcopy(model.state_dict()), None
    with pytest.raises(RuntimeError):
        fails(ones(2, 3))
    after = model.state_dict()
    model.load_state_dict(before)
    torch.manual_seed(0)
    with pytest.raises(RuntimeError):
        fails(ones(2, 3))
    state = torch.random.get_rng_state()
    model.load_state_dict(before)
    torch.manual_seed(0)
    (note,) = notes(caught(fails, ones(2, 3)))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(after[name], model.state_dict()[name]) for name in after)
    assert "axis: axis 1 of model(x) is 3, axis 0 of model(x)[:, :2] is 2" in note


def test_statistics_tell_what_is_not_finite_and_never_flood():
    x = torch.tensor([[float("nan"), 1.0, float("inf"), 3.0]])
    (note,) = notes(caught(function.__wrapped__, x))
    assert "x  1 4  float32 cpu  1 of 4 NaN, 1 of 4 infinite, min 1, max 3, mean 2" in note
    (note,) = notes(caught(function.__wrapped__, torch.zeros(2000, 1000)))
    assert "x  2000 1000  float32 cpu\n" in note


@pytest.mark.parametrize(
    ("tensor", "row"),
    [
        (torch.zeros(2, 3, device="meta"), "float32 meta"),
        (torch.zeros(2, 3, dtype=torch.bfloat16), "bfloat16 cpu  min 0, max 0, mean 0"),
        (torch.zeros(2, 3, dtype=torch.complex64), "complex64 cpu"),
        (torch.zeros(2, 3, dtype=torch.bool), "bool cpu     0 of 6 True"),
        (torch.zeros(2, 0), "float32 cpu"),
        (torch.zeros(2, 3).to_sparse(), "float32 cpu"),
    ],
)
def test_all_kinds_of_tensors(tensor, row):
    (note,) = notes(caught(lambda x: x.reshape(7, 11), tensor))
    assert " ".join(row.split()) in " ".join(note.split())


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3, 4)

    def forward(self, x):
        y = self.proj(x)
        return y @ x


def test_under_activation_checkpointing():
    (note,) = notes(caught(lambda x: checkpoint(Fails(), x, use_reentrant=False), ones(2, 3)))
    assert note.startswith("shapeflow: in Fails")
    assert "axis: axis 1 of y is 4, axis 0 of x is 2" in note


def test_under_torch_compile():
    torch._dynamo.reset()
    error = caught(torch.compile(Fails(), backend="eager"), ones(2, 3))
    (note,) = notes(error)
    assert "in Fails" in note
    assert "return y @ x" in note
    assert "x  2 3  float32 cpu" in note


def test_under_torch_compile_the_line_is_the_users_though_torchs_own_module_raised():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(8, 8)

        def forward(self, x):
            return self.proj(x)

    torch._dynamo.reset()
    assert "return self.proj(x)" in notes(caught(torch.compile(Wide(), backend="eager"), ones(2, 7)))[0]


def test_an_operator_in_a_hook_is_not_the_module_around_it():
    def hook(module, inputs):
        (x,) = inputs
        return x @ ones(3, 3)

    model = nn.Sequential(nn.Linear(7, 7))
    model[0].register_forward_pre_hook(hook)
    (note,) = notes(caught(model, ones(2, 7)))
    assert re.search(r"in hook: matmul\n(?s:.*)axis: axis 1 of x is 7, axis 0 of ones\(3, 3\) is 3", note)


class OwnNotes(RuntimeError):
    @property
    def __notes__(self):
        return ("mine", 3)


class OwnAddNote(RuntimeError):
    def add_note(self, note):
        raise TypeError("no notes here")


class NoNotes(RuntimeError):
    @property
    def __notes__(self):
        raise LookupError("no notes at all")


@pytest.mark.parametrize("kind", [OwnNotes, OwnAddNote, NoNotes])
def test_an_error_that_takes_no_note_arrives_as_it_is(kind):
    class Raises(nn.Module):
        def forward(self, x):
            raise kind("the user's own")

    error = caught(Raises(), ones(2), kind=kind)
    assert error.args == ("the user's own",)


def test_a_decorated_forward_compiles_to_one_graph():
    class Fine(nn.Module):
        @sf.explain
        def forward(self, x):
            return x.sin() + 1

    torch._dynamo.reset()
    x = ones(2, 3)
    assert torch._dynamo.explain(Fine())(x).graph_break_count == 0
    assert torch.equal(torch.compile(Fine(), backend="eager", fullgraph=True)(x), x.sin() + 1)


def test_an_error_of_another_thread_is_told_from_its_text():
    try:
        Fails()(ones(2, 3))
    except RuntimeError:
        wrapped = ExceptionWrapper(where="in replica 1 on device 1")
    (note,) = notes(caught(wrapped.reraise))
    assert "tests/runtime/test_explain.py" in note
    assert "in forward" in note
    assert "return y @ x" in note


def test_the_wrapper_of_data_parallel_is_no_part_of_the_path():
    (note,) = notes(caught(nn.DataParallel(nn.Sequential(Fails())), ones(2, 3)))
    assert note.startswith("shapeflow: in 0 (Fails of Sequential)")


def test_threads_explain_their_own():
    found = {}

    def work(size):
        found[size] = notes(caught(failing.Table(), ones(2, size, 16)))

    threads = [threading.Thread(target=work, args=(size,)) for size in (21, 23, 29, 31)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(f"axis 1 of x is T = {size}" in found[size][0] for size in (21, 23, 29, 31))


def test_a_module_that_stands_in_two_places_is_told_where_it_was_called():
    shared = Fails()

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Sequential(nn.Identity(), shared), nn.Sequential(shared)

        def forward(self, x):
            return self.second(x)

    (note,) = notes(caught(Twice(), ones(2, 3)))
    assert note.startswith("shapeflow: in second.0 (Fails of Twice)")


def test_modules_in_plain_containers_and_made_on_the_way_have_a_path():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = {"a": Fails()}

        def forward(self, x, made=False):
            return Fails()(x) if made else self.experts["a"](x)

    assert notes(caught(Plain(), ones(2, 3)))[0].startswith("shapeflow: in experts['a'] (Fails of Plain)")
    assert notes(caught(Plain(), ones(2, 3), True))[0].startswith("shapeflow: in <Fails> (Fails of Plain)")


def test_recursion_is_told_once():
    class Recursive(nn.Module):
        @sf.explain
        def forward(self, x, depth=3):
            return self(x, depth - 1) if depth else x @ x

    (note,) = notes(caught(Recursive(), ones(2, 3)))
    assert "axis: axis 1 of x is 3, axis 0 of x is 2" in note


def test_what_torch_returns_as_a_named_tuple_is_computed():
    (note,) = notes(
        caught(lambda x: x @ x.sort(dim=1).values[:, :1].T @ x.max(1)[0].view(2, 1, 1)[:, :, :0], ones(2, 3))
    )
    assert "float32 cpu" in note


def test_under_vmap():
    (note,) = notes(caught(torch.func.vmap(lambda x, y: x @ y), ones(4, 2, 3), ones(4, 5)))
    assert "axis: axis 1 of x is 3, axis 0 of y is 5" in note


def test_under_ddp(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        (note,) = notes(caught(nn.parallel.DistributedDataParallel(nn.Sequential(Fails())), ones(2, 3)))
    finally:
        torch.distributed.destroy_process_group()
    assert note.startswith("shapeflow: in 0 (Fails of Sequential)")


def test_in_the_recomputation_of_a_checkpoint():
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.count = nn.Linear(3, 3), 0

        def forward(self, x):
            y = x @ x if self.count else x
            self.count += 1
            return self.lin(y)

    loss = checkpoint(Once(), ones(2, 3), use_reentrant=False).sum()
    (note,) = notes(caught(loss.backward))
    assert note.startswith("shapeflow: in Once")
    assert "axis: axis 1 of x is 3, axis 0 of x is 2" in note


def test_a_fault_in_looking_for_names_leaves_the_rest(monkeypatch):
    def faulty(*args):
        raise KeyError("lost")

    monkeypatch.setattr(report, "provenance_of", faulty)
    (note,) = notes(caught(failing.Table(), ones(2, 33, 16)))
    assert "axis: axis 1 of x is 33, axis 1 of self.pe[:, : x.shape[1]] is 20" in note
    assert "names of other tensors: not found, which is a fault of shapeflow's own: KeyError: 'lost'" in note
