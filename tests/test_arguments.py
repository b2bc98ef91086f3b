import inspect
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import pytest

from shapeflow.arguments import parse_inputs, parse_keywords, parse_literal, parse_sizes
from shapeflow.errors import InputError, ShapeflowError, SpecError


def test_sizes() -> None:
    assert parse_sizes(["B=2, T=5", "H=7"]) == {"B": 2, "T": 5, "H": 7}
    assert parse_sizes([]) == {}


@pytest.mark.parametrize(
    ("text", "caret", "reason"),
    [
        ("B=2,T=five", 4, "'T=five' is not a name and its size"),
        ("B", 0, "'B' is not a name and its size"),
        ("B=2,", 4, "'' is not a name and its size"),
        ("B=-1", 0, "'B=-1' is not a name and its size"),
        ("B=2;T=5", 0, "'B=2;T=5' is not a name and its size"),
        ("B=²", 0, "'B=²' is not a name and its size"),
        ("B=2,B=3", 4, "B is given two sizes, 2 and 3"),
    ],
)
def test_bad_sizes_point_at_the_fault(text: str, caret: int, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_sizes([text])
    assert (caught.value.position, str(caught.value).splitlines()[0]) == (caret, reason)


def test_keywords_are_python_literals() -> None:
    assert parse_keywords(["d_model=32, widths=[1, 2]", "norm='rms'", "bias=false", "scale=-0.5"]) == {
        "d_model": 32,
        "widths": [1, 2],
        "norm": "rms",
        "bias": False,
        "scale": -0.5,
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["d_model"], "arguments are given by name"),
        (["32"], "arguments are given by name"),
        (["**x"], "arguments are given by name"),
        (["d_model="], "arguments do not parse"),
        (["d_model=3) + g(x=4"], "arguments are given by name"),
        (["norm=rms"], r"rms is no Python literal\n    norm=rms\n         \^\nwrite: 'rms'"),
        (["d=len('x')"], r"len\('x'\) is no Python literal"),
        (["d=1", "d=2"], "d is given twice"),
    ],
)
def test_bad_keywords(texts: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_keywords(texts)


def test_literals() -> None:
    assert [parse_literal(text) for text in ("2", '"mean"', "true", "None", "(1, 2.5)", "null")] == [
        2,
        "mean",
        True,
        None,
        (1, 2.5),
        None,
    ]


@pytest.mark.parametrize("text", ["mean", "1 +", "", "__import__('os')"])
def test_bad_literals(text: str) -> None:
    with pytest.raises(SpecError, match="no Python literal"):
        parse_literal(text)


@dataclass
class Batch:
    ids: object
    mask: object = None


class Pair(NamedTuple):
    left: object
    right: object


class Fields(TypedDict):
    ids: object


def forward(x, ids, state, scale, batch: Batch, pair: Pair, inner: Fields, H=None): ...


def inputs_of(*texts: str) -> tuple[list[object], dict[str, object]]:
    return parse_inputs(texts, inspect.signature(forward))


@pytest.mark.parametrize(
    ("texts", "positional", "named"),
    [
        (["B T:int64", "B 3 H=224 W=224"], ["B T:int64", "B 3 H=224 W=224"], {}),
        (["ids=B T:int64"], [], {"ids": "B T:int64"}),
        (["ids="], [], {"ids": ""}),
        (["x=B 3 H=224 W=224"], [], {"x": "B 3 H=224 W=224"}),
        (["B T<=512"], ["B T<=512"], {}),
        (["N=224 C"], ["N=224 C"], {}),
        (["N=224:int64"], ["N=224:int64"], {}),
        (["H=224 C"], [], {"H": "224 C"}),  # the model has an input called H
        (["scale:=2", ":='mean'"], ["mean"], {"scale": 2}),
        (["state.0=L B H", "state.1=L B H"], [], {"state": ("L B H", "L B H")}),
        (["ids.token-ids=B T:int64"], [], {"ids": {"token-ids": "B T:int64"}}),
        (["batch.ids=B T:int64", "batch.mask=B T"], [], {"batch": Batch("B T:int64", "B T")}),
        (["batch.ids.a=B"], [], {"batch": Batch({"a": "B"})}),
        (["pair.right=C", "pair.left=B"], [], {"pair": Pair("B", "C")}),
        (["inner.ids=B"], [], {"inner": {"ids": "B"}}),
    ],
)
def test_inputs(texts: list[str], positional: list[object], named: dict[str, object]) -> None:
    assert inputs_of(*texts) == (positional, named)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["ids=B", "ids=C"], "ids is given twice"),
        (["batch=B", "batch.ids=C"], "batch is given as a whole and by its field: batch.ids"),
        (["batch.ids=C", "batch=B"], "batch is given twice"),
        (["state.0=B", "state.2=B"], r"state lacks its item state\.1"),
        (["batch.mask=B"], "batch is a Batch: missing a required argument: 'ids'"),
        (["batch.idz=B"], "batch has no field idz; its fields are ids, mask"),
        (["inner.idz=B"], "inner has no field idz; its fields are ids"),
        (["scale:=two"], "two is no Python literal"),
    ],
)
def test_bad_inputs(texts: list[str], message: str) -> None:
    with pytest.raises(ShapeflowError, match=message) as caught:
        inputs_of(*texts)
    assert isinstance(caught.value, InputError | SpecError)
