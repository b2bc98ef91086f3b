"""What to say when the model's own code raises: where in the model, on which operator, with which shapes.

GPT: RuntimeError in blocks.1.attn (MultiHeadSelfAttention), at linear
    models/gpt.py:68: return self.out(y)
    linear(B T 40, 32 32)
    mat1 and mat2 shapes cannot be multiplied ([B*T, 40] X [32, 32])
"""

from __future__ import annotations

from shapeflow.errors import TraceError
from shapeflow.torch_private import NO_FAKE_KERNEL
from shapeflow.trace.attempt import Attempt
from shapeflow.trace.functions import operator_name
from shapeflow.trace.recorder import Failure
from shapeflow.trace.result import Scope, Trace
from shapeflow.trace.source import location, place_of_error
from shapeflow.trace.structure import tensors_in
from shapeflow.trace.traced import traced

LAST_STEPS = 6


def failure(attempt: Attempt) -> TraceError:
    """The error of an attempt as one message, with the path so far."""
    error = attempt.error
    assert error is not None
    failed = attempt.recorder.failed
    failed = failed if failed is not None and failed.error is error else None
    lines = [_headline(attempt, error, failed), *_where(error, failed), *_what(error, failed)]
    trace = Trace(attempt)
    lines += _path(trace)
    return TraceError("\n".join(lines), trace=trace)


def _headline(attempt: Attempt, error: Exception, failed: Failure | None) -> str:
    scopes = failed.scopes if failed is not None else attempt.stack.failing or ()
    at = f", at {operator_name(failed.function)}" if failed is not None else ""
    return f"{attempt.subject.name}: {type(error).__name__} in {_module(scopes)}{at}"


def _module(scopes: tuple[Scope, ...]) -> str:
    return f"{scopes[-1].path} ({scopes[-1].kind})" if scopes else "forward"


def _where(error: Exception, failed: Failure | None) -> list[str]:
    place = failed.place if failed is not None and failed.place is not None else place_of_error(error.__traceback__)
    found = location(place)
    return [f"    {found}"] if found is not None else []


def _what(error: Exception, failed: Failure | None) -> list[str]:
    lines = [] if failed is None else [f"    {operator_name(failed.function)}({_arguments(failed)})"]
    if isinstance(error, NO_FAKE_KERNEL) or "no fake impl registered" in str(error):
        return lines + _how_to_register(error, failed)
    return [*lines, *(f"    {line}" for line in str(error).strip().splitlines())]


def _how_to_register(error: Exception, failed: Failure | None) -> list[str]:
    """An operator that torch cannot run on fake tensors: its name, and what would make it run."""
    operator = error.args[0] if isinstance(error, NO_FAKE_KERNEL) and error.args else failed and failed.function
    name = str(operator).removeprefix("torch.ops.").replace(".", "::", 1).partition(".")[0]
    return [
        f"    {name} has no fake kernel, so its output's shape is unknown without running it; register one:",
        f'        @torch.library.register_fake("{name}")',
        "        def _(x): return torch.empty_like(x)  # whatever shape and dtype the operator gives",
    ]


def _arguments(failed: Failure) -> str:
    """Every tensor that the operator got: its shape, behind its name where it is a parameter or a buffer."""
    shown = []
    for _, tensor in tensors_in((failed.args, failed.kwargs)):
        known = traced(tensor)
        shape = str(known.signature.shape) if known is not None else " ".join(map(str, tensor.shape))
        named = known is not None and known.record.kind in ("parameter", "buffer")
        name = known.record.path + ": " if known is not None and named else ""
        shown.append(f"{name}{shape or 'scalar'}")
    return ", ".join(shown)


def _path(trace: Trace) -> list[str]:
    steps = [node for node in trace.nodes if node.kind == "operator"]
    if not steps:
        return []
    count = f"{len(steps)} operator{'s' if len(steps) > 1 else ''}"
    last = f", the last {LAST_STEPS}" if len(steps) > LAST_STEPS else ""
    lines = [f"the path so far ({count}{last}):"]
    for node in steps[-LAST_STEPS:]:
        shapes = ", ".join(str(shape) or "scalar" for shape in node.outputs)
        lines.append(f"    {node.module or trace.name}: {node.operator} -> {shapes}")
    return lines
