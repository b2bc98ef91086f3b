"""Values of a JSON document that know where they stand, so that a file that is wrong is told by its place.

>>> Item({"nodes": [{"name": 3}]}, "gpt.json")["nodes"].items()[0]["name"].text()
FormatError: gpt.json: nodes[0].name is a whole number; it has to be a text
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from shapeflow.dims.expr import Expr
from shapeflow.dims.tree import from_tree
from shapeflow.errors import FormatError

Value = TypeVar("Value")

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a fraction",
    bool: "true or false",
}


@dataclass(frozen=True, slots=True)
class Item:
    """`value` at `place` in the file `source`."""

    value: Any
    source: str
    place: str = ""

    def __getitem__(self, key: str) -> Item:
        place = f"{self.place}.{key}" if self.place else key
        if key not in self._of(dict):
            raise FormatError(f"{self.source}: {place} is missing")
        return Item(self.value[key], self.source, place)

    def items(self) -> list[Item]:
        """The items of a list."""
        return [Item(value, self.source, f"{self.place}[{i}]") for i, value in enumerate(self._of(list))]

    def fields(self) -> dict[str, Item]:
        """The fields of an object, by name."""
        return {key: self[key] for key in self._of(dict)}

    def text(self) -> str:
        return self._of(str)

    def number(self) -> int:
        return self._of(int)

    def tree(self) -> Expr:
        """A size, exact."""
        try:
            return from_tree(self.value)
        except ValueError as error:
            self.refuse(f"does not read: {error}")

    def maybe(self, read: Callable[[Item], Value]) -> Value | None:
        """None where the value is null."""
        return None if self.value is None else read(self)

    def refuse(self, reason: str) -> NoReturn:
        raise FormatError(f"{self.source}: {self.place or 'the document'} {reason}")

    def _of(self, kind: type[Value]) -> Value:
        if type(self.value) is not kind:  # a bool is an int to isinstance
            found = _KINDS.get(type(self.value), "null")
            self.refuse(f"is {found}; it has to be {_KINDS[kind]}")
        return self.value
