"""`Expr` as a person writes it: `4*d_model^2 + 9`, `(H - 1)//2 + 1`, `max(H - 2, 0)`.

Higher degree first, then alphabetical; `text.parse` reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from shapeflow.dims.atoms import Atom, FloorDiv, Max, Min, Mod, Symbol
from shapeflow.dims.polynomial import reading_order

if TYPE_CHECKING:
    from shapeflow.dims.expr import Expr
    from shapeflow.dims.polynomial import Monomial, Terms


class Binding(IntEnum):
    """How tightly a text holds together: `a + b`; `a*b`, `a//b`, `a % b`; names, numbers, powers and calls."""

    SUM = 0
    PRODUCT = 1
    WORD = 2


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    binding: Binding

    def within(self, binding: Binding) -> str:
        return self.text if self.binding >= binding else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Term:
    """One of the texts that a sum adds or takes away."""

    negative: bool
    text: Text
    is_division: bool = False  # `-H//2` would read as `(-H)//2`

    def first(self) -> str:
        if not self.negative:
            return self.text.text
        return "-" + self.text.within(Binding.WORD if self.is_division else Binding.PRODUCT)

    def next(self) -> str:
        return (" - " if self.negative else " + ") + self.text.within(Binding.PRODUCT)


def show(expr: Expr) -> str:
    return _sum(expr.coefficients).text


def _sum(terms: Terms) -> Text:
    terms = _with_whole_inside(terms)
    constant = terms.get((), 0)
    parts: list[Term] = []
    for monomial in sorted(filter(None, terms), key=reading_order):
        atom, coefficient = _sole_division(monomial), terms[monomial]
        taken = 0 if atom is None else _whole_inside(atom, coefficient, constant)
        constant += taken * coefficient
        parts.append(_term(monomial, coefficient, taken))
    if constant or not parts:
        parts.append(Term(constant < 0, Text(str(abs(constant)), Binding.WORD)))
    return _added(parts)


def _with_whole_inside(terms: Terms) -> Terms:
    """`2*d + (2*d)//3` as `(8*d)//3`: the one division, if all that it divides stands beside it too."""
    found = [atom for monomial in terms if monomial and (atom := _sole_division(monomial)) is not None]
    if len(found) != 1 or terms[((found[0], 1),)] != 1 or found[0].denominator.constant is None:
        return terms
    atom, divided = found[0], found[0].numerator.coefficients
    if any(not monomial or terms.get(monomial, 0) <= 0 for monomial in divided):
        return terms
    whole = {monomial: coefficient for monomial, coefficient in terms.items() if monomial in divided}
    division = FloorDiv(atom.numerator + atom.denominator * atom.numerator.from_terms(whole), atom.denominator)
    rest = {monomial: coefficient for monomial, coefficient in terms.items() if monomial not in whole}
    return {((division, 1),) if monomial == ((atom, 1),) else monomial: c for monomial, c in rest.items()}


def _added(parts: list[Term]) -> Text:
    """Starting with something positive where there is one: `1 - B`, not `-B + 1`."""
    first = next((part for part in parts if not part.negative), parts[0])
    text = first.first() + "".join(part.next() for part in parts if part is not first)
    is_sum = len(parts) > 1 or first.negative
    return Text(text, Binding.SUM if is_sum else first.text.binding)


def _sole_division(monomial: Monomial) -> FloorDiv | None:
    atom, power = monomial[0]
    return atom if len(monomial) == 1 and power == 1 and isinstance(atom, FloorDiv) else None


def _whole_inside(atom: FloorDiv, coefficient: int, constant: int) -> int:
    """1 to write `(H + 1)//2` as `(H - 1)//2` and 1 more in the sum: it is a ceil division, or no constant is left."""
    if not atom.numerator.coefficients.get((), 0) or atom.denominator.constant is None:
        return 0
    return int(constant == -coefficient or (abs(coefficient) == 1 and _is_ceil(atom)))


def _is_ceil(atom: FloorDiv) -> bool:
    divisor = atom.denominator.constant
    return divisor is not None and atom.numerator.coefficients.get((), 0) == divisor - 1


def _term(monomial: Monomial, coefficient: int, taken: int) -> Term:
    if abs(coefficient) == 1 and len(monomial) == 1 and monomial[0][1] == 1:
        atom = monomial[0][0]
        text = _division(atom, taken) if isinstance(atom, FloorDiv) else _atom(atom)
        return Term(coefficient < 0, text, is_division=isinstance(atom, FloorDiv | Mod))
    factors = [str(abs(coefficient))] if abs(coefficient) != 1 else []
    for atom, power in monomial:
        text = _division(atom, taken) if taken and isinstance(atom, FloorDiv) else _atom(atom)
        factors.append(text.within(Binding.WORD) + (f"^{power}" if power > 1 else ""))
    return Term(coefficient < 0, Text("*".join(factors), Binding.PRODUCT if len(factors) > 1 else Binding.WORD))


def _atom(atom: Atom) -> Text:
    match atom:
        case Symbol():
            return Text(atom.name, Binding.WORD)
        case FloorDiv():
            text = _division(atom, 1 if _is_ceil(atom) else 0)
            return Text(f"{text.text} + 1", Binding.SUM) if _is_ceil(atom) else text
        case Mod():
            numerator = _sum(_around_zero(atom.numerator.coefficients, atom.denominator.constant))
            denominator = _sum(atom.denominator.coefficients)
            return Text(f"{numerator.within(Binding.WORD)} % {denominator.within(Binding.WORD)}", Binding.PRODUCT)
        case Max():
            return Text(f"max({_arguments(atom.args)})", Binding.WORD)
        case Min():
            return Text(f"min({_arguments(atom.args)})", Binding.WORD)


def _division(atom: FloorDiv, taken: int) -> Text:
    numerator = atom.numerator - taken * atom.denominator if taken else atom.numerator
    top, bottom = _sum(numerator.coefficients), _sum(atom.denominator.coefficients)
    return Text(f"{top.within(Binding.WORD)}//{bottom.within(Binding.WORD)}", Binding.PRODUCT)


def _around_zero(terms: Terms, divisor: int | None) -> Terms:
    """The same remainder by smaller coefficients: `(7*T) % 8` is `(-T) % 8`."""
    if divisor is None:
        return terms
    return {monomial: c - divisor if 2 * c > divisor else c for monomial, c in terms.items()}


def _arguments(args: tuple[Expr, ...]) -> str:
    """Numbers last."""
    return ", ".join(show(arg) for arg in sorted(args, key=lambda arg: arg.constant is not None))
