"""Makes a `Call` from what raised: from an attempt of the tracer, or from real tensors.

>>> call = call_of(attempt.recorder.failed, attempt.subject)
>>> call = call_from(torch.matmul, (a, b), {}, error, module=net.attn, path="attn", root=net, location=here)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from shapeflow.check.cause.call import Call, Dims, submodule
from shapeflow.check.cause.expression import expression_of, frames, user_frame
from shapeflow.check.cause.modular import operator_of
from shapeflow.check.cause.parameters import ALIASES, by_name
from shapeflow.check.cause.reading import Named, Reader, Turned
from shapeflow.dims.annotation import signature_of, specs_in
from shapeflow.dims.spec import TensorSpec
from shapeflow.errors import ShapeflowError
from shapeflow.trace.attempt import Attempt, Subject
from shapeflow.trace.functions import operator_name
from shapeflow.trace.recorder import Failure
from shapeflow.trace.result import Location
from shapeflow.trace.source import location, place_of_error

WHOLE = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
"""Modules that are explained as such, whatever inside of them raised."""


def call_of(failure: Failure, subject: Subject) -> Call:
    """The call of an operator that raised on fake tensors."""
    path = failure.scopes[-1].path if failure.scopes else ""
    return call_from(
        failure.function,
        failure.args,
        failure.kwargs,
        failure.error,
        module=submodule(subject.root, path),
        path=path,
        root=subject.root,
        location=location(failure.place),
        function_of=subject.function,
    )


def call_in(attempt: Attempt) -> Call | None:
    """The call that stopped an attempt: an operator's, or a module of torch that refused its input; else None."""
    error, failed = attempt.error, attempt.recorder.failed
    if error is None:
        return None
    if failed is not None and failed.error is error:
        return call_of(failed, attempt.subject)
    return call_in_traceback(error, attempt.subject.root, attempt.subject.function)


def call_in_traceback(
    error: BaseException, root: nn.Module | None, function: Any = None, *, named: Named | None = None
) -> Call | None:
    """The innermost module of torch that was running, with its inputs, from the frames of the error.

    `named` is what is known of real tensors, by `id`.
    """
    found = _torch_forward(error)
    if found is None:
        return None
    module, inputs = found
    operator, arguments = operator_of(module, inputs)
    path = _path_of(root, module)
    where = location(place_of_error(error.__traceback__))
    return _finished(operator, arguments, error, module, path, root, where, function, named)


def call_from(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    error: BaseException,
    *,
    module: nn.Module | None = None,
    path: str = "",
    root: nn.Module | None = None,
    location: Location | None = None,
    function_of: Any = None,
    named: Named | None = None,
) -> Call:
    """The call of `function` that raised `error`, on real or fake tensors. `location` is the user's line.

    `named` is what is known of real tensors, by `id`.
    """
    if isinstance(module, WHOLE) and (found := _torch_forward(error)) is not None and found[0] is module:
        return _finished(type(module).__name__, found[1], error, module, path, root, location, function_of, named)
    name = function if isinstance(function, str) else operator_name(function)
    name = ALIASES.get(name, name)
    arguments = by_name(name, tuple(args), kwargs)
    return _finished(name, arguments, error, module, path, root, location, function_of, named)


def _finished(
    operator: str,
    arguments: Mapping[str, Any],
    error: BaseException,
    module: nn.Module | None,
    path: str,
    root: nn.Module | None,
    where: Location | None,
    function: Any,
    named: Named | None,
) -> Call:
    reader = Reader(root, named)
    read = {name: reader.value(value) for name, value in arguments.items()}
    expression, owner = expression_of(error.__traceback__), _owner(error)
    if owner is None and isinstance(root, nn.Module) and _is_torchs(root):
        where = expression = None  # a bare nn.Sequential: the nearest user's line is whoever calls it
    promised = _promised(type(owner).forward if owner is not None else function)
    text = str(error).strip()
    return Call(operator, read, text, root, module, path, where, expression, promised)


def _torch_forward(error: BaseException) -> tuple[nn.Module, dict[str, Any]] | None:
    """The innermost `forward` on the way to the error, where it is one of torch's own modules; and its arguments.

    What the user's code does below it, in a hook, is none of the module's doing.
    """
    user = user_frame(error.__traceback__)
    for each in reversed(frames(error.__traceback__)):
        if each is user:
            return None
        code, values = each.tb_frame.f_code, each.tb_frame.f_locals
        names = code.co_varnames[: code.co_argcount]
        if code.co_name != "forward" or not names or not isinstance(values.get(names[0]), nn.Module):
            continue
        module = values[names[0]]
        if not _is_torchs(module) and not isinstance(module, WHOLE):
            return None
        given = {name: values[name] for name in names[1:] if name in values}
        return module, _as_given(module, given, error)
    return None


def _as_given(module: nn.Module, given: dict[str, Any], error: BaseException) -> dict[str, Any]:
    """nn.MultiheadAttention with batch_first turns its inputs over before it goes on."""
    inside = any(each.tb_frame.f_code.co_name == "multi_head_attention_forward" for each in frames(error.__traceback__))
    if not inside or not isinstance(module, nn.MultiheadAttention) or not module.batch_first:
        return given
    return {name: Turned(value) if name in ("query", "key", "value") else value for name, value in given.items()}


def _owner(error: BaseException) -> nn.Module | None:
    """The module whose code is the innermost user's frame."""
    found = user_frame(error.__traceback__)
    if found is None or not found.tb_frame.f_code.co_argcount:
        return None
    first = found.tb_frame.f_locals.get(found.tb_frame.f_code.co_varnames[0])
    return first if isinstance(first, nn.Module) else None


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.partition(".")[0] == "torch"


def _path_of(root: nn.Module | None, module: nn.Module) -> str:
    if root is None:
        return ""
    return next((path for path, each in root.named_modules() if each is module), "")


def _promised(function: Any) -> Dims | None:
    """The dims of the annotated result, where it is one tensor without open axes."""
    if function is None:
        return None
    try:
        spec = specs_in(signature_of(function).return_annotation)
    except (ShapeflowError, TypeError, ValueError):  # unreadable annotations are another rule's
        return None
    if not isinstance(spec, TensorSpec) or any(dim.expr is None for dim in spec.dims):
        return None
    return tuple(dim.expr for dim in spec.dims if dim.expr is not None)
