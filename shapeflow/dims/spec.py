"""The grammar of inputs, one for Python, the command line and the configuration: text -> `TensorSpec`.

>>> spec = parse_spec("B T<=512:int64")
>>> spec.dims[1].name, spec.dims[1].high, spec.dtype
('T', 512, 'int64')

Axes stand between spaces and have none inside: a name `T`, a number `3`, an expression `2*T`, a name with a known size
`H=224`, a bound `T<=512` or `T>=2<=512`; jaxtyping's `*batch`, `...`, `_`, `#B`, `?x`. A dtype may follow a colon.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shapeflow.dims.axis import Word, parse_axis
from shapeflow.dims.dim import Dim
from shapeflow.dims.dtype import DEFAULT_DTYPE, DTYPES, nearest
from shapeflow.dims.expr import Expr
from shapeflow.errors import SpecError

__all__ = ["Dim", "TensorSpec", "parse_spec"]

_COMMA = re.compile(r"\s*,(?![^()]*\))\s*")  # not those of max(a,b)
_MAX_FAULTS = 8


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is known of a tensor beforehand: its axes and its dtype. `str` gives a text that parses to an equal spec."""

    dims: tuple[Dim, ...]
    dtype: str = DEFAULT_DTYPE
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        dims = " ".join(map(str, self.dims))
        return dims if self.dtype == DEFAULT_DTYPE else f"{dims}:{self.dtype}"


@lru_cache(maxsize=4096)
def parse_spec(text: str) -> TensorSpec:
    """Read a spec; `""` is a scalar. Raises SpecError: a caret under the first fault, and a hint that parses."""
    try:
        return _read(text)
    except SpecError as error:
        hint = _mended(error.hint)
        raise SpecError(error.text, error.position, error.reason, hint) from None  # the same fault, better hint


def _mended(hint: str) -> str:
    """The hint with every further fault mended too; "" when one of them has no cure."""
    for _ in range(_MAX_FAULTS):
        try:
            _read(hint)
        except SpecError as error:
            hint = error.hint
        else:
            return hint
    return ""


def _read(text: str) -> TensorSpec:
    spec = re.sub(r"\s", " ", text)  # one column for each character, or the caret would miss
    body, colon, dtype = spec.partition(":")
    _refuse_list(spec, body)
    _refuse_brackets(spec, body)
    words = [Word(spec, match.start(), match.end()) for match in re.finditer(r"\S+", body)]
    dims = [parse_axis(word) for word in words]
    _refuse_second_variadic(dims, words)
    return TensorSpec(_unified(dims, words), _dtype(spec, body, dtype) if colon else DEFAULT_DTYPE, text)


def _dtype(spec: str, body: str, written: str) -> str:
    names, at = written.split(), len(body) + 1 + len(written) - len(written.lstrip())
    if not names:
        raise SpecError(spec, len(body) + 1, "a dtype is missing after the colon", f"{body.rstrip()}:int64")
    if len(names) > 1 or ":" in written:
        name = re.split("[ :]", written.strip(), maxsplit=1)[0]
        axes = re.sub(r":\s*[^\s:]*", "", spec).strip()
        raise SpecError(spec, at + len(name), "the dtype stands once, after the last axis", f"{axes}:{name}")
    if names[0] in DTYPES:
        return names[0]
    near = nearest(names[0])
    known = "" if near else f" (there are {', '.join(DTYPES[:8])} ...)"
    raise SpecError(spec, at, f"no dtype is called `{names[0]}`{known}", f"{body.rstrip()}:{near}" if near else "")


def _refuse_list(spec: str, body: str) -> None:
    """`(B, T)`, `[B T]`: a shape as Python prints it."""
    wrapped = re.fullmatch(r"\s*([\[(])(.*)[\])]\s*", body)
    if wrapped is None:
        return
    flat = re.sub(r"\([^()]*\)", "", wrapped[2])
    several = re.search(r"\w\s*,|\w\s+\w", flat) and "(" not in flat and ")" not in flat
    if wrapped[1] == "[" or several:
        reason = "axes are separated by spaces, without brackets around them"
        raise SpecError(spec, wrapped.start(1), reason, _COMMA.sub(" ", wrapped[2]).strip() + spec[len(body) :])


def _refuse_brackets(spec: str, body: str) -> None:
    """Brackets left open or closed twice, commas between axes, spaces inside brackets."""
    opened: list[int] = []
    for at, char in enumerate(body):
        if char == "(":
            opened.append(at)
        elif char == ")" and opened:
            opened.pop()
        elif char == ")":
            raise SpecError(spec, at, "`)` closes nothing", spec[:at] + spec[at + 1 :])
        elif char == "," and not opened:
            raise SpecError(spec, at, "axes are separated by spaces, not commas", _COMMA.sub(" ", spec).strip())
        elif char == " " and opened and ")" in body[at:]:
            raise SpecError(spec, at, "an axis has no spaces inside", spec[:at] + spec[at:].lstrip())
    if opened:
        raise SpecError(spec, opened[-1], "`(` is never closed")


def _refuse_second_variadic(dims: Sequence[Dim], words: Sequence[Word]) -> None:
    variadic = [word for dim, word in zip(dims, words, strict=True) if dim.variadic]
    if len(variadic) > 1:
        first, second = variadic[:2]
        reason = f"`{first.text}` stands for any number of axes already, so nothing tells where `{second.text}` starts"
        raise second.error(reason, instead=second.text.replace("...", "_").replace("*", ""))


def _unified(dims: Sequence[Dim], words: Sequence[Word]) -> tuple[Dim, ...]:
    """One name is one size: `H=224` pins every other `H` of the spec."""
    pins: dict[str, Expr] = {}
    for dim, word in zip(dims, words, strict=True):
        if dim.name and dim.expr is not None and dim.expr.value is not None:
            pin = pins.setdefault(dim.name, dim.expr)
            if pin is not dim.expr:
                raise word.error(f"`{dim.name}` is {pin.value} already", instead=dim.name)
    return tuple(_pinned(dim, word, pins) for dim, word in zip(dims, words, strict=True))


def _pinned(dim: Dim, word: Word, pins: dict[str, Expr]) -> Dim:
    if dim.expr is None or not any(symbol.name in pins for symbol in dim.expr.symbols):
        return dim
    expr = dim.expr.replace({symbol: pins[symbol.name] for symbol in dim.expr.symbols if symbol.name in pins})
    if expr.value is None:
        return replace(dim, expr=expr)
    if expr.value < 0:
        raise word.error(f"a size is not negative, and this is {expr.value}")
    low, high = dim.low or 0, expr.value if dim.high is None else dim.high
    if not low <= expr.value <= high:
        raise word.error(f"`{dim.name}` is {expr.value} already", instead=str(dim.name))
    return replace(dim, expr=expr, low=None, high=None)
