"""What the note of one error says, line by line.

>>> report_of(error)[0]
'shapeflow: in blocks.1.attn (Attention of GPT)'
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from shapeflow.check.cause import Call, Cause, cause
from shapeflow.check.cause.fallback import fallback
from shapeflow.runtime.explain.axis import disagreement
from shapeflow.runtime.explain.beside import beside
from shapeflow.runtime.explain.bound import Bound, bound_in, functions_of
from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.excerpt import excerpt
from shapeflow.runtime.explain.note import HEADER, is_annotated, located
from shapeflow.runtime.explain.operation import operation_of, text_of
from shapeflow.runtime.explain.origin import origin_of, quoted_location, reason
from shapeflow.runtime.explain.provenance import Provenance, provenance_of
from shapeflow.runtime.explain.refused import RESULT, Refusal, refused_in
from shapeflow.runtime.explain.rows import Rows, rows_of_call, rows_of_values
from shapeflow.runtime.explain.stack import Stack, Step, stack_of
from shapeflow.runtime.explain.statement import Statement
from shapeflow.runtime.explain.tensor import rows_text


def report_of(error: Exception) -> list[str]:
    """The lines of the note; none for an error that has to do neither with a module nor with a tensor."""
    stack = stack_of(error)
    if stack.ours and error.__cause__ is None:
        return []  # an assertion of `shapeflow.testing` says itself what is wrong
    refusal = refused_in(stack, error)
    if refusal is not None:
        return [_header(stack, refusal.function.__qualname__), *_refused(stack, refusal)]
    origin = origin_of(error)
    if origin is not error and is_annotated(origin):
        return [f"{HEADER}explained in the note of the error below it, {reason(origin)}"]
    if origin is not error:
        stack = stack_of(origin)
        refusal = refused_in(stack, origin)
        lines = _refused(stack, refusal) if refusal is not None else _explained(stack, origin)
        return [_header(stack), f"it began as {reason(origin)}", *lines] if lines else []
    lines = _explained(stack, origin)
    return [_header(stack), *lines] if lines else []


def _header(stack: Stack, function: str = "") -> str:
    """The place in the model; in functional code the function."""
    step = stack.user
    return f"{HEADER}in {str(stack.place) or function or ('no module' if step is None else step.code.co_qualname)}"


def _explained(stack: Stack, error: Exception) -> list[str]:
    quoted = quoted_location(str(error))
    if quoted is not None:
        where, function = quoted
        inputs = rows_text(rows_of_call(stack).rows)
        return [f"{where.file}:{where.line}, in {function}", *excerpt(where, None), *inputs]
    step = stack.user
    if step is None:
        return []
    statement = Statement.of(step)
    bound, steps = _bound(stack)
    sizes = {name: each.size for name, each in bound.sizes.items()}
    provenance, faults = _provenance(steps or [step], statement, bound, sizes, stack.place.root)
    rows = Rows.of(stack, statement, provenance)
    if not _concerns(stack, rows, error):
        return []
    call = operation_of(error, stack, statement, provenance)
    what = f": {call.operator}" if call is not None else ""
    return [
        f"{step.location.file}:{step.line}, in {step.code.co_name}{what}",
        *excerpt(step.location, statement),
        *_called_from(stack),
        *rows_text(rows.rows),
        *rows.numbers,
        *_dims(bound),
        *_conflicts(bound),
        *(list(_why(call, statement)) + list(beside(error, rows.rows, statement, provenance.evaluator))),
        *faults,
    ]


def _provenance(
    steps: list[Step], statement: Statement | None, bound: Bound, sizes: dict[str, int], root: nn.Module | None
) -> tuple[Provenance, list[str]]:
    """Where the tensors come from, as far as the source tells; what goes wrong in that is told beside the rest."""
    try:
        return provenance_of(steps, statement, bound, sizes, root), []
    except Exception as fault:  # the error is explained without it, only less well
        told = f"names of other tensors: not found, which is a fault of shapeflow's own: {located(fault)}"
        return Provenance(Evaluator.of(steps[-1].frame)), [told]


def _concerns(stack: Stack, rows: Rows, error: Exception) -> bool:
    """Whether the error came out of a module, or of a line with tensors on it; a test's own assert does neither."""
    if any(step.module is not None for step in stack.own):
        return True
    own = [step for step in stack.own if step.user]
    return any(row.dtype for row in rows.rows) and not (
        isinstance(error, AssertionError) and len(own) == 1 and not stack.inside
    )


def _called_from(stack: Stack) -> Iterator[str]:
    """The user's own line, where the failing one is a library's."""
    step = stack.user
    if step is None or not step.installed:
        return
    own = next((each for each in reversed(stack.own) if each.user and not each.installed), None)
    if own is not None:
        yield f"called from {own.location}"


def _bound(stack: Stack) -> tuple[Bound, list[Step]]:
    """The names of the innermost function that has some, and the user's steps from it to the failing line."""
    asked = [at for at, step in enumerate(stack.steps) if step.user and not (step.above and step.module is None)]
    functions = functions_of([stack.steps[at] for at in asked])
    innermost: Bound | None = None
    for at in reversed(asked):
        step = stack.steps[at]
        if step.code not in functions:
            continue
        found = bound_in(step, functions[step.code], stack.steps[:at])
        if found.tensors:
            return found, [stack.steps[each] for each in asked if each >= at]
        innermost = innermost or found
    return innermost or Bound(), [stack.steps[each] for each in asked[-1:]]


def _dims(bound: Bound) -> Iterator[str]:
    if bound.sizes:
        yield "dims: " + ", ".join(f"{name} = {each.size} ({each.origin})" for name, each in bound.sizes.items())


def _conflicts(bound: Bound) -> list[str]:
    """The first argument that its annotation does not allow, where nothing checked it."""
    return [f"annotation: {each.where} {each.reason}" for each in bound.conflicts[:1]]


def _why(call: Call | None, statement: Statement | None) -> Iterator[str]:
    if call is None:
        return
    axis = disagreement(call, lambda name: text_of(call, name, statement))
    if axis:
        yield f"axis: {axis}"
    found = cause(call)
    if found.message != fallback(call).message:
        yield f"cause: {found.message}"
        yield from _mended(call, found)


def _mended(call: Call, found: Cause) -> Iterator[str]:
    fix = found.fix or next((each.fix for each in found.candidates), "")
    if fix:
        yield f"fix: {fix}"
    where = found.location or next((each.location for each in found.candidates), None)
    if where is not None and where != call.location:
        yield f"fault: {where}"


def _refused(stack: Stack, refusal: Refusal) -> list[str]:
    """A value that its annotation does not allow: the call, what it was given, and the axis."""
    step, bound = stack.user, refusal.bound
    name, where = refusal.function.__qualname__, refusal.location
    what = (
        "returned what its annotation does not allow" if RESULT in refusal.values else "is given what it does not allow"
    )
    lines = [f"{name} ({where.file}:{where.line}) {what}"]
    if step is not None:
        lines += [f"{step.location.file}:{step.line}, in {step.code.co_name}"]
        lines += excerpt(step.location, Statement.of(step))
    lines += rows_text(rows_of_values(refusal.values, bound).rows)
    lines += _dims(bound)
    lines += [f"axis: {each.where} {each.reason}" for each in bound.conflicts[:1]]
    if not bound.conflicts and refusal.wrong_type:
        lines.append(f"dtype: {refusal.wrong_type}")
    return lines
