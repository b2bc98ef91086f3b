"""Text to `Expr`: names, whole numbers, `+ - * // %`, `^` or `**`, brackets, `max(...)` and `min(...)`.

    assert parse("(H - 1)//2 + 1") is (Expr.symbol("H") + 1) // 2

Reads back what `show` prints, with Python's precedence; a fault is a `SpecError` that points at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from shapeflow.dims.expr import Expr, maximum, minimum
from shapeflow.dims.printing import show
from shapeflow.errors import SpecError

__all__ = ["parse", "show"]

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[^\W\d]\w*)|(?P<operator>\*\*|//|[-+*%^(),])|(?P<end>$))")
_CALLS: dict[str, Callable[[Expr, Expr], Expr]] = {"max": maximum, "min": minimum}
_MOST_POWER, _MOST_DEPTH = 64, 40


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse(text: str, symbols: Mapping[str, Expr] | None = None) -> Expr:
    """The expression; a name stands for `symbols[name]` where given (pinned ones, say), else for a free symbol.

    >>> parse("4*d^2 + max(H - 2, 0)")
    4*d^2 + max(H - 2, 0)
    """
    return _Parser(text, symbols or {}).parse()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse_character(text, position)
        kind = match.lastgroup or "end"
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        position = match.end()
    return tokens


def _refuse_character(text: str, position: int) -> NoReturn:
    position += len(text[position:]) - len(text[position:].lstrip())
    reasons = {"/": "sizes are whole numbers: divide with //", ".": "sizes are whole numbers"}
    raise SpecError(text, position, reasons.get(text[position], f"{text[position]!r} has no meaning in an expression"))


class _Parser:
    """Recursive descent, a method for each level of precedence."""

    def __init__(self, text: str, symbols: Mapping[str, Expr]) -> None:
        self.text, self.symbols = text, symbols
        self.tokens, self.index, self.depth = _tokens(text), 0, 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.index]

    def parse(self) -> Expr:
        result = self.sum()
        if self.next.kind != "end":
            before = self.tokens[self.index - 1]
            closes = self.next.text == ")"
            reason = "nothing opened this bracket" if closes else f"an operator is missing after {before.text!r}"
            self.refuse(self.next, reason, "" if closes else self.with_star())
        return result

    def with_star(self) -> str:
        """The text with `*` where two values meet, as in `2 T` or `2T`."""
        before, after = self.tokens[self.index - 1], self.next
        if after.kind == "operator" and after.text != "(":
            return ""
        end = before.position + len(before.text)
        return f"{self.text[:end]}*{self.text[after.position :]}"

    def sum(self) -> Expr:
        result = self.product()
        while self.next.text in ("+", "-"):
            result = result + self.product() if self.take().text == "+" else result - self.product()
        return result

    def product(self) -> Expr:
        result = self.signed()
        while self.next.text in ("*", "//", "%"):
            operator = self.take()
            start, factor = self.next, self.signed()
            if operator.text == "*":
                result = result * factor
            elif factor.constant == 0:
                self.refuse(start, "division by zero")
            else:
                result = result // factor if operator.text == "//" else result % factor
        return result

    def signed(self) -> Expr:
        negative = False
        while self.next.text in ("+", "-"):
            negative ^= self.take().text == "-"
        return -self.power() if negative else self.power()

    def power(self) -> Expr:
        base = self.value()
        if self.next.text not in ("^", "**"):
            return base
        self.take()
        start = self.next
        exponent = self.nested(self.signed).constant
        if exponent is None or exponent < 0:
            self.refuse(start, "a power is a whole number of at least 0")
        if exponent > _MOST_POWER:
            self.refuse(start, f"a power is at most {_MOST_POWER}")
        return base**exponent

    def value(self) -> Expr:
        token = self.take()
        if token.kind == "number":
            return Expr.const(int(token.text))
        if token.kind == "name":
            return (
                self.call(token) if self.next.text == "(" else self.symbols.get(token.text) or Expr.symbol(token.text)
            )
        if token.text == "(":
            result = self.nested(self.sum)
            self.close(token)
            return result
        where = "at the end" if token.kind == "end" else f"before {token.text!r}"
        self.refuse(token, f"a size is missing {where}" if self.text.strip() else "an expression is empty")

    def call(self, name: _Token) -> Expr:
        if name.text not in _CALLS:
            self.refuse(name, f"{name.text!r} is no function: there are max and min")
        bracket = self.take()
        result = self.nested(self.sum)
        while self.next.text == ",":
            self.take()
            result = _CALLS[name.text](result, self.nested(self.sum))
        self.close(bracket)
        return result

    def nested(self, rule: Callable[[], Expr]) -> Expr:
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            self.refuse(self.tokens[self.index - 1], f"more than {_MOST_DEPTH} brackets within each other")
        result = rule()
        self.depth -= 1
        return result

    def close(self, bracket: _Token) -> None:
        if self.next.kind == "end":
            self.refuse(bracket, "this bracket is never closed")
        if self.next.text != ")":
            self.refuse(self.next, f"expected ) before {self.next.text!r}")
        self.take()

    def take(self) -> _Token:
        token = self.next
        self.index = min(self.index + 1, len(self.tokens) - 1)
        return token

    def refuse(self, token: _Token, reason: str, hint: str = "") -> NoReturn:
        raise SpecError(self.text, token.position, reason, hint)
