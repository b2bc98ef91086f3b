"""cross_entropy, nll_loss: classes belong on axis 1, and the target has the shape without them.

cross_entropy takes classes on axis 1, gets T: logits B T V has them last
fix: F.cross_entropy(logits.transpose(1, 2), target)
"""

from __future__ import annotations

from shapeflow.check.cause.call import Call, Dims, Operand, names_in, number, same
from shapeflow.check.cause.chain import MERGING, chain
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.swapping import move_second, rewritten


def class_loss(call: Call) -> Cause | None:
    """The cause for a loss over classes."""
    given, target = call.tensor("input"), call.tensor("target")
    if given is None or target is None or not given.rank:
        return None
    texts = call.text("input", "input"), call.text("target", "target")
    message = f"{call.operator} of {texts[0]} ({given}) and {texts[1]} ({target})"
    if (found := _no_such_class(call, texts, given, target)) is not None:
        return found
    expected = given.dims[:1] + given.dims[2:]
    if given.rank >= 3 and target.rank == given.rank - 1 and _equal(given.dims[:-1], target.dims):
        dims = names_in(given.dims[1], given.dims[-1])
        fix = rewritten(call, "input", move_second(given.rank, given.rank - 1))
        why = f"{call.operator} takes classes on axis 1 and finds {given.dims[1]} there: {texts[0]} is {given}"
        return Cause(f"{why}, its {given.dims[-1]} classes are last", fix, dims, call.location)
    if target.rank == given.rank and same(target.dims[1], 1) and _equal(expected, (target.dims[0], *target.dims[2:])):
        fix = rewritten(call, "target", ".squeeze(1)")
        return Cause(f"{message}: the target has an axis of one too many", fix, names_in(*target.dims), call.location)
    if given.rank >= 3 and target.rank == 1 and given.dims[:-1]:
        return _flat_target(call, message, given, target)
    if given.rank == 2 and target.rank == 2 and _holds(given, target):
        fix = rewritten(call, "target", ".flatten()")
        return Cause(f"{message}: the target is to be flattened too", fix, names_in(*target.dims), call.location)
    if given.rank == target.rank == 2 and not same(given.dims[1], target.dims[1]):
        why = f"{message}: a target of class numbers has no axis of {target.dims[1]}"
        return Cause(why, "", names_in(target.dims[1]), call.location)
    if (found := _shifted(call, given, target)) is not None:
        return found
    axes = [axis for axis, (a, b) in enumerate(zip(expected, target.dims, strict=False)) if not same(a, b)]
    if not axes:
        return None
    a, b = expected[axes[0]], target.dims[axes[0]]
    shown = " ".join(map(str, expected)) or "a scalar"
    return Cause(f"{message}: the target is to be {shown}: {a} is not {b}", "", names_in(a, b), call.location)


def _no_such_class(call: Call, texts: tuple[str, str], given: Operand, target: Operand) -> Cause | None:
    """A class number that no logit stands for."""
    if "is out of bounds" not in call.error:
        return None
    classes = given.dims[1 if given.rank > 1 else 0]
    count, low, high = number(classes), target.low, target.high
    if count is None or high is None or low is None or not (high >= count or low < 0):
        return None
    at = f"greatest class number in {texts[1]} is {high}" if high >= count else f"least class number is {low}"
    message = f"{call.operator}: {texts[0]} ({given}) has the classes 0 to {count - 1}, the {at}"
    ignored = call.arguments.get("ignore_index", -100)
    mark = f"ignore_index={low}" if high < count and low != ignored else ""
    return Cause(message, mark or f"logits for {high + 1} classes", names_in(classes), call.location)


def _shifted(call: Call, given: Operand, target: Operand) -> Cause | None:
    """Targets that were moved on by some positions, beside logits that were not, both flattened."""
    step, other = next(chain(given), None), next(chain(target), None)
    if step is None or other is None or {step.maker.operator, other.maker.operator} - MERGING:
        return None
    before, after = step.before[:-1], other.before
    if len(before) != 2 or len(after) != 2 or not same(before[0], after[0]):
        return None
    missing = (before[1] - after[1]).constant
    if not missing:
        return None
    first, second = ("logits", "target") if missing > 0 else ("target", "logits")
    message = f"{call.operator}: the logits have {before[1]} positions, the target {after[1]}"
    fix = f"leave the same positions out of both: {first}[:, :-{abs(missing)}] with {second}[:, {abs(missing)}:]"
    return Cause(f"{message}: one of them is shifted", fix, names_in(before[1]), call.location)


def _equal(a: Dims, b: Dims) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def _holds(given: Operand, target: Operand) -> bool:
    """Whether the rows of the input are the elements of the target."""
    return same(given.dims[0], target.dims[0] * target.dims[1])


def _flat_target(call: Call, message: str, given: Operand, target: Operand) -> Cause | None:
    rows = given.dims[0]
    for dim in given.dims[1:-1]:
        rows = rows * dim
    if not same(rows, target.dims[0]):
        return None
    fix = rewritten(call, "input", f".flatten(0, {given.rank - 2})")
    return Cause(f"{message}: the input is to be flattened too", fix, names_in(*target.dims), call.location)
