"""Runs at sizes that flip what was asked of them: which sizes a model takes, and where it crashes.

>>> found = Explorer(Search(subject, bound, {}, None), bound).explore()
>>> [str(need.relation) for need in found.needs], [need.crash.sizes for need in found.needs]
(['T <= 512'], [{'B': 3, 'T': 513}])

Concolic: each run follows one path of the code for all sizes that answer its questions alike. A question is flipped
with sizes next to those of the run; the run at these tells whether the answer is needed (it crashes) or a branch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shapeflow.check.sizes import Range, Ranges, Sizes, holds, samples, violation
from shapeflow.check.values import Reach, reaches
from shapeflow.dims.env import Guard
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.dims.spec import TensorSpec
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.conditions import of_sizes
from shapeflow.trace.inputs import Bound
from shapeflow.trace.source import Place
from shapeflow.trace.structure import tensors_in
from shapeflow.trace.tracer import Search

MOST_RUNS = 120
SAMPLES = 4
SAMPLING = 0.5
"""Seconds for random sizes: a large model gets fewer of them, but one."""
LOOP_RUNS = 3
"""A size that was fixed this often at one line, and each time ran through, is the length of a loop."""
LONG = 1009
"""A length that tables are often too short for."""


class OutOfTime(BaseException):
    """The limit is over: not an `Exception`, so that no `except` of a model's code can swallow it."""


@dataclass(frozen=True, slots=True)
class Crash:
    """A run that raised: the sizes, and the run with names on its shapes."""

    sizes: Sizes
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Need:
    """A condition without which the model crashes: `guard` tells who asked, `reach` which table is too short."""

    relation: Relation
    crash: Crash
    guard: Guard | None = None
    reach: Reach | None = None

    @property
    def place(self) -> Place | None:
        """The line of code that asks."""
        if self.reach is not None:
            return self.reach.reader.place
        return self.guard.where[0] if self.guard is not None else None  # type: ignore[index]  # the tracer's own

    @property
    def operator(self) -> str:
        """The operator that asks, `""` for Python's own `if`."""
        if self.reach is not None:
            return self.reach.reader.operator
        return self.guard.where[1] if self.guard is not None else ""  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class RankChange:
    """An output whose shape at these sizes is not what the general run promises."""

    sizes: Sizes
    expected: tuple[Expr, ...]
    found: tuple[int, ...]


@dataclass(slots=True)
class Exploration:
    """Everything that the runs showed. `base` is the general run that got through, if one did."""

    base: Attempt | None = None
    base_sizes: Sizes = field(default_factory=dict)
    always: Crash | None = None
    needs: list[Need] = field(default_factory=list)
    branches: list[Guard] = field(default_factory=list)
    loops: dict[str, tuple[Guard, set[int]]] = field(default_factory=dict)
    lows: Sizes = field(default_factory=dict)
    highs: Sizes = field(default_factory=dict)
    joint: list[Relation] = field(default_factory=list)
    changes: list[RankChange] = field(default_factory=list)
    strays: list[Crash] = field(default_factory=list)
    runs: int = 0
    finished: bool = True

    @property
    def general(self) -> Attempt | None:
        """The run that stands for all sizes: the one that got through, else the first, as far as it came."""
        return self.base or (None if self.always is None else self.always.attempt)


class Explorer:
    """See the module's docstring. `clock` raises OutOfTime when the time is over."""

    def __init__(self, search: Search, bound: Bound, clock: Callable[[str], None] = lambda _: None) -> None:
        self.search, self.clock = search, clock
        self.ranges: Ranges = declared_ranges(bound)
        self.found = Exploration()
        self._asked: set[Relation] = set()
        self._seconds = 0.0
        self._fixed_at: dict[Place, list[Guard]] = {}

    def explore(self) -> Exploration:
        """Run until every question is flipped, or the time or the number of runs is over."""
        try:
            self._first()
            if self.found.base is not None:
                self._flip_all()
                self._least_sizes()
                self._sample()
        except OutOfTime:
            self.found.finished = False
        return self.found

    # Runs

    def _first(self) -> None:
        start = time.monotonic()
        attempt = self.search.run()
        self._seconds = time.monotonic() - start
        self.found.runs += 1
        sizes = self._sizes_of(attempt)
        if attempt.error is None:
            self.found.base, self.found.base_sizes = attempt, sizes
            self._note_reaches(attempt, sizes)
            return
        first = self.search.first
        assert first is not None
        self.found.always = Crash(self._sizes_of(first), first)

    def _sizes_of(self, attempt: Attempt) -> Sizes:
        return {name: size for name, size in attempt.hints.chosen.items() if name in self.ranges}

    def _run(self, sizes: Sizes, *, pinned: bool = False) -> Attempt:
        self.clock("")
        if self.found.runs >= MOST_RUNS:
            raise OutOfTime
        self.found.runs += 1
        return self.search.at(sizes, pinned=pinned)

    def _crash(self, sizes: Sizes) -> tuple[Crash | None, Attempt]:
        """The crash at these sizes, if plain numbers crash too; and the run with names."""
        attempt = self._run(sizes)
        if attempt.error is None:
            return None, attempt
        real = self._run(sizes, pinned=True)
        return (Crash(sizes, attempt), attempt) if real.error is not None else (None, real)

    def _note_reaches(self, attempt: Attempt, sizes: Sizes) -> None:
        """Tables that indices made of sizes leave at some sizes: no fake tensor crashes there, a real one does."""
        for reach in reaches(attempt):
            if any(need.relation == reach.need for need in self.found.needs):
                continue
            broken = sizes if holds(reach.need, sizes) is False else violation(reach.need, sizes, self.ranges)
            if broken is sizes:  # the general run itself reads beyond the table: go on inside of it
                self.found.base_sizes = violation(reach.need.negated, sizes, self.ranges) or sizes
            if broken is not None:
                self.found.needs.append(Need(reach.need, Crash(broken, attempt), reach=reach))

    # Questions

    def _flip_all(self) -> None:
        base = self.found.base
        assert base is not None
        waiting = deque([(self._new_guards(base), self.found.base_sizes)])
        while waiting:
            guards, sizes = waiting.popleft()
            for guard in guards:
                beyond = self._flip(guard, guards, sizes)
                if beyond is not None:
                    waiting.append(beyond)

    def _new_guards(self, attempt: Attempt) -> list[Guard]:
        new = [guard for guard in of_sizes(attempt.env) if self._is_new(guard.relation)]
        self._asked.update(guard.relation for guard in new)
        return new

    def _is_new(self, relation: Relation) -> bool:
        return relation not in self._asked and relation.negated not in self._asked

    def _flip(self, guard: Guard, beside: list[Guard], sizes: Sizes) -> tuple[list[Guard], Sizes] | None:
        """Run where the guard does not hold; the new questions of that run when it gets through."""
        known = self._needed()
        keep = [*(each.relation for each in beside if each is not guard), *known]
        broken = violation(guard.relation, sizes, self.ranges, keep, fixed=self.found.loops)
        if broken is None or any(holds(relation, broken) is False for relation in known):
            return None
        crash, attempt = self._crash(broken)
        if crash is not None:
            self.found.needs.append(Need(guard.relation, crash, guard=guard))
            return None
        self._note_branch(guard, broken)
        self._note_reaches(attempt, broken)
        return self._new_guards(attempt), broken

    def _note_branch(self, guard: Guard, sizes: Sizes) -> None:
        """Both answers run through. Where a size was fixed again and again, a loop ran over it."""
        self.found.branches.append(guard)
        where, operator = guard.where  # type: ignore[misc]  # the tracer's own
        name = _fixed_name(guard.relation)
        if name is None or where is None or operator:
            return
        fixed = self._fixed_at.setdefault(where, [])
        fixed.append(guard)
        if len(fixed) >= LOOP_RUNS:
            tried = self.found.loops.setdefault(name, (fixed[0], set()))[1]
            tried.update({sizes[name], self.found.base_sizes[name]})

    # Sizes

    def _least_sizes(self) -> None:
        """Every name at its least size, alone and together: the general run took it as at least 2."""
        base = self.found.base_sizes
        for name in base:
            self._least(name)
        together = {name: self.found.lows.get(name, base[name]) for name in base}
        if len(base) > 1 and self._allowed(together) and not self._compare(together):
            self._join(together)

    def _join(self, sizes: Sizes) -> None:
        """Each name alone may be this small, all together not: the fewest that crash give `B*T >= 2`."""
        base = self.found.base_sizes
        for name in base:
            larger = {**sizes, name: base[name]}
            if sizes[name] != base[name] and self._run(larger, pinned=True).error is not None:
                sizes = larger
        few = [name for name in base if sizes[name] != base[name]]
        volume, least = Expr.const(1), 1
        for name in few:
            volume, least = volume * Expr.symbol(name), least * sizes[name]
        self.found.joint.append(Relation(">=", volume - least - 1))

    def _least(self, name: str) -> None:
        """The least size of a name that runs through; between one that crashes and one that runs it is halved."""
        base = self.found.base_sizes[name]
        floor = next((size for size in range(self.ranges[name].low, base) if self._with(name, size)), base)
        sizes = self._with(name, floor)
        if floor == base or sizes is None or self._compare(sizes):
            self.found.lows[name] = floor
            return
        self.found.lows[name] = self._boundary(name, floor, base)

    def _boundary(self, name: str, crashing: int, running: int) -> int:
        """The last size that runs on the way from a running one to a crashing one."""
        while abs(running - crashing) > 1:
            middle = (running + crashing) // 2
            sizes = self._with(name, middle)
            runs = sizes is not None and self._run(sizes, pinned=True).error is None
            running, crashing = (middle, crashing) if runs else (running, middle)
        return running

    def _with(self, name: str, size: int) -> Sizes | None:
        """The base sizes but for this one; what is needed of several names (`d_model % n_heads`) moves the others."""
        sizes = {**self.found.base_sizes, name: size}
        for _ in range(len(self._needed()) + 1):
            wrong = next((each for each in self._needed() if holds(each, sizes) is False), None)
            if wrong is None:
                return sizes
            moved = violation(wrong.negated, sizes, self.ranges, self._needed(), fixed=(name,))
            if moved is None:
                return None
            sizes = moved
        return None

    def _allowed(self, sizes: Sizes) -> bool:
        return all(holds(relation, sizes) is not False for relation in self._needed())

    def _needed(self) -> list[Relation]:
        return [*(need.relation for need in self.found.needs), *self.found.joint]

    def _compare(self, sizes: Sizes) -> bool:
        """Run on plain numbers; whether it gets through. The outputs must be what the general run promises."""
        attempt = self._run(sizes, pinned=True)
        if attempt.error is not None:
            named = self._run(sizes)
            self.found.strays.append(Crash(sizes, named if named.error is not None else attempt))
            return False
        self.found.changes.extend(self._changes(attempt, sizes))
        return True

    def _changes(self, attempt: Attempt, sizes: Sizes) -> Iterable[RankChange]:
        base = self.found.base
        assert base is not None
        promised = {path: signature.shape.dims for path, _, _, signature in base.outputs}
        for path, _, _, signature in attempt.outputs:
            expected, found = promised.get(path), signature.shape.dims
            if expected is None or any(dim.value is None for dim in found):
                continue
            values = tuple(dim.value for dim in found)
            if len(values) != len(expected):
                yield RankChange(sizes, expected, values)  # type: ignore[arg-type]  # checked above

    def _sample(self) -> None:
        """Long sizes and random ones that the domain holds for."""
        relations = self._needed()
        names = [*self.found.base_sizes]
        ranges = {name: Range(self.found.lows.get(name, 2), self.ranges[name].high) for name in names}
        count = max(1, min(SAMPLES, int(SAMPLING / self._seconds)))
        long = {
            name: LONG if LONG in ranges[name] and name not in self.found.loops else size
            for name, size in self.found.base_sizes.items()
        }
        chosen = [long] if all(holds(relation, long) is not False for relation in relations) else []
        chosen += samples(count - len(chosen), names, ranges, relations, seed=0)
        for sizes in chosen:
            tried = {**sizes, **{name: self.found.base_sizes[name] for name in self.found.loops}}
            if self._allowed(tried) and not self._compare(tried):
                self._narrow(tried)

    def _narrow(self, sizes: Sizes) -> None:
        """A crash inside of what was thought to hold: the name that brings it about gets a bound."""
        base = self.found.base_sizes
        for name in base:
            alone = {**base, name: sizes[name]}
            if sizes[name] == base[name] or not self._allowed(alone) or self._run(alone, pinned=True).error is None:
                continue
            bound = self._boundary(name, sizes[name], base[name])
            if sizes[name] < base[name]:
                self.found.lows[name] = bound
            else:
                self.found.highs[name] = bound


def _fixed_name(relation: Relation) -> str | None:
    """The name that `T == 7` speaks of."""
    symbols = relation.difference.symbols
    if relation.operator != "==" or len(symbols) != 1 or relation.difference.n_terms > 2:
        return None
    return next(iter(symbols)).name


def declared_ranges(bound: Bound) -> dict[str, Range]:
    """What the specs of the inputs say of each free name; those that a recipe's module is made of are free too."""
    found: dict[str, Range] = {name: Range() for name in bound.made_of}
    for path, value in bound.arguments.items():
        for inner, spec in tensors_in(value, at=TensorSpec):
            for name, low, high in _names(f"{path}{inner}", spec):
                known = found.get(name, Range())
                ends = [end for end in (known.high, high) if end is not None]
                found[name] = Range(max(known.low, low), min(ends) if ends else None)
    return found


def _names(path: str, spec: TensorSpec) -> Iterable[tuple[str, int, int | None]]:
    for axis, dim in enumerate(spec.dims):
        if dim.expr is None:
            yield dim.name or f"{path}_{axis}", dim.low or 1, dim.high
            continue
        for symbol in dim.expr.symbols:
            if symbol.value is None:
                own = dim.name == symbol.name
                yield symbol.name, (dim.low if own else None) or 1, dim.high if own else None


def deadline(seconds: float | None, forward: Callable[[str], None] | None) -> Callable[[str], None]:
    """A callback for progress that raises OutOfTime when the seconds are over."""
    end = None if seconds is None else time.monotonic() + seconds

    def tick(text: str = "") -> None:
        if end is not None and time.monotonic() > end:
            raise OutOfTime
        if forward is not None and text:
            forward(text)

    return tick
