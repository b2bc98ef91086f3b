"""Names across methods, and calls that nest, recur, run side by side, stop half-way or fail inside."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from jaxtyping import AnnotationError, Float, TypeCheckError
from torch import Tensor, nn

import shapeflow as sf

ROW = torch.zeros(2, 3)


@sf.typed
class Net(nn.Module):
    """Methods that share B, T and S."""

    def __init__(self, depth: int = 0) -> None:
        super().__init__()
        self.depth, self.inner = depth, Net(depth - 1) if depth else None

    def forward(self, x: Float[Tensor, "B T d"], run: Any = None, *more: Float[Tensor, "B S d"]) -> Any:
        return x if run is None else run(self, x, *more)

    def step(self, x: Float[Tensor, "B T d"]) -> Tensor:
        return x

    def other(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
        return x[:, 1:] if x.shape[1] == 11 else x

    def made(self, n: int) -> Float[Tensor, " T"]:
        return torch.zeros(n)

    def outer(self, x: Float[Tensor, "B T d"]) -> Tensor:
        return self(x[:, 1:])


X = torch.zeros(2, 5, 4)
AGREE: dict[str, Callable[[Net], Any]] = {
    "the same": lambda net: net(X, lambda self, x: self.other(self.step(x))),
    "another width is another name": lambda net: net(X, lambda self, x: self.step(x)),
    "one helper, two sizes, of two names": lambda net: net(
        X, lambda self, x, m: (self.step(x), self.step(m), self.step(x)), torch.zeros(2, 7, 4)
    ),
    "the other of two names first": lambda net: net(
        X, lambda self, x, m: (self.step(m), self.other(x)), torch.zeros(2, 7, 4)
    ),
    "two calls": lambda net: (net(X, lambda self, x: self.step(x)), net(X[:, 1:], lambda self, x: self.step(x))),
    "a call of the module opens its own": lambda net: net.outer(X),
    "another instance": lambda net: net(X, lambda self, x: Net().step(x[:, 1:])),
    "a layer of the same class": lambda net: net(X, lambda self, x: self.inner(x[:, 1:], lambda a, b: a.step(b))),
    "itself again": lambda net: net(X, lambda self, x: self(x[:, 1:], lambda a, b: a.step(b))),
    "a method, after the call": lambda net: (net(X), net.step(X[:, 1:])),
    "a result": lambda net: net(X, lambda self, x: self.made(5)),
}
PART = {
    "an argument": (
        lambda net: net(X, lambda self, x: self.step(x[:, 1:])),
        "T is 4 in Net.step .* but 5 in Net.forward",
    ),
    "the second of two": (
        lambda net: net(X, lambda self, x: (self.step(x), self.other(x[:, 2:]))),
        r"T is 3 in Net.other \(axis 1 of x\), but 5 in Net.(forward|step) \(axis 1 of x\), in one call of the same",
    ),
    "a result": (
        lambda net: net(X, lambda self, x: self.made(6)),
        r"T is 6 in Net.made \(axis 0 of the result\), but 5",
    ),
    "two axes the other way round": (
        lambda net: net(X, lambda self, x: self.step(x.transpose(0, 1))),
        "B is 5 in Net.step .* but 2 in Net.forward",
    ),
    "deep inside": (
        lambda net: net(X, lambda self, x: self.inner(x, lambda a, b: a.step(b[:1]))),
        "B is 1 in Net.step .* but 2 in Net.forward",
    ),
    "behind a layer": (
        lambda net: net(X, lambda self, x: (self.inner(x[:, 1:]), self.step(x[:, 1:]))),
        "T is 4 in Net.step .* but 5 in Net.forward",
    ),
}


@pytest.mark.parametrize("run", AGREE.values(), ids=AGREE)
def test_methods_that_agree(run: Callable[[Net], Any]) -> None:
    net = Net(1)
    for _ in range(2):
        run(net)


@pytest.mark.parametrize(("run", "message"), PART.values(), ids=PART)
def test_methods_that_part(run: Callable[[Net], Any], message: str) -> None:
    net = Net(1)
    for _ in range(2):
        with pytest.raises(TypeCheckError, match=message):
            run(net)
    for agree in AGREE.values():  # nothing of the failed call is left
        agree(net)


def test_methods_that_may_part() -> None:
    @sf.typed(across_methods=False)
    class Free(nn.Module):
        def forward(self, x: Float[Tensor, "B T"]) -> Tensor:
            return self.step(x[:, 1:])

        def step(self, x: Float[Tensor, "B T"]) -> Tensor:
            return x

    assert Free()(ROW).shape == (2, 2)


def test_a_subclass_and_what_it_inherits() -> None:
    @sf.typed
    class Sub(Net):
        def forward(self, x: Float[Tensor, "B T d"], run: Any = None, *more: Tensor) -> Any:
            return self.step(super().forward(x, run, *more))

    assert Sub()(X).shape == X.shape
    with pytest.raises(TypeCheckError, match=r"T is 4 in Sub.step .* but 5 in Sub.forward"):
        Sub()(X, lambda self, x: x[:, 1:])


def test_recursion_with_a_size_that_shrinks() -> None:
    @sf.typed
    def halved(x: Float[Tensor, "B T"]) -> Float[Tensor, "B _"]:
        return x if x.shape[1] < 2 else halved(x[:, : x.shape[1] // 2])

    for _ in range(2):
        assert halved(torch.zeros(3, 16)).shape == (3, 1)

    @sf.typed
    def wrong(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return x if x.shape[1] < 2 else wrong(x[:, 1:])

    with pytest.raises(TypeCheckError, match=r"the result of wrong .* axis 1 is 1, and T is 2"):
        wrong(torch.zeros(3, 16))


@sf.typed
def inner(x: Float[Tensor, " T"]) -> Float[Tensor, " T"]:
    return x


@sf.typed
def outer(x: Float[Tensor, " T"], then: Callable[[Tensor], Any]) -> Float[Tensor, " T"]:
    then(x)
    assert isinstance(x, Float[Tensor, " T"]) and not isinstance(torch.zeros(len(x) + 1), Float[Tensor, " T"])
    return x


def test_nested_calls_have_names_of_their_own() -> None:
    for _ in range(3):
        outer(torch.zeros(5), lambda x: inner(torch.zeros(9)))
        outer(torch.zeros(5), lambda x: outer(torch.zeros(3), inner))


def test_an_error_inside_leaves_nothing_behind() -> None:
    def fails(x: Tensor) -> None:
        inner(torch.zeros(9))
        raise ZeroDivisionError("the user's own")

    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match=r"^the user's own$"):
            outer(torch.zeros(5), fails)
        with pytest.raises(TypeCheckError):
            outer(torch.zeros(5), lambda x: inner(ROW))
        assert outer(torch.zeros(4), inner).shape == (4,)


def test_errors_inside_a_check_are_not_taken_for_a_misfit() -> None:
    @sf.typed
    def early(x: Float[Tensor, " 2*T"], y: Float[Tensor, " T"]) -> None: ...

    class Broken:
        def __len__(self) -> int:
            raise OSError("the disk is gone")

    class Hook(type):
        def __instancecheck__(cls, value: object) -> bool:
            raise OSError("the disk is gone")

    class Asked(metaclass=Hook): ...

    for _ in range(2):
        with pytest.raises(AnnotationError, match=r"2\*T"):
            early(torch.zeros(4), torch.zeros(2))
        assert inner(torch.zeros(3)).shape == (3,)
    with pytest.raises((OSError, sf.EnforceError)):
        sf.typed(_asks(Asked))(3)
    with pytest.raises(TypeCheckError, match=r"parameter 'x' of inner .* it is a Broken"):
        inner(Broken())  # type: ignore[arg-type]


def _asks(kind: Any) -> Callable[[Any], None]:
    def asked(x: kind) -> None: ...

    return asked


def test_an_attribute_of_the_class_gives_what_jaxtyping_misses() -> None:
    @sf.typed
    class Wide(nn.Module):
        T = 3

        def forward(self, x: Float[Tensor, " 2*T"], y: Float[Tensor, " T"]) -> None: ...

    Wide()(torch.zeros(6), torch.zeros(3))


def test_threads_share_no_names() -> None:
    net, barrier = Net(1), threading.Barrier(4)

    def run(size: int) -> None:
        x = torch.zeros(size, size + 1, 4)
        for turn in range(60):
            wait = barrier.wait if turn < 5 else (lambda: None)
            net(x, lambda self, y, wait=wait: (wait(), self.step(y), self.other(y), outer(torch.zeros(size), inner)))
            with pytest.raises(TypeCheckError, match=f"T is {size} in Net.step .* but {size + 1} in Net.forward"):
                net(x, lambda self, y: self.step(y[:, 1:]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, (2, 3, 5, 7)))


def test_switched_off_in_one_thread_alone() -> None:
    inside, done = threading.Event(), threading.Event()

    def off() -> int:
        with sf.unenforced():
            inside.set()
            done.wait(20)
            return inner(ROW).dim()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(off)
        inside.wait(20)
        with pytest.raises(TypeCheckError):
            inner(ROW)
        done.set()
        assert other.result() == 2
    with pytest.raises(TypeCheckError):
        inner(ROW)


# Generators and coroutines


@sf.typed
def windows(x: Float[Tensor, "B T"], n: int, bad: int = -1) -> Iterator[Float[Tensor, "B n_w"]]:
    for at in range(x.shape[1] - n + 1):
        yield x[:, at : at + n + (at == bad)]


@sf.typed
def echo(x: Float[Tensor, " T"]) -> Generator[Float[Tensor, " T"], Tensor, str]:
    try:
        while x is not None:
            try:
                x = yield x
            except KeyError:
                x = torch.full_like(x, 9.0) if x is not None else x
    finally:
        CLOSED.append(True)
    return "end"


CLOSED: list[bool] = []


def test_generators_are_checked_item_by_item() -> None:
    assert inspect.isgeneratorfunction(windows)
    for _ in range(2):
        assert len(list(windows(torch.zeros(2, 7), 3))) == 5
        with pytest.raises(TypeCheckError, match=r"parameter 'x' of windows .* 1 axes|it has 1 axis, not 2"):
            next(windows(torch.zeros(2), 3))
        got: list[Tensor] = []
        with pytest.raises(TypeCheckError, match=r"the result of windows .* axis 1 is 4, and n_w is 3"):
            got.extend(each for each in windows(torch.zeros(2, 7), 3, bad=2))


def test_generators_interleaved() -> None:
    one, other = windows(torch.zeros(2, 7), 3), windows(torch.zeros(5, 9), 4)
    for _ in range(3):
        assert next(one).shape == (2, 3)
        assert next(other).shape == (5, 4)
        assert inner(torch.zeros(11)).shape == (11,)


def test_a_generator_is_sent_to_thrown_into_and_closed() -> None:
    CLOSED.clear()
    run = echo(torch.zeros(3))
    assert next(run).sum() == 0
    assert run.send(torch.ones(3)).sum() == 3
    assert run.throw(KeyError()).sum() == 27
    with pytest.raises(TypeCheckError):
        run.send(torch.ones(4))
    assert CLOSED == [True]
    run = echo(torch.zeros(3))
    next(run)
    with pytest.raises(StopIteration) as stop:
        run.send(None)  # type: ignore[arg-type]
    assert stop.value.value == "end"
    run = echo(torch.zeros(3))
    next(run)
    run.close()
    assert len(CLOSED) == 3


def test_a_context_manager_of_a_generator() -> None:
    @contextlib.contextmanager
    @sf.typed
    def held(x: Float[Tensor, " T"]) -> Iterator[Float[Tensor, " T"]]:
        yield x

    with held(torch.zeros(3)) as x:
        assert x.shape == (3,)
    with pytest.raises(ZeroDivisionError), held(torch.zeros(3)):
        raise ZeroDivisionError
    with pytest.raises(TypeCheckError), held(ROW):
        raise AssertionError("not reached")


@sf.typed
async def slow(x: Float[Tensor, " T"], grow: int = 0) -> Float[Tensor, " T"]:
    await asyncio.sleep(0)
    inner(torch.zeros(11))
    await asyncio.sleep(0)
    return torch.zeros(len(x) + grow)


@sf.typed
async def stream(x: Float[Tensor, "B T"], bad: bool = False) -> AsyncIterator[Float[Tensor, " B"]]:
    for column in x.T:
        await asyncio.sleep(0)
        yield column[1:] if bad else column


def test_coroutines_side_by_side() -> None:
    async def main() -> None:
        results = await asyncio.gather(*(slow(torch.zeros(size)) for size in (2, 3, 5)))
        assert [len(each) for each in results] == [2, 3, 5]
        with pytest.raises(TypeCheckError, match=r"the result of slow .* axis 0 is 4, and T is 3"):
            await asyncio.gather(slow(torch.zeros(3), 1), slow(torch.zeros(3)))
        with pytest.raises(TypeCheckError, match=r"parameter 'x' of slow .* 2 axes, not 1"):
            await slow(ROW)

    assert inspect.iscoroutinefunction(slow)
    asyncio.run(main())
    assert inner(torch.zeros(3)).shape == (3,)


def test_asynchronous_generators() -> None:
    async def main() -> None:
        assert [len(each) async for each in stream(ROW)] == [2, 2, 2]
        with pytest.raises(TypeCheckError, match=r"the result of stream .* axis 0 is 1, and B is 2"):
            async for _ in stream(ROW, bad=True):
                pass
        with sf.unenforced():
            assert [len(each) async for each in stream(ROW, bad=True)] == [1, 1, 1]
        with pytest.raises(TypeCheckError):
            async for _ in stream(torch.zeros(2)):
                pass

    assert inspect.isasyncgenfunction(stream)
    asyncio.run(main())


def test_switched_off_in_one_task_alone() -> None:
    async def off() -> int:
        with sf.unenforced():
            await asyncio.sleep(0)
            return inner(ROW).dim()

    async def on() -> bool:
        await asyncio.sleep(0)
        with pytest.raises(TypeCheckError):
            inner(ROW)
        return True

    async def main() -> list[Any]:
        return await asyncio.gather(off(), on())

    assert list(asyncio.run(main())) == [2, True]
