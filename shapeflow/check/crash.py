"""From runs that crashed to problems: what they need of the sizes, how bad that is, why, and what would be right.

>>> [str(problem.rule) for problem in crash_problems(exploration, search)]
['SF102']
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from shapeflow.check.annotations import annotation_problems
from shapeflow.check.batch import batch_in
from shapeflow.check.cause import Cause, call_in, call_of, cause, prove
from shapeflow.check.cause.written import constructor
from shapeflow.check.explore import Crash, Exploration, Need, RankChange
from shapeflow.check.problem import Level, Problem
from shapeflow.check.sizes import Sizes, sizes_text
from shapeflow.check.values import Reach
from shapeflow.dims.expr import Expr
from shapeflow.dims.relation import Relation
from shapeflow.dims.solve import divisions_in
from shapeflow.torch_private import NO_FAKE_KERNEL
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.conditions import rises
from shapeflow.trace.result import Location
from shapeflow.trace.source import location, place_of_error, raised_by_us, raised_by_user
from shapeflow.trace.tracer import Search

ELEMENTWISE = ("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "div", "truediv", "lerp", "where")
USUAL = 128
"""A length that a model is expected to take: a limit below it is a fault, one above it is good to know."""


@dataclass(frozen=True, slots=True)
class Crashes:
    """Makes the problems of one exploration; `search` runs the model again to try repairs."""

    found: Exploration
    search: Search
    batch: str | None
    _counted: dict[tuple[tuple[str, int], ...], int] = field(default_factory=dict)

    def problems(self) -> list[Problem]:
        always = self.found.always
        first = [] if always is None else [self._always(always), *self._further(always)]
        return [*first, *self._needs(), *self._strays(), *self._changes(), *self._branches()]

    # A model that never runs

    def _always(self, crash: Crash) -> Problem:
        error = crash.attempt.error
        assert error is not None
        if not _is_about_shapes(crash.attempt):
            lines = tuple(str(error).strip().splitlines())
            message = f"could not be run: {type(error).__name__}: {lines[0] if lines else 'no message'}"
            return Problem("SF402", "note", message, details=lines[1:]).at(_where(crash.attempt))
        told = self._told(crash)
        sizes = f"at every size tried, such as {sizes_text(crash.sizes)}" if crash.sizes else "at the sizes given"
        problem = self._problem("SF101", "error", told, crash.attempt, (f"it crashes {sizes}",))
        return replace(problem, witness=crash.sizes)

    def _further(self, crash: Crash) -> Iterator[Problem]:
        """The faults behind the first one, where the run can go on with the shape that was promised."""
        if not _is_about_shapes(crash.attempt):
            return
        attempt, failures = self.search.beyond(crash.sizes)
        for failure in failures[1:]:
            told = self._repaired(cause(call_of(failure, attempt.subject)), crash.sizes)
            where, module = location(failure.place), failure.scopes[-1].path if failure.scopes else ""
            details = (f"found behind the first error, at {sizes_text(crash.sizes)}",) if crash.sizes else ()
            yield replace(_problem("SF101", "error", told, where, module, details), witness=crash.sizes)

    # Sizes at which it does not run

    def _needs(self) -> Iterator[Problem]:
        groups: dict[tuple[object, ...], list[tuple[Need, Problem]]] = {}
        for need in self.found.needs:
            if not need.crash.attempt.made:  # the constructor refuses: a requirement, which the domain tells
                continue
            problem = self._need(need)
            key = problem.rule, problem.file, problem.line, problem.module, problem.level
            groups.setdefault(key, []).append((need, problem))
        for members in groups.values():
            yield _merged([problem for _, problem in members], [need for need, _ in members])

    def _need(self, need: Need) -> Problem:
        rule, level = self._judged(need)
        if need.reach is not None:
            problem = _reach_problem(need, need.reach)
        else:
            told = self._told(need.crash)
            problem = self._problem(rule, level, told, need.crash.attempt, ())
        names = tuple(dict.fromkeys([*_names(need.relation), *problem.dims]))
        chosen = level == "note" and set(names) & set(self.search.bound.made_of)
        fix = self._demand(need.relation) if chosen or not problem.fix else problem.fix
        return replace(problem, rule=rule, level=level, witness=need.crash.sizes, dims=names, fix=fix)

    def _judged(self, need: Need) -> tuple[str, Level]:
        """The rule and the level of a condition that the spec of the input does not state."""
        by_code = need.reach is None and _is_users(need.crash.attempt)
        lower = need.relation.operator == ">=" and rises(need.relation.difference)
        if self.batch is not None and self.batch in _names(need.relation):
            return ("SF104", "note") if lower else ("SF103", "warning" if by_code else "error")
        if by_code or lower:
            return "SF104", "note"
        high = _highest(need.relation)
        if high is not None and high >= USUAL:
            return "SF104", "note"
        return ("SF104", "note") if self._is_argument(need.relation) else self._judged_made_of(need)

    def _is_argument(self, relation: Relation) -> bool:
        """`d_in == 5`, and the module was made with a `d_in`, which it did not keep: then it was 5."""
        subject, names = self.search.subject, _names(relation)
        root = subject.root if subject.maker is None else None
        left, operator, right = relation.sides()
        if (
            root is None
            or operator != "=="
            or len(names) != 1
            or right.constant is None
            or left != Expr.symbol(names[0])
        ):
            return False
        return any(names[0] in constructor(type(part)) for part in root.modules())

    def _judged_made_of(self, need: Need) -> tuple[str, Level]:
        """The same for a class made of symbols, whose sizes whoever makes it has to choose so that they fit.

        That `d_model % n_heads == 0` or `max_len >= T` is a requirement; that two arguments are equal is a fault, for
        why are there two? It may be meant where the two are added, as in a residual sum, or where one is an input's
        axis with a name of its own.
        """
        names, made_of = set(_names(need.relation)), set(self.search.bound.made_of)
        if not names & made_of:
            return "SF102", "error"
        if not _is_equality(need.relation):
            return "SF104", "note"
        if not names <= made_of and not _is_of_names(need.relation):
            return "SF104", "note"
        is_meant = need.operator.strip("_") in ELEMENTWISE or not names <= made_of
        return "SF102", "warning" if is_meant else "error"

    def _demand(self, relation: Relation) -> str:
        """What to do about a condition that is fine as such, but is said nowhere."""
        names, made_of = set(_names(relation)), set(self.search.bound.made_of)
        if not names & made_of:
            return f"declare {relation} with the input"
        if names <= made_of:
            return f"have the constructor refuse other sizes than {relation}"
        if _is_of_names(relation):
            return f"one name for both in the annotation, if {relation} is meant"
        return f"choose {', '.join(sorted(names & made_of))} so that {relation}"

    def _strays(self) -> Iterator[Problem]:
        """Crashes at the least sizes, which no question foretold."""
        seen: set[Location | None] = set()
        for crash in self.found.strays:
            where = _where(crash.attempt)
            if where in seen:
                continue
            seen.add(where)
            told = self._told(crash)
            small = [name for name, size in crash.sizes.items() if size < 2] or self._shrunk(crash)
            level: Level = "note" if small else "error"
            if small == [self.batch] and not _is_training_norm(crash.attempt):
                level = "error"
            rule = "SF103" if level == "error" and self.batch in small else "SF104" if small else "SF102"
            problem = self._problem(rule, level, told, crash.attempt, ())
            yield replace(problem, witness=crash.sizes, dims=tuple(small) or problem.dims)

    def _shrunk(self, crash: Crash) -> list[str]:
        """The names that are smaller than where all runs; none where another one is larger."""
        base = self.found.base_sizes
        if any(size > base.get(name, size) for name, size in crash.sizes.items()):
            return []
        return [name for name, size in crash.sizes.items() if size < base.get(name, size) and name != self.batch]

    def _changes(self) -> Iterator[Problem]:
        if not self.found.changes:
            return
        change = min(self.found.changes, key=lambda each: sum(size == 1 for size in each.sizes.values()))
        yield _change_problem(change)

    def _branches(self) -> Iterator[Problem]:
        for name, (guard, tried) in self.found.loops.items():
            where = location(guard.where[0])  # type: ignore[index]  # the tracer's place and operator
            sizes = ", ".join(map(str, sorted(tried)))
            message = f"a loop runs over {name}: checked for {name} = {sizes} alone"
            yield Problem("SF106", "note", message, dims=(name,), witness={name: min(tried)}).at(where)
        looped = {id(guard) for guard, _ in self.found.loops.values()}
        lines: dict[Location | None, list[Relation]] = {}
        for guard in self.found.branches:
            where, operator = guard.where  # type: ignore[misc]
            if operator or id(guard) in looped or self.found.loops.keys() & set(_names(guard.relation)):
                continue
            lines.setdefault(location(where), []).append(guard.relation)
        for line, relations in lines.items():
            names = tuple(dict.fromkeys(name for relation in relations for name in _names(relation)))
            asked = ", ".join(dict.fromkeys(map(str, relations)))
            message = f"the code goes two ways, by {asked}: both run"
            yield Problem("SF105", "note", message, dims=names).at(line)

    # Why

    def _told(self, crash: Crash) -> Cause:
        """The cause, with the first of its repairs that a run confirms."""
        call = None if _is_users(crash.attempt) else call_in(crash.attempt)
        if call is None:
            return _told_by_code(crash.attempt)
        return self._repaired(cause(call), crash.sizes)

    def _repaired(self, told: Cause, sizes: Sizes) -> Cause:
        """With the first repair after which there are fewer faults than before."""
        if not told.candidates:
            return told
        before = self._faults_before(sizes)
        repair = prove(told.candidates, lambda: self._faults(sizes) < before)
        return told if repair is None else told.proved(repair)

    def _faults_before(self, sizes: Sizes) -> int:
        """The faults of the model as it is, counted once for all the repairs of a crash."""
        key = tuple(sizes.items())
        if key not in self._counted:
            self._counted[key] = self._faults(sizes)
        return self._counted[key]

    def _faults(self, sizes: Sizes) -> int:
        attempt, failures = self.search.beyond(sizes)
        other = attempt.error is not None and not failures
        return len(failures) + other + len(annotation_problems(attempt, sizes))

    def _problem(self, rule: str, level: Level, told: Cause, attempt: Attempt, more: tuple[str, ...]) -> Problem:
        return _problem(rule, level, told, _where(attempt), _module(attempt), more)


def _problem(
    rule: str, level: Level, told: Cause, where: Location | None, module: str, more: tuple[str, ...]
) -> Problem:
    """A problem at the line of its cause; where that is not the line that raised, this one is told too."""
    details = list(more)
    if told.location is not None and where is not None and where != told.location:
        details.append(f"raised at {where}")
    details.extend(line for line in told.details if line not in details)
    problem = Problem(rule, level, told.message, module=module, dims=told.dims, fix=told.fix, details=tuple(details))
    return problem.at(told.location or where)


def crash_problems(found: Exploration, search: Search) -> list[Problem]:
    """The problems of an exploration; `search` is the one that it was made with."""
    general = found.general
    return Crashes(found, search, None if general is None else batch_in(general)).problems()


def _merged(problems: list[Problem], needs: list[Need]) -> Problem:
    """Conditions that one line imposes are one problem: `H % 2 == 0 and W % 2 == 0`."""
    first = problems[0]
    conditions = " and ".join(dict.fromkeys(str(need.relation) for need in needs))
    dims = tuple(dict.fromkeys(name for problem in problems for name in problem.dims))
    declared = [problem.fix for problem in problems if problem.fix.startswith("declare ")]
    fix = f"declare {conditions} with the input" if len(declared) == len(problems) else first.fix
    said = (
        f"it needs {conditions}, which the input's spec does not say: it crashes at {sizes_text(first.witness or {})}"
    )
    return replace(first, dims=dims, fix=fix, details=(said, *first.details))


def _reach_problem(need: Need, reach: Reach) -> Problem:
    record = reach.reader
    module = record.scopes[-1].path if record.scopes else ""
    name = f"{record.scopes[-1].kind} '{module}'" if record.scopes else record.operator
    message = f"{name} has {reach.rows} rows, and its indices reach {reach.highest}"
    fix = f"a table of more rows, and {need.relation} declared with the input"
    return Problem("SF104", "note", message, module=module, fix=fix).at(location(record.place))


def _change_problem(change: RankChange) -> Problem:
    expected = " ".join(map(str, change.expected)) or "scalar"
    got = " ".join(map(str, change.found)) or "scalar"
    small = tuple(name for name, size in change.sizes.items() if size == 1)
    message = f"the result is {expected} in general, but {got} at {sizes_text(change.sizes)}"
    fix = "name the axis: squeeze(dim), flatten(1)"
    return Problem("SF107", "error", message, dims=small, witness=change.sizes, fix=fix)


def _is_about_shapes(attempt: Attempt) -> bool:
    """Whether a shape, a size or an index made the code raise; a missing attribute or kernel did not."""
    error, failed = attempt.error, attempt.recorder.failed
    assert error is not None
    if isinstance(error, NO_FAKE_KERNEL) or raised_by_us(error) or isinstance(error, NotImplementedError):
        return False
    operator = failed is not None and failed.error is error
    return operator or isinstance(error, ValueError | AssertionError | IndexError | RuntimeError | ArithmeticError)


def _is_users(attempt: Attempt) -> bool:
    """Whether the code itself refuses these sizes, by `raise` or `assert`, with torch's `_assert` too."""
    error = attempt.error
    return error is not None and (raised_by_user(error.__traceback__) or isinstance(error, AssertionError))


def _is_training_norm(attempt: Attempt) -> bool:
    return "more than 1 value per channel when training" in str(attempt.error)


def _told_by_code(attempt: Attempt) -> Cause:
    error = attempt.error
    lines = str(error).strip().splitlines() or ["no message"]
    return Cause(f"{type(error).__name__}: {lines[0]}", location=_where(attempt), details=tuple(lines[1:]))


def _where(attempt: Attempt) -> Location | None:
    failed, error = attempt.recorder.failed, attempt.error
    assert error is not None
    if failed is not None and failed.error is error and failed.place is not None:
        return location(failed.place)
    return location(place_of_error(error.__traceback__))


def _module(attempt: Attempt) -> str:
    failed = attempt.recorder.failed
    scopes = failed.scopes if failed is not None and failed.error is attempt.error else attempt.stack.failing or ()
    return scopes[-1].path if scopes else ""


def _highest(relation: Relation) -> int | None:
    """The 512 of `T <= 512`."""
    left, operator, right = relation.sides()
    return right.constant if operator == "<=" and left.terms else None


def _names(relation: Relation) -> tuple[str, ...]:
    left, _, right = relation.sides()
    return tuple(sorted(symbol.name for symbol in left.symbols | right.symbols if symbol.value is None))


def _is_of_names(relation: Relation) -> bool:
    """`C == channels`, as it is."""
    left, operator, right = relation.sides()
    return operator == "==" and all(side in map(Expr.symbol, _names(relation)) for side in (left, right))


def _is_equality(relation: Relation) -> bool:
    """`d_ff == d_model`, and not that one size divides another."""
    left, operator, right = relation.sides()
    return operator == "==" and not [*divisions_in(left), *divisions_in(right)]
