"""Formulas found from numbers: a class is built at several sizes, and a polynomial is solved for exactly.

>>> found, note = fitted(constructor_of(Net, ("width",), {}), ("width",), refused)
>>> note
'fitted to 8 builds and checked on 2 more, as Net does not take symbols: TypeError: ...'

For constructors that need real numbers, and for arguments that only say how often (`range(n_layers)`): then the rest
stays symbolic, and each build is one with symbols. There are more builds than unknowns, so a count that is no such
polynomial is found out. `a//b` is an unknown as well, where a is a multiple of b in all builds (`d_model//n_heads`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from math import lcm
from typing import Any

import torch

from shapeflow.cost.formula import Formula, reduced
from shapeflow.cost.inventory import Count, Holding, Inventory, Member, inventory
from shapeflow.dims.expr import Expr
from shapeflow.errors import TargetError
from shapeflow.importer import describe
from shapeflow.trace.construct import Recipe
from shapeflow.trace.constructor import Constructor

MOST_DEGREE = 4
MOST_UNKNOWNS = 60
SPARE, CHECKS = 1, 2
"""More builds than unknowns, and builds that the solution has not seen."""
OTHERS = 3
"""Builds that have to agree with a formula that was found at special sizes."""
PATIENCE = 20
"""Sizes that are tried for each build that is needed: constructors refuse most where one size divides another."""
WIDTHS, COUNTS = (24, 48, 72, 96, 120, 144, 168, 240), (1, 2, 3, 4, 6, 8, 12)
COUNTING = re.compile(r"layers?$|depth|blocks|stages|repeats|num_hidden|^n_?layer")
"""Names of arguments that make a model larger and its build slower."""

Point = tuple[int, ...]
Rows = list[list[Fraction]]
Solved = tuple[list[int], Rows]
"""The columns that are solved for, and the combinations of rows that solve them."""


def fitted(
    constructor: Constructor, names: tuple[str, ...], refused: TargetError | None, *, counting: tuple[str, ...] = ()
) -> tuple[Inventory, str]:
    """The inventory with formulas for counts, and how they were found.

    `counting` are the names that vary between the builds, all when there are none; the others are symbols in each
    build. Raises TargetError where the counts are no polynomial that a few builds tell.
    """
    builds = _Builds(constructor, names, counting or names)
    only = counting[0] if len(counting) == 1 and refused is None else ""
    for degree in range(1, MOST_DEGREE + 1):
        for unknowns in _bases(builds, degree):
            if len(unknowns) > MOST_UNKNOWNS:
                continue
            found = _fit(builds, unknowns, only)
            if found is not None:
                return found, _note(builds, len(unknowns) + SPARE, refused, counting)
    raise TargetError(
        f"the parameters of {constructor.name} are no polynomial of degree {MOST_DEGREE} or less in {', '.join(names)}"
        + ("" if refused is None else f"; it does not take symbols: {_reason(refused)}")
    )


def checked(
    constructor: Constructor, names: tuple[str, ...], varying: tuple[str, ...], found: Inventory
) -> tuple[Inventory, str] | None:
    """Symbolic counts that were found where `varying` are small, if they hold at other sizes, and a note of that.

    Buffers that do not (tables as long as a width) are left out, and the note tells which. None where the counts of
    parameters differ. Raises TargetError where the constructor takes too few sizes to tell.
    """
    builds = _Builds(constructor, names, varying)
    points, others = builds.first(OTHERS)
    wrong: set[str] = set()
    for point, other in zip(points, others, strict=True):
        here = _at(found, dict(zip(varying, point, strict=True))).unique
        if len(here) != len(other.unique):
            return None
        for mine, real in zip(here, other.unique, strict=True):
            if _expr(mine.count) is not _expr(real.count):
                if not mine.is_buffer:
                    return None
                wrong.add(found.path(mine))
    note = f"checked at {OTHERS} other sizes of {', '.join(varying)}, as the constructor counts with it"
    if not wrong:
        return found, note
    return without(
        found, wrong
    ), f"{note}; buffers that no formula was found for are left out: {', '.join(sorted(wrong))}"


def without(found: Inventory, paths: set[str]) -> Inventory:
    """The inventory less the tensors of these names, which are not shared."""
    return found.only([number for number, each in enumerate(found.holdings) if found.path(each) not in paths])


def _expr(count: Count) -> Expr:
    return count if isinstance(count, Expr) else Expr.const(count)


@dataclass(frozen=True, slots=True)
class Monomial:
    """A product of names and quotients, each as the places of its names: (0,) is a, (0, 1) is a//b."""

    factors: tuple[tuple[int, ...], ...]

    def at(self, point: Point) -> int:
        value = 1
        for factor in self.factors:
            value *= point[factor[0]] if len(factor) == 1 else point[factor[0]] // point[factor[1]]
        return value

    def expr(self, symbols: list[Expr]) -> Expr:
        total = Expr.const(1)
        for factor in self.factors:
            total = total * (symbols[factor[0]] if len(factor) == 1 else symbols[factor[0]] // symbols[factor[1]])
        return total


class _Builds:
    """Builds at points that the constructor takes, more of them as they are asked for."""

    def __init__(self, constructor: Constructor, names: tuple[str, ...], varying: tuple[str, ...]) -> None:
        self.constructor, self.names, self.varying = constructor, names, varying
        self.points: list[Point] = []
        self.found: list[Inventory] = []
        self.last: Exception | None = None
        self._source = _points(varying)
        self._tried: set[Point] = set()

    def first(self, number: int) -> tuple[list[Point], list[Inventory]]:
        """So many builds, the same ones each time. Raises TargetError when too few sizes are taken."""
        patience = PATIENCE * number
        while len(self.points) < number:
            point = next(self._source)
            patience -= 1
            if patience < 0:
                raise TargetError(self._refused()) from self.last
            if point not in self._tried:
                self._tried.add(point)
                self._build(point)
        return self.points[:number], self.found[:number]

    def _build(self, point: Point) -> None:
        try:
            made = self._made(dict(zip(self.varying, point, strict=True)))
        except TargetError as error:
            if self.varying == self.names:
                raise
            self.last = error
            return
        except Exception as error:  # whatever a constructor raises for sizes that it does not take: others are tried
            self.last = error
            return
        self.points.append(point)
        self.found.append(made)

    def _made(self, sizes: Mapping[str, int]) -> Inventory:
        if self.varying != self.names:
            return _at(
                inventory(Recipe(self.constructor, {**dict.fromkeys(self.names), **sizes}).built().module), sizes
            )
        try:
            with torch.device("meta"):
                return inventory(self.constructor(sizes))
        except TargetError:  # of the zoo: a name that is no argument
            raise
        except NotImplementedError:  # a constructor that needs values
            return inventory(self.constructor(sizes))

    def _refused(self) -> str:
        why = "" if self.last is None else f": {describe(self.last)}"
        sizes = ", ".join(self.varying)
        return (
            f"{self.constructor.name} was built at {len(self.points)} sizes of {sizes} only, too few for a formula{why}"
        )


def _at(found: Inventory, sizes: Mapping[str, int]) -> Inventory:
    """With numbers for these names where they are still symbols."""
    known = {symbol: Expr.const(size) for name, size in sizes.items() for symbol in Expr.symbol(name).symbols}

    def number(count: Count) -> Count:
        return count.replace(known) if isinstance(count, Expr) else count

    return found.with_holdings(each._replace(count=number(each.count)) for each in found.holdings)


def _points(names: tuple[str, ...]) -> Iterator[Point]:
    """Sizes to try: small ones for what counts, of many divisors for widths, the same in each run."""
    choice = random.Random(15)
    while True:
        yield tuple(choice.choice(range(1, 10) if COUNTING.search(name) else WIDTHS + COUNTS) for name in names)


def _bases(builds: _Builds, degree: int) -> Iterator[list[Monomial]]:
    """What a count may be made of: products of names, and then of quotients too."""
    plain = [(place,) for place in range(len(builds.varying))]
    products = [Monomial(each) for size in range(degree + 1) for each in combinations_with_replacement(plain, size)]
    yield products
    points, _ = builds.first(len(products))
    pairs = [*permutations(range(len(builds.varying)), 2)]
    quotients = [pair for pair in pairs if all(point[pair[0]] % point[pair[1]] == 0 for point in points)]
    if quotients and degree < MOST_DEGREE:
        factors = [*plain, *quotients]
        more = [Monomial(each) for size in range(degree + 1) for each in combinations_with_replacement(factors, size)]
        yield [*products, *(each for each in more if each not in products)]


def _fit(builds: _Builds, unknowns: list[Monomial], counting: str) -> Inventory | None:
    """The inventory with formulas, or None where these unknowns do not give the counts."""
    number = len(unknowns) + SPARE
    points, found = builds.first(number + CHECKS)
    solved = _solved([[Fraction(each.at(point)) for each in unknowns] for point in points[:number]])
    for grain in GRAINS:
        counts = [_counts(each, grain) for each in found]
        if grain is GRAINS[0] and any(each.keys() != counts[0].keys() for each in counts):
            continue
        formulas = _fitted(builds, counts, unknowns, solved, counting)
        if formulas is not None:
            return _with_formulas(found[-1], formulas) if grain is GRAINS[0] else _gathered(found[-1], formulas)
    return None


def _fitted(
    builds: _Builds, counts: list[dict[Key, Count]], unknowns: list[Monomial], solved: Solved, counting: str
) -> dict[Key, Formula] | None:
    """A formula for each key, or None where one of them has none. What a build does not have counts 0 there."""
    checks = builds.points[len(counts) - CHECKS : len(counts)]
    symbols = [Expr.symbol(name) for name in builds.varying]
    formulas = {}
    for key in dict.fromkeys(key for each in counts for key in each):
        values = [each.get(key, 0) for each in counts]
        solution = _formula(values[:-CHECKS], unknowns, *solved, symbols, builds.names)
        if solution is None or not _holds(solution, builds, checks, values[-CHECKS:]):
            return None
        formulas[key] = replace(solution, counting=counting)
    return formulas


def _solved(matrix: Rows) -> tuple[list[int], Rows]:
    """Row reduction: the columns that are solved for, and the combinations of rows that solve them.

    The rows behind those of the solved columns combine to nothing: what they make of the values has to be 0.
    """
    size, width = len(matrix), len(matrix[0])
    rows = [row + [Fraction(int(i == j)) for j in range(size)] for i, row in enumerate(matrix)]
    pivots: list[int] = []
    for column in range(width):
        place = len(pivots)
        below = next((i for i in range(place, size) if rows[i][column]), None)
        if below is None:
            continue
        rows[place], rows[below] = rows[below], rows[place]
        head = rows[place][column]
        rows[place] = [value / head for value in rows[place]]
        for i, row in enumerate(rows):
            if i != place and row[column]:
                factor = row[column]
                rows[i] = [value - factor * top for value, top in zip(row, rows[place], strict=True)]
        pivots.append(column)
    return pivots, [row[width:] for row in rows]


def _formula(
    values: list[Count], unknowns: list[Monomial], pivots: list[int], steps: Rows, symbols: list[Expr], names: Any
) -> Formula | None:
    """The polynomial with these values, or None where there is none."""
    exprs = [_expr(value) for value in values]
    if any(_combined(row, exprs)[0].constant != 0 for row in steps[len(pivots) :]):
        return None
    parts = [(unknowns[column], *_combined(row, exprs)) for column, row in zip(pivots, steps, strict=False)]
    common = lcm(*(divisor for _, _, divisor in parts))
    total = Expr.const(0)
    for monomial, numerator, divisor in parts:
        total = total + numerator * (common // divisor) * monomial.expr(symbols)
    return reduced(total, common, names)


def _combined(row: list[Fraction], values: list[Expr]) -> tuple[Expr, int]:
    """A sum of multiples as a numerator and a divisor."""
    common = lcm(*(each.denominator for each in row))
    total = Expr.const(0)
    for factor, value in zip(row, values, strict=True):
        if factor:
            total = total + value * int(factor * common)
    return total, common


def _holds(formula: Formula, builds: _Builds, points: list[Point], values: list[Count]) -> bool:
    for point, value in zip(points, values, strict=True):
        sizes = {symbol: Expr.const(size) for symbol, size in _symbols(builds, point).items()}
        if formula.expr.replace(sizes) is not _expr(value) * formula.divisor:
            return False
    return True


def _symbols(builds: _Builds, point: Point) -> dict[Any, int]:
    return {
        symbol: size for name, size in zip(builds.varying, point, strict=True) for symbol in Expr.symbol(name).symbols
    }


# What is counted: each tensor under its path, or with a star for the numbers in it where those differ

Key = tuple[str, str, str, bool, bool, str, int]
"""Path of the module, its kind, name of the tensor, trainable, a buffer, dtype, bytes of a number."""


def starred(path: str) -> str:
    """`layers.3.norm` as `layers.*.norm`."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)


def _numbered(name: str) -> str:
    """`weight_ih_l1_reverse`, a parameter of the second layer of a recurrent module, as `weight_ih_l*_reverse`."""
    return re.sub(r"\d+(?=$|_)", "*", name)


Grain = tuple[Callable[[str], str], Callable[[str], str]]
GRAINS: tuple[Grain, ...] = ((str, str), (starred, starred), (starred, _numbered))
"""How paths of modules and names of tensors are gathered, the finest first: what is counted differs between builds."""


def _counts(found: Inventory, grain: Grain) -> dict[Key, Count]:
    of_path, of_name = grain
    total: dict[Key, Count] = {}
    for each in found.unique:
        path, kind = found.paths[each.module], found.members[each.module].kind
        size = getattr(torch, each.dtype).itemsize
        key = (of_path(path), kind, of_name(each.name), each.trainable, each.is_buffer, each.dtype, size)
        total[key] = total.get(key, 0) + each.count
    return total


def _with_formulas(found: Inventory, formulas: Mapping[Key, Formula]) -> Inventory:
    """The last build with formulas in the place of its numbers."""
    by_name = {(path, name): (formula, size) for (path, _, name, _, _, _, size), formula in formulas.items()}

    def changed(each: Holding) -> Holding:
        first = known.holdings[each.first]
        formula, size = by_name[known.paths[first.module], first.name]
        return each._replace(shape=(), count=formula, nbytes=formula * size)

    known = found.only([number for number, each in enumerate(found.holdings) if each.count is not None])
    return known.with_holdings(map(changed, known.holdings))


def _gathered(found: Inventory, formulas: Mapping[Key, Formula]) -> Inventory:
    """Where the builds differ in their layers: one member for all of `layers.*`."""
    kinds = dict(zip(map(starred, found.paths), found.modules.kind, strict=True))
    kinds |= {path: kind for path, kind, *_ in formulas}
    paths = [*dict.fromkeys(each for path, *_ in formulas for each in _above(path))]
    numbers = {path: number for number, path in enumerate(paths)}
    members = [
        Member(path.rpartition(".")[2], kinds.get(path, ""), numbers[path.rpartition(".")[0]], number)
        for path, number in numbers.items()
    ]
    holdings = [
        Holding(numbers[path], name, place, (), formula, formula * size, dtype, trainable, is_buffer)
        for place, ((path, _, name, trainable, is_buffer, dtype, size), formula) in enumerate(formulas.items())
    ]
    return Inventory.of(members, holdings)


def _above(path: str) -> list[str]:
    """`a.*.b` is in the model, in `a`, in `a.*`, and is itself the last."""
    return ["", *(path[:end] for end, letter in enumerate(path) if letter == "."), *([path] if path else [])]


def _note(builds: _Builds, number: int, refused: TargetError | None, counting: tuple[str, ...]) -> str:
    sizes = ", ".join(counting)
    why = (
        f"{sizes} becomes a number in the constructor"
        if refused is None
        else f"it does not take symbols: {_reason(refused)}"
    )
    return f"fitted to {number} builds and checked on {CHECKS} more, as {why}"


def _reason(refused: TargetError) -> str:
    """The first line of what the constructor raised."""
    return str(refused).splitlines()[0].partition("could not be built: ")[2] or str(refused).splitlines()[0]
