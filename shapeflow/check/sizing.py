"""Arguments for a constructor that nobody gave any: small sizes that fit each other, chosen by kind and name.

>>> [str(each) for each in sized(MultiHeadAttention)]
['d_model=64, n_heads=4', 'd_model=128, n_heads=8']

The first is the best guess; the others tell whether a crash is the guess's fault.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shapeflow.dims.annotation import signature_of, specs_in
from shapeflow.errors import InputError, TargetError

ROLES = (
    (r"(n|num)_?(kv|key_value)_?heads?|.*kv_heads", (2, 2, 4)),
    (r"(n|num)_?heads?|heads?|h", (4, 4, 8)),
    (r"(n|num)_?(layers?|blocks?)|layers?|depth|blocks?", (2, 2, 2)),
    (r"d_?head|head_?(dim|size)|dim_?head|d_?k|d_?v|d_?q", (16, 16, 16)),
    (r".*(max|block|context|seq)\w*(len|length|size|positions?)|.*positions?|(seq|context)_?len\w*", (64, 64, 128)),
    (r".*vocab\w*|n_?tokens|num_?(tokens|embeddings)", (100, 64, 128)),
    (r".*experts", (4, 4, 4)),
    (r"top_?k|.*active\w*", (2, 2, 2)),
    (r"kernel\w*|k", (3, 3, 3)),
    (r"stride|dilation|.*groups", (1, 1, 1)),
    (r"pad|padding", (1, 1, 1)),
)
"""Names of arguments that are no widths, with the sizes of each guess. 4 heads divide every width below."""
COUNTS = re.compile(
    r"(n|num)_?(layers?|blocks?)|layers?|depth|blocks?|.*experts|top_?k|kernel\w*|k|stride|dilation|.*groups|pad\w*"
)
"""Those that say how often, or how a convolution walks: no formula is wanted of them."""
WIDTHS = ((64, 96, 48, 32, 80), (64,), (128, 192, 96, 160))
"""Widths of a guess, in the order of the arguments: mutually different, all equal, and larger ones."""
FRACTION = re.compile(r".*(drop|rate|prob)\w*|p")


@dataclass(frozen=True, slots=True)
class Sized:
    """One guess: the arguments that the constructor cannot do without."""

    arguments: Mapping[str, object]

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())


def filled(signature: inspect.Signature) -> Sized:
    """Values for the arguments of a function that are needed and are no tensors; empty where one is no number."""
    others = [each for each in signature.parameters.values() if specs_in(each.annotation) is None]
    try:
        return Sized(_Filler(0).arguments(inspect.Signature(others)))
    except _Unknown:
        return Sized({})


class _Unknown(Exception):
    """An argument that no number can stand for."""


def sized(kind: type) -> Iterator[Sized]:
    """Guesses for the arguments that a class needs, the best first. Raises TargetError when one is no number."""
    try:
        signature = signature_of(kind)
    except InputError:  # an annotation that does not resolve: its name has to do
        signature = inspect.signature(kind)
    seen: list[Mapping[str, object]] = []
    for guess in range(len(WIDTHS)):
        filler = _Filler(guess)
        try:
            arguments = filler.arguments(signature)
        except _Unknown as error:
            raise TargetError(f"{kind.__name__} needs {error}, which no number can stand for") from error
        if arguments not in seen:
            seen.append(arguments)
            yield Sized(arguments)


class _Filler:
    """Fills the parameters of one guess; widths are handed out one after the other."""

    def __init__(self, guess: int) -> None:
        self.guess = guess
        self._sizes: dict[str, int] = {}
        self._given = 0

    def arguments(self, signature: inspect.Signature) -> dict[str, object]:
        found: dict[str, object] = {}
        for each in signature.parameters.values():
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                continue
            if each.default is each.empty:
                found[each.name] = self._value(each.name, each.annotation)
        return found

    def _value(self, name: str, annotation: Any) -> object:
        origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is bool:
            return False
        if annotation is float or (annotation is inspect.Parameter.empty and FRACTION.fullmatch(name)):
            return 0.0 if FRACTION.fullmatch(name) else 1.0
        if annotation is int or annotation is inspect.Parameter.empty:
            return self._size(name)
        if origin is typing.Literal:
            return inner[0]
        if origin in (typing.Union, types.UnionType):
            return None if type(None) in inner else self._value(name, inner[0])
        if origin in (list, tuple) and inner[:1] == (int,):
            count = len(inner) if origin is tuple and inner[1:] != (...,) else 2
            return origin(self._new_size(name) for _ in range(count))
        if inspect.isclass(annotation) and dataclasses.is_dataclass(annotation):
            return annotation(**self.arguments(signature_of(annotation)))
        kind = getattr(annotation, "__name__", str(annotation))
        raise _Unknown(f"{name}: {kind}")

    def _size(self, name: str) -> int:
        """A name has one size, also where a configuration has a field of that name."""
        if name not in self._sizes:
            self._sizes[name] = self._new_size(name)
        return self._sizes[name]

    def _new_size(self, name: str) -> int:
        for pattern, sizes in ROLES:
            if re.fullmatch(pattern, name):
                return sizes[self.guess]
        widths = WIDTHS[self.guess]
        size = widths[self._given % len(widths)]
        self._given += 1
        return size
