"""jaxtyping annotations, wherever Python lets people put them."""

# ruff: noqa: UP007, UP045  (`Optional` and `Union` are spellings under test)
import dataclasses
import functools
import re
import typing
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
)

import jaxtyping
import pytest
import torch
import typing_extensions
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import AbstractDtype, Bool, Float, Float16, Float32, Int, Num, Shaped, jaxtyped
from torch import Tensor, nn

from shapeflow.dims import annotation as annotation_module
from shapeflow.dims.annotation import Each, alternatives, signature_of, spec_of, specs_in
from shapeflow.dims.dtype import DTYPES
from shapeflow.dims.spec import parse_spec
from shapeflow.errors import InputError, SpecError
from tests.dims import annotated_later as later

IDS = parse_spec("B T:int64")
X = parse_spec("B T d")
SCALAR = parse_spec("")

Ids: TypeAlias = Int[Tensor, "B T"]
Hidden = Float[Tensor, "B T d"]
NewHidden = NewType("NewHidden", Hidden)
Later = typing_extensions.TypeAliasType("Later", Hidden)
T_bound = TypeVar("T_bound", bound=Hidden)
T_free = TypeVar("T_free")
Twice = typing_extensions.TypeAliasType("Twice", tuple[T_free, T_free], type_params=(T_free,))


class Half(AbstractDtype):
    dtypes = ("float16", "bfloat16")


class AnyFloat(AbstractDtype):
    dtypes = re.compile(r"b?float\d+")


@dataclass
class Batch:
    ids: Ids
    mask: Bool[Tensor, "B T"] | None = None
    length: int = 0
    kind: ClassVar[Ids]


@dataclass
class Step(Batch):
    hidden: "Hidden | None" = None


class Pair(NamedTuple):
    left: Hidden
    right: int


class Inputs(TypedDict):
    ids: Ids
    hidden: NotRequired["Hidden"]


@dataclass
class Tree:
    value: Hidden
    children: "tuple[Tree, ...]" = ()
    parent: "Tree | None" = None


@dataclass
class Box(Generic[T_free]):
    content: T_free
    many: tuple[T_free, T_free]


@dataclass
class Settings:
    dtype: "UnknownType | None" = None  # noqa: F821  what a library imports for type checkers only


@dataclass
class Broken:
    ids: "Int[UnknownTensor, 'B T']"  # noqa: F821


FAMILIES = {
    **dict.fromkeys(("Float", "Inexact", "Real", "Num", "Shaped"), "float32"),
    **dict.fromkeys(("Int", "Integer"), "int64"),
    "UInt": "uint8",
    "Bool": "bool",
    "Complex": "complex64",
}
NOT_IN_TORCH = {"Key", "Float8e4m3b11fnuz", "Float4e2m1fn"}
ONE_DTYPE = {
    name: family.dtypes[0]
    for name, family in vars(jaxtyping).items()
    if isinstance(family, type) and issubclass(family, AbstractDtype) and name not in FAMILIES | {"AbstractDtype": ""}
}


@pytest.mark.parametrize(("family", "dtype"), [*FAMILIES.items(), *ONE_DTYPE.items()])
def test_dtype_of_every_family(family, dtype):
    annotation = getattr(jaxtyping, family)[Tensor, "B"]
    if family in NOT_IN_TORCH:
        with pytest.raises(SpecError, match=f"torch has no dtype of {family}"):
            spec_of(annotation)
    else:
        assert spec_of(annotation) == parse_spec(f"B:{dtype}")
        assert dtype in DTYPES


@pytest.mark.parametrize(
    ("annotation", "spec"),
    [
        (Float[Tensor, ""], ""),
        (Float[Tensor, " B"], "B"),
        (Float[Tensor, "B 3 H=224 #W *rest"], "B 3 H=224 #W *rest"),
        (Float[Tensor, "B h*d_k 2*T-1"], "B h*d_k 2*T-1"),
        (Float[Tensor, "... _ ?x"], "... _ ?x"),
        (Float[Any, "B"], "B"),
        (Float[nn.Parameter, "B"], "B"),
        (Half[Tensor, "B"], "B:float16"),
        (AnyFloat[Tensor, "B"], "B:float32"),
        # an array type extended by another
        (Float[Float32[Tensor, "T d"], "B"], "B T d"),
        (Shaped[Float16[Tensor, "d"], "B T"], "B T d:float16"),
        (Num[Int[Tensor, "*rest"], "B"], "B *rest:int64"),
        (Float[Float[Tensor, ""], "B"], "B"),
        # around it
        (Ids | None, "B T:int64"),
        (Optional[Ids], "B T:int64"),
        (Union[None, int, Ids], "B T:int64"),
        (Annotated[Ids, "token ids"], "B T:int64"),
        (Annotated[Ids | None, 1] | str, "B T:int64"),
        (ClassVar[Ids], "B T:int64"),
        (Optional[NewHidden], "B T d"),
        (Later, "B T d"),
        (Later | None, "B T d"),
        (T_bound, "B T d"),
        (dataclasses.InitVar(Hidden), "B T d"),
        (Float[Tensor | int, "..."], "..."),
        (Float[T_bound, "K"], "K B T d"),
        (Ids | Hidden, "B T:int64"),
    ],
)
def test_annotation_of_one_tensor(annotation, spec):
    assert spec_of(annotation) == parse_spec(spec)
    assert specs_in(annotation) == parse_spec(spec)


@pytest.mark.parametrize(
    "annotation",
    [
        *(Tensor, nn.Parameter, torch.LongTensor, int, str, None, Any, object, 3, "text", ..., T_free),
        *(Optional[Tensor], Tensor | int, Literal["B T"], Annotated[Tensor, "B T"], tuple[int, Tensor], tuple, list),
        *(Callable[[Hidden], Hidden], type[Hidden], dict[str, int], jaxtyping.AbstractArray, Settings, Settings | None),
        Counter[object],
    ],
)
def test_no_tensor_annotation(annotation):
    assert spec_of(annotation) is None
    assert specs_in(annotation) is None


MARKS = st.sampled_from(["", "", "#", "*", "_", "#*", "*_"])  # `?` works inside a PyTree only, which needs jax
SIZES = st.sampled_from(["B", "T", "3", "d=4", "2*T-B", "max(B,T)//2", "(B+1)%T", "-B+T**2", "", "B/2"])
SHAPES = st.lists(st.builds(str.__add__, MARKS, SIZES) | st.just("..."), max_size=4).map(" ".join)


@settings(deadline=None)
@given(SHAPES)
def test_what_is_read_is_what_jaxtyping_checks(shape):
    try:
        annotation = Float[Tensor, shape]
    except ValueError:  # jaxtyping refuses it first
        return
    try:
        spec = spec_of(annotation)
    except SpecError:  # we may refuse what it would evaluate, but never read it as another thing
        return
    ranks = [len(spec.dims)] if annotation.index_variadic is None else range(len(spec.dims) - 1, len(spec.dims) + 2)
    for rank in ranks:
        with jaxtyped("context"):
            assert isinstance(torch.empty(3, 5), Float[Tensor, "B T"])
            assert isinstance(torch.empty(_shape_of(spec, rank), device="meta"), annotation)
    assert [dim.variadic for dim in spec.dims].count(True) == (annotation.index_variadic is not None)


def _shape_of(spec, rank):
    sizes = {"B": 3, "T": 5}
    shape = []
    for dim in spec.dims:
        if dim.variadic:
            shape += [7] * (rank - len(spec.dims) + 1)
        else:
            shape.append(7 if dim.expr is None else dim.expr.at(**sizes))
    return shape


def test_the_label_that_jaxtyping_drops_is_kept():
    (dim,) = spec_of(Float[Tensor, "d_model=32"]).dims
    assert (dim.name, dim.expr.value) == ("d_model", 32)


def test_every_alternative_of_a_union():
    assert alternatives(Ids | Hidden | None | Ids) == (IDS, X)
    assert alternatives(Float[Tensor | Any, "B T d"]) == (X,)
    assert alternatives(int) == ()


@pytest.mark.parametrize(
    ("annotation", "specs"),
    [
        (tuple[Ids, Hidden], (IDS, X)),
        (tuple[int, tuple[Ids, str]], (None, (IDS, None))),
        (tuple[Ids, ...], Each(IDS)),
        (list[Hidden], Each(X)),
        (Sequence[tuple[Ids, int]], Each((IDS, None))),
        (dict[str, Hidden], Each(X)),
        (dict[str, list[Hidden]] | None, Each(Each(X))),
        (Pair, {"left": X, "right": None}),
        (Inputs, {"ids": IDS, "hidden": X}),
        (Batch, {"ids": IDS, "mask": parse_spec("B T:bool"), "length": None}),
        (Step | None, {"ids": IDS, "mask": parse_spec("B T:bool"), "length": None, "hidden": X}),
        (
            tuple[Batch | None, Float[Tensor, ""]],
            ({"ids": IDS, "mask": parse_spec("B T:bool"), "length": None}, SCALAR),
        ),
        (Tree, {"value": X, "children": None, "parent": None}),
        (Box[Ids], {"content": IDS, "many": (IDS, IDS)}),
        (Box[int], None),
        (Twice[Ids] | None, (IDS, IDS)),
        (Union[int, tuple[int, int], tuple[Ids]], (IDS,)),
        (later.Batch, {"ids": IDS, "pair": (IDS, X)}),
        (later.Inputs, {"ids": IDS}),
        (later.Pair, {"left": X, "right": None}),
    ],
)
def test_structures(annotation, specs):
    assert specs_in(annotation) == specs


@pytest.mark.parametrize("kind", [Batch, Step, Pair, Inputs, Box[Ids]])
def test_fields_know_what_to_build_from_them(kind):
    assert specs_in(kind | None).kind is (typing.get_origin(kind) or kind)


@pytest.mark.parametrize(
    ("axes", "spec"),
    [
        ("B {self.d_model}", "B d_model"),
        ("#{self.d} T", "d T"),
        ("B {n}", "B _"),
        ("{t} {t}", "_ _"),
        ("B {n}+1 2*{self.d} d", "B _ _ d"),
        ("B { x.shape[1] } {len(x)}", "B _ _"),
    ],
)
def test_braces_name_an_attribute_or_nothing(axes, spec):
    assert str(spec_of(Float[Tensor, axes])) == spec


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            Float[Tensor, "B {n"],
            r'braces read a value.*\n    Float.Tensor, "B {n".\n {21}\^\nwrite: Float.Tensor, "B n".',
        ),
        (Float[Tensor, "self.x"], "reads no attributes"),
        (Float[Tensor, "abs(x)"], "abs"),
        (Float[Tensor, "B/2"], "/"),
        (Float[Tensor, "B T<=512"], 'takes a bound for a size.*\n.*\n.*\nwrite: Float.Tensor, "B T".'),
        (Float[Tensor, "B T>=2"], "takes a bound for a size"),
        (Float[Tensor, "B T^2"], r'no power to jaxtyping(.|\n)*write: Float.Tensor, "B T\*\*2".'),
        (Float[Tensor, "B T:int64"], 'stands in front(.|\n)*write: Float.Tensor, "B T".'),
        (Float[Tensor, "="], "name is missing"),
        (Float[Tensor, "B -1"], "not negative"),
        (Float, r'(?s)an array type and a shape are missing.*write: Float\[Tensor, "B T"\]'),
        (Float[Tensor, "self.x"] | None, "reads no attributes"),
    ],
)
def test_an_array_type_that_cannot_be_read_is_an_error(annotation, message):
    for read in (spec_of, specs_in):
        with pytest.raises(SpecError, match=message):
            read(annotation)


def test_a_field_that_looks_like_a_tensor_but_does_not_evaluate_is_an_error():
    with pytest.raises(InputError, match=r"the field `ids` of Broken .*Int\[UnknownTensor, 'B T'\]\n.*NameError"):
        specs_in(Broken)


def plain(ids: Ids, scale: float = 1.0, *rest: Hidden, last: Hidden | None = None, **more: int) -> Hidden: ...


@jaxtyped(typechecker=beartype)
def checked(ids: Ids, scale: float = 1.0) -> Ids:
    return ids


@torch.no_grad()
@jaxtyped(typechecker=None)
def twice(ids: "Ids", scale: "float" = 1.0) -> "Ids":
    return ids


class Model(nn.Module):
    @jaxtyped(typechecker=beartype)
    def forward(self, ids: Ids, scale: float = 1.0) -> Ids:
        return ids

    @classmethod
    def of_class(cls, ids: Ids, scale: float = 1.0) -> Ids: ...

    @staticmethod
    def static(ids: Ids, scale: float = 1.0) -> Ids: ...


class Callee:
    def __call__(self, ids: "Ids", scale: "float" = 1.0) -> "Ids": ...


class Built:
    def __init__(self, ids: "Ids", scale: "float" = 1.0): ...


@pytest.mark.parametrize(
    "function",
    [
        *(plain, checked, twice, Model().forward, Model.of_class, Model.static, Callee(), Built),
        *(
            later.forward,
            later.checked,
            later.Model().forward,
            later.nested(),
            functools.partial(later.Model().forward),
        ),
        functools.partial(checked, scale=2.0),
        functools.partial(functools.partial(Model.forward, Model()), scale=3.0),
    ],
    ids=lambda function: re.sub(r" at 0x\w+", "", repr(function)),
)
def test_annotations_of_a_signature_are_objects(function):
    parameters = signature_of(function).parameters
    assert list(parameters)[:2] == ["ids", "scale"]
    assert spec_of(parameters["ids"].annotation) == IDS
    assert parameters["scale"].annotation is float


def test_a_signature_keeps_kinds_defaults_and_result():
    signature = signature_of(plain)
    assert [str(each.kind) for each in signature.parameters.values()][2:] == [
        "VAR_POSITIONAL",
        "KEYWORD_ONLY",
        "VAR_KEYWORD",
    ]
    assert spec_of(signature.return_annotation) == X
    assert spec_of(signature.parameters["last"].annotation) == X
    assert signature.parameters["last"].default is None
    assert signature_of(lambda x: x).return_annotation is signature.empty


def test_bound_arguments_of_a_partial_are_gone():
    assert next(iter(signature_of(functools.partial(plain, None)).parameters)) == "scale"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (later.typo, r"(?s)of `x` of typo cannot be read: Flaot\[Tensor, 'B T'\].*NameError.*'Flaot'"),
        (later.missing_name, r"(?s)of `x` of missing_name .*Float\[OnlyForCheckers, 'B T'\].*OnlyForCheckers"),
        (later.bad_result, r"(?s)of the result of bad_result .*Float\[Tensor, 'B,T'\].*commas"),
        (later.bad_inside, r"(?s)of `x` of bad_inside .*NameError"),
    ],
)
def test_text_that_looks_like_a_tensor_but_does_not_evaluate_is_an_error(function, message):
    with pytest.raises(InputError, match=message):
        signature_of(function)


def test_other_text_that_does_not_evaluate_stays_text():
    parameters = signature_of(later.with_cache).parameters
    assert spec_of(parameters["ids"].annotation) == IDS
    assert parameters["cache"].annotation == "OnlyForCheckers | None"


def test_jaxtyping_is_not_needed(monkeypatch):
    monkeypatch.delitem(annotation_module.sys.modules, "jaxtyping")
    assert specs_in(tuple[int, Tensor]) is None
