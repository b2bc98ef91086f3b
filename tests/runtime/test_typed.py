"""`@sf.typed`: what passes, what is refused, and in which words."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypedDict

import numpy as np
import pytest
import torch
from beartype.vale import Is
from jaxtyping import Bool, Float, Int, TypeCheckError, jaxtyped
from torch import Tensor, nn

import shapeflow as sf


@sf.typed
class Block(nn.Module):
    scale: int = 3

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.mix = nn.Linear(d_model, d_model)

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    def forward(
        self,
        x: Float[Tensor, "B T d_model"],
        memory: Float[Tensor, "B S d_model"] | None = None,
        *,
        how: Literal["sum", "mean"] = "sum",
    ) -> Float[Tensor, "B T d_model"]:
        return self.mix(x)

    def heads(self, x: Float[Tensor, "B n_heads T d_head"]) -> Float[Tensor, "B T n_heads*d_head"]:
        return x.transpose(1, 2).flatten(2)

    def grow(self, x: Float[Tensor, "B d"]) -> Float[Tensor, "B scale*d"]:
        return x.repeat(1, 3)


class Batch(TypedDict):
    ids: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]


@sf.typed
def stack(
    xs: list[Float[Tensor, "B d"]],
    named: dict[str, Float[Tensor, " B"]] | None = None,
    pair: tuple[Float[Tensor, "B K"], int] | None = None,
    batch: Batch | None = None,
    *rest: Float[Tensor, "B d"],
    **more: Float[Tensor, " B"],
) -> Float[Tensor, "n=1 B d"]:
    return xs[0][None]


@sf.typed
def broad(x: Float[Tensor, "*batch T d"], y: Float[Tensor, "*batch #T 2*d"]) -> Float[Tensor, "*batch T+1 d"]:
    return torch.cat([x, x[..., :1, :]], -2)


@sf.typed
def either(
    x: Float[Tensor, "B T"] | Int[Tensor, " B"], n: int | None = None, cls: type[nn.Module] = nn.Module
) -> Tensor:
    return x


block = Block(6, 2)
X = torch.zeros(2, 5, 6)
ROW = torch.zeros(2, 3)

PASSES = {
    "forward": lambda: block(X),
    "by name": lambda: block(memory=torch.zeros(2, 7, 6), x=X),
    "None": lambda: block(X, None, how="mean"),
    "other sizes": lambda: (block(X), block(torch.zeros(1, 1, 6)), block(torch.zeros(0, 3, 6))),
    "a property gives a size": lambda: block.heads(torch.zeros(2, 2, 5, 3)),
    "a constant of the class": lambda: block.grow(torch.zeros(2, 4)),
    "half precision": lambda: Block(6, 2).half()(X.half()),
    "bfloat16": lambda: Block(6, 2).bfloat16()(X.bfloat16()),
    "a parameter": lambda: block(nn.Parameter(X)),
    "empty list": lambda: either(torch.zeros(2, 3)),
    "list": lambda: stack([ROW, ROW]),
    "dict, tuple": lambda: stack([ROW], {"a": torch.zeros(2)}, (torch.zeros(2, 9), 4)),
    "TypedDict": lambda: stack([ROW], batch={"ids": torch.zeros(2, 5).long(), "mask": torch.ones(2, 5).bool()}),
    "star arguments": lambda: stack([ROW], None, None, None, ROW, ROW, extra=torch.zeros(2)),
    "variadic": lambda: broad(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 1, 10)),
    "second of a union": lambda: either(torch.zeros(4).long(), 3),
}


@pytest.mark.parametrize("run", PASSES.values(), ids=PASSES)
def test_passes(run: Callable[[], Any]) -> None:
    run()
    run()


REFUSED = {
    "attribute": (
        lambda: block(torch.zeros(2, 5, 7)),
        r"parameter 'x' of Block.forward is declared Float\[Tensor, .B T d_model.\], but axis 2 is 7, and d_model is 6 "
        r"\(an attribute of this Block\)\n  x is a Tensor 2 5 7, float32, cpu\n"
        r"  bound before: d_model=6 \(an attribute of this Block\)$",
    ),
    "another argument": (
        lambda: block(X, torch.zeros(3, 5, 6)),
        r"parameter 'memory' of Block.forward is declared Float\[Tensor, .B S d_model.\], but axis 0 is 3, and B is 2 "
        r"\(axis 0 of x\)\n.*\n  bound before: .*B=2 \(axis 0 of x\), T=5 \(axis 1 of x\)$",
    ),
    "rank": (lambda: block(torch.zeros(2, 6)), r"parameter 'x' of Block.forward .*, but it has 2 axes, not 3\n"),
    "dtype": (lambda: block(X.long()), r"parameter 'x' of Block.forward .*, but its dtype is int64\n"),
    "no tensor": (lambda: block([1, 2]), r"parameter 'x' of Block.forward .*, but it is a list of 2\n"),
    "numpy": (lambda: block(np.zeros((2, 5, 6))), r"parameter 'x' of Block.forward .*, but it is an? ndarray\n"),
    "literal": (
        lambda: block(X, how="max"),
        r"parameter 'how' of Block.forward is declared one of 'sum', 'mean', .* a str: 'max'\n",
    ),
    "constructor": (
        lambda: Block("6", 2),
        r"parameter 'd_model' of Block.__init__ is declared int, but it is a str: '6'$",
    ),
    "property": (lambda: block.heads(torch.zeros(2, 2, 5, 4)), r"axis 3 is 4, and d_head is 3 \(an attribute of this"),
    "list item": (
        lambda: stack([*[ROW] * 19, torch.zeros(2, 4)]),
        r'xs\[19\] of stack is declared Float\[Tensor, "B d"\], but axis 1 is 4, and d is 3 \(axis 1 of xs\[0\]\)\n',
    ),
    "dict item": (lambda: stack([ROW], {"a": torch.zeros(2), "b": ROW}), r"named\['b'\] of stack .* 2 axes, not 1\n"),
    "dict key": (
        lambda: stack([ROW], {3: torch.zeros(2)}),
        r"the key 3 of named of stack is declared str, .* int: 3\n",
    ),
    "tuple item": (
        lambda: stack([ROW], None, (torch.zeros(3, 2), 1)),
        r"pair\[0\] of stack .* axis 0 is 3, and B is 2",
    ),
    "tuple length": (
        lambda: stack([ROW], None, (ROW,)),
        r"parameter 'pair' of stack is declared tuple\[.* it has 1 items, not 2\n",
    ),
    "field": (
        lambda: stack([ROW], batch={"ids": torch.zeros(2, 5).long(), "mask": torch.ones(2, 4).bool()}),
        r"batch\['mask'\] of stack .* axis 1 is 4, and T is 5 \(axis 1 of batch\['ids'\]\)",
    ),
    "missing field": (
        lambda: stack([ROW], batch={"ids": torch.zeros(2, 5).long()}),
        r"parameter 'batch' of stack .* has no 'mask'",
    ),
    "star argument": (
        lambda: stack([ROW], None, None, None, ROW, ROW[:1]),
        r"rest\[1\] of stack .* axis 0 is 1, and B is 2",
    ),
    "keyword": (lambda: stack([ROW], z=torch.zeros(7)), r"more\['z'\] of stack .* axis 0 is 7, and B is 2"),
    "variadic": (
        lambda: broad(torch.zeros(2, 3, 4, 5), torch.zeros(2, 7, 4, 10)),
        r"parameter 'y' of broad .* but \*batch is 2 7, and 2 3 before \(the axes 0 to 1 of x\)\n",
    ),
    "expression": (
        lambda: broad(torch.zeros(2, 4, 5), torch.zeros(2, 4, 11)),
        r"axis 2 is 11, not 2\*d = 10 \(d = 5: axis 2 of x\)\n",
    ),
    "label": (lambda: sf.typed(_labelled)(torch.zeros(2, 7)), r"axis 1 is 7, not H=8\n"),
    "square": (lambda: sf.typed(_square)(ROW), r"axis 1 is 3, and N is 2 \(axis 0 of x\)"),
    "result": (
        lambda: sf.typed(_halves)(torch.zeros(4, 6)),
        r'of _halves is declared Float\[Tensor, "B d//2"\], but axis 1 is 2, not d//2 = 3 \(d = 6: axis 1 of x\)\n',
    ),
    "union of arrays": (
        lambda: either(torch.zeros(2).double().bool()),
        r'declared Float\[Tensor, "B T"\] \| Int\[Tensor, "B"\], but .* bool, cpu',
    ),
    "union": (lambda: either(ROW, "a"), r"parameter 'n' of either is declared int \| None, but it is a str: 'a'\n"),
    "what beartype reads": (
        lambda: either(ROW, None, Tensor),
        r"parameter 'cls' of either .* type\[.*Module\], but it is .*Tensor",
    ),
}


def _labelled(x: Float[Tensor, "B H=8"]) -> None: ...


def _square(x: Float[Tensor, "N N"]) -> None: ...


def _halves(x: Float[Tensor, "B d"]) -> Float[Tensor, "B d//2"]:
    return x[:, ::3]


@pytest.mark.parametrize(("run", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(run: Callable[[], Any], message: str) -> None:
    for _ in range(2):
        with pytest.raises(TypeCheckError) as caught:
            run()
        assert re.search(message, str(caught.value)), caught.value


def test_the_error_holds_no_numbers_of_a_tensor() -> None:
    with pytest.raises(TypeCheckError) as caught:
        block(torch.full((2, 5, 7), 123.0))
    assert "123" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize("at", range(16))
def test_one_wrong_item_is_always_found(at: int) -> None:
    items = [ROW] * 16
    items[at] = torch.zeros(2, 4)
    for wrong in (items, items):
        with pytest.raises(TypeCheckError, match=r"xs\[\d+\] of stack"):
            stack(wrong)
    with pytest.raises(TypeCheckError, match=f"named\\['{at}'\\]"):
        stack([ROW], {str(key): torch.zeros(3 if key == at else 2) for key in range(16)})


def test_every_item_of_numbers_is_looked_at_where_asked() -> None:
    def total(numbers: list[int]) -> int:
        return len(numbers)

    wrong = [*range(4000), "4000"]
    with pytest.raises(TypeCheckError, match=r"numbers\[4000\] of .*total is declared int, but it is a str: '4000'"):
        sf.typed(every_item=True)(total)(wrong)
    assert sf.typed(total)(wrong[:-1]) == 4000
    caught = 0
    for _ in range(5):  # beartype takes one item at random: five times the last of 4001 would be a miracle
        try:
            sf.typed(total)(wrong)
        except TypeCheckError:
            caught += 1
    assert caught < 5


def test_one_item_at_random_where_asked() -> None:
    @sf.typed(every_item=False)
    def first(xs: Sequence[Float[Tensor, " B"]]) -> Tensor:
        return xs[0]

    first([torch.zeros(2)] * 4)
    with pytest.raises(TypeCheckError):
        first([ROW] * 4)


def test_a_cached_call_is_no_blank_cheque() -> None:
    for _ in range(3):
        block(X)
    with pytest.raises(TypeCheckError):
        block(X.long())
    with pytest.raises(TypeCheckError):
        block("x")
    block(X)


def test_an_attribute_may_change() -> None:
    model = Block(6, 2)
    model(X)
    model.d_model = 7
    with pytest.raises(TypeCheckError, match="axis 2 is 6, and d_model is 7"):
        model(X)
    model.d_model = 6
    model(X)


def test_a_constant_of_a_class_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    block.grow(torch.zeros(2, 4))
    monkeypatch.setattr(Block, "scale", 4)
    with pytest.raises(TypeCheckError, match=r"axis 1 is 12, not scale\*d = 16|not d\*scale = 16"):
        block.grow(torch.zeros(2, 4))


def test_what_a_call_leaves_in_an_attribute_says_nothing_of_the_next() -> None:
    @sf.typed
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.T = 1

        def forward(self, x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
            self._look(x)
            return x

        def _look(self, x):
            self.B, self.T = x.shape

    keeps = Keeps()
    for size in (3, 5, 3):
        keeps(torch.zeros(2, size))
        keeps(torch.zeros(size, 2))


def test_a_bool_or_a_tensor_of_the_name_is_no_size() -> None:
    @sf.typed
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.T, self.B = True, torch.tensor(3)

        def forward(self, x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
            return x

    assert Odd()(torch.zeros(5, 7)).shape == (5, 7)


def test_slots_and_plain_classes() -> None:
    @sf.typed
    class Slotted:
        __slots__ = ("width",)

        def __init__(self, width: int) -> None:
            self.width = width

        def check(self, x: Float[Tensor, "B width"]) -> None: ...

    for _ in range(2):
        Slotted(3).check(ROW)
        with pytest.raises(TypeCheckError, match="axis 1 is 3, and width is 4"):
            Slotted(4).check(ROW)


def test_checks_inside_the_body_go_on_with_the_names() -> None:
    @sf.typed
    def inner(x: Float[Tensor, "B T"], y: Tensor) -> bool:
        return isinstance(y, Float[Tensor, "T"])

    for _ in range(3):
        assert inner(ROW, torch.zeros(3))
        assert not inner(ROW, torch.zeros(2))


def test_names_bound_in_the_body_hold_for_the_result() -> None:
    @sf.typed
    def pick(x: Float[Tensor, "B T"], n: int, wrong: bool = False) -> Float[Tensor, "B K"]:
        assert isinstance(x[:, :n], Float[Tensor, "B K"])
        return x if wrong else x[:, :n]

    for n in (1, 2, 1, 2):
        pick(ROW, n)
        with pytest.raises(TypeCheckError):
            pick(ROW, n, wrong=True)


def test_values_of_arguments_in_braces() -> None:
    @sf.typed
    def take(x: Float[Tensor, "B T"], n: int) -> Float[Tensor, "B {n}"]:
        return x[:, :2]

    for _ in range(2):
        take(ROW, 2)
        with pytest.raises(TypeCheckError, match="the result of take"):
            take(ROW, 3)


def test_a_result_that_varies_under_the_same_arguments() -> None:
    @sf.typed
    def chosen(x: Float[Tensor, "B T"], wrong: Tensor) -> Float[Tensor, "B n"]:
        return x.T if wrong else x[:, :1]

    for _ in range(2):
        assert chosen(ROW, torch.tensor(False)).shape == (2, 1)
        with pytest.raises(TypeCheckError, match="axis 0 is 3, and B is 2"):
            chosen(ROW, torch.tensor(True))


def test_defaults_are_let_through() -> None:
    @sf.typed
    def attend(x: Float[Tensor, "B T"], mask: Tensor = None, n: int = 1.5) -> Tensor:  # type: ignore[assignment]
        return x

    for _ in range(2):
        attend(ROW)
        attend(ROW, ROW)
        with pytest.raises(TypeCheckError, match="parameter 'n' of attend is declared int"):
            attend(ROW, n=2.5)  # type: ignore[arg-type]


def test_kinds_of_parameters_and_defaults() -> None:
    @sf.typed
    def every(a: int, /, b: int, c: int = 3, *args: int, d: int, e: int = 5, **kwargs: int) -> tuple[int, ...]:
        return (a, b, c, *args, d, e, *kwargs.values())

    assert every(1, 2, d=4) == (1, 2, 3, 4, 5)
    assert every(1, 2, 3, 9, 9, d=4, e=6, f=7) == (1, 2, 3, 9, 9, 4, 6, 7)
    with pytest.raises(TypeError, match=r"every\(\) missing 1 required keyword-only argument: 'd'"):
        every(1, 2)
    with pytest.raises(TypeCheckError, match=r"kwargs\['f'\] of every is declared int"):
        every(1, 2, d=4, f="x")


@sf.typed
@dataclass(frozen=True)
class Pair:
    """A key and its value."""

    keys: Float[Tensor, "B S d"]
    values: Float[Tensor, "B S e"]
    note: str = ""


def test_fields_of_a_dataclass() -> None:
    assert Pair(torch.zeros(2, 3, 4), torch.zeros(2, 3, 5)).note == ""
    with pytest.raises(
        TypeCheckError, match=r"'values' of Pair.__init__ .* axis 1 is 4, and S is 3 \(axis 1 of keys\)"
    ):
        Pair(torch.zeros(2, 3, 4), torch.zeros(2, 4, 5))


def test_static_class_and_property_members() -> None:
    @sf.typed
    class Members:
        def __init__(self, x: Tensor) -> None:
            self._x = x

        @staticmethod
        def still(x: Float[Tensor, " B"]) -> None: ...

        @classmethod
        def made(cls, x: Float[Tensor, " B"]) -> "Members":
            return cls(x)

        @property
        def x(self) -> Float[Tensor, " B"]:
            return self._x

    assert isinstance(Members.made(torch.zeros(3)), Members)
    for run in (lambda: Members.still(ROW), lambda: Members.made(ROW), lambda: Members(ROW).x):
        with pytest.raises(TypeCheckError, match="2 axes, not 1"):
            run()


class Sized(Protocol):
    size: int


class Point(NamedTuple):
    x: Float[Tensor, " B"]


def test_other_annotations_are_beartypes() -> None:
    @sf.typed
    def check(n: Annotated[int, Is[lambda n: n > 0]], fn: Callable[[int], int] = abs, p: Point | None = None) -> "int":
        return n

    assert check(1, len, Point(ROW[0])) == 1
    with pytest.raises(TypeCheckError, match=r"p.x of check is declared .* 2 axes, not 1"):
        check(1, len, Point(ROW))
    for run in (lambda: check(-1), lambda: check(1, 2), lambda: check(1, p=3)):
        for _ in range(2):
            with pytest.raises(TypeCheckError):
                run()


def test_looks_like_the_function_that_it_stands_for() -> None:
    import inspect

    def plain(x: Float[Tensor, "B T"], *, n: int = 3) -> Tensor:
        """Says what."""
        return x

    fitted = sf.typed(plain)
    assert fitted is not plain and sf.typed(fitted) is fitted
    assert (fitted.__name__, fitted.__doc__, fitted.__module__) == ("plain", "Says what.", __name__)
    assert inspect.signature(fitted) == inspect.signature(plain)
    assert inspect.unwrap(fitted) is plain


def test_nothing_to_check_is_nothing_to_wrap() -> None:
    def plain(x, y=3): ...

    def anything(x: Any, *args: object) -> Any: ...

    assert sf.typed(plain) is plain and sf.typed(anything) is anything


def test_functions_made_at_every_call_share_their_plan() -> None:
    def make(scale: int) -> Callable[[Tensor], Tensor]:
        @sf.typed
        def scaled(x: Float[Tensor, "B T"], by: int = scale) -> Float[Tensor, "B T"]:
            return x * scale * by

        return scaled

    two, also_two, three = make(2), make(2), make(3)
    assert two.__shapeflow_plan__ is also_two.__shapeflow_plan__  # type: ignore[attr-defined]
    assert torch.equal(three(torch.ones(1, 1)), torch.tensor([[9.0]]))
    assert torch.equal(also_two(torch.ones(1, 1)), torch.tensor([[4.0]]))
    with pytest.raises(TypeCheckError):
        two(torch.ones(1))


@pytest.mark.parametrize("wrong", [3, "text", torch.zeros(2), nn.Linear(2, 2)])
def test_only_functions_and_classes(wrong: Any) -> None:
    with pytest.raises(sf.EnforceError, match="only functions and classes can be enforced"):
        sf.typed(wrong)


def test_what_is_no_type_is_told_when_the_function_is_made() -> None:
    def wrong(x: 3) -> None: ...  # type: ignore[valid-type]

    line = wrong.__code__.co_firstlineno
    with pytest.raises(sf.EnforceError, match=rf"test_typed.py:{line}: the annotation of `x` of .*wrong .*3"):
        sf.typed(wrong)


def test_a_tensor_type_that_does_not_exist_is_told_when_the_function_is_made() -> None:
    def wrong(
        x: "Float[Tensor, ' B']",
        y: "Float[Tensro, 'B T']",  # type: ignore[name-defined]  # noqa: F821
    ) -> None: ...

    line = wrong.__code__.co_firstlineno + 2
    expected = rf"test_typed.py:{line}: the annotation of `y` of .*Tensro, 'B T'\]\n    NameError: name 'Tensro' is not"
    with pytest.raises(sf.EnforceError, match=expected):
        sf.typed(wrong)


def test_a_name_that_comes_later() -> None:
    @sf.typed
    def later(x: "Float[Tensor, ' B']", y: "Late | None" = None) -> "Late":
        return Late()

    class Late: ...

    assert isinstance(later(torch.zeros(2)), Late)
    with pytest.raises(TypeCheckError, match=r"parameter 'y' of later is declared Late \| None, but it is an int: 3"):
        later(torch.zeros(2), 3)  # type: ignore[arg-type]
    with pytest.raises(TypeCheckError, match="2 axes, not 1"):
        later(ROW)


def test_a_name_that_never_comes() -> None:
    @sf.typed
    def never(y: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(sf.EnforceError, match=r"`y` of .*never cannot be read: Nowhere\n    NameError"):
        never(3)


def test_jaxtypings_own_switch_and_no_type_check(monkeypatch: pytest.MonkeyPatch) -> None:
    from typing import no_type_check

    from jaxtyping import config

    @no_type_check
    def free(x: Float[Tensor, " B"]) -> None: ...

    sf.typed(free)(ROW)
    monkeypatch.setattr(config, "jaxtyping_disable", True)
    stack([ROW, torch.zeros(9)])


def test_below_and_above_jaxtyped() -> None:
    import beartype

    def one(x: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        return x

    for both in (sf.typed(jaxtyped(one, typechecker=beartype.beartype)), jaxtyped(sf.typed(one), typechecker=None)):
        assert both(torch.zeros(2)).shape == (2,)
        with pytest.raises(TypeCheckError):
            both(ROW)


def test_methods_of_one_call_share_names_though_forward_has_no_annotations() -> None:
    @sf.typed
    class Pair(nn.Module):
        def first(self, x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
            return x

        def second(self, y: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
            return y

        def forward(self, x, y):
            return self.first(x), self.second(y)

    model = Pair()
    model(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(TypeCheckError, match=r"T is 5 in Pair.second .* but 3 in Pair.first"):
        model(torch.ones(2, 3), torch.ones(2, 5))
    model(torch.ones(2, 5), torch.ones(2, 5))
    model.second(torch.ones(2, 7))


def test_a_protocol_that_is_for_readers_alone_is_not_checked() -> None:
    class Sampler(Protocol):
        def sample(self) -> int: ...

    @sf.typed
    def draw(x: Float[Tensor, " B"], sampler: Sampler, others: list[Sampler]) -> Float[Tensor, " B"]:
        return x

    draw(torch.ones(3), object(), [object()])  # type: ignore[arg-type,list-item]
    with pytest.raises(TypeCheckError, match=r"'x' of .*draw"):
        draw(torch.ones(3, 2), object(), [])  # type: ignore[arg-type]
