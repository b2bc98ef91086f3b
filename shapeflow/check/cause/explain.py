"""`cause`: what made a call raise, and what would be right.

>>> found = cause(call_of(attempt.recorder.failed, attempt.subject))
>>> found.message, found.fix, str(found.location)
("Linear 'head' takes 10, gets 490 = 10*7*7: flatten is right, in_features is not",
 'nn.Linear(10 * 7 * 7, 5)', 'model.py:17: self.head = nn.Linear(10, 5)')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from shapeflow.check.cause.call import Call
from shapeflow.check.cause.classes import class_loss
from shapeflow.check.cause.convolution import convolution
from shapeflow.check.cause.counting import equal_shapes, in_place, item, one_hot, permute, split, written
from shapeflow.check.cause.dtypes import dtypes
from shapeflow.check.cause.earlier import earlier
from shapeflow.check.cause.elementwise import broadcasts, elementwise
from shapeflow.check.cause.embedding import embedding
from shapeflow.check.cause.fallback import fallback, first_sentence
from shapeflow.check.cause.indexing import gather, index, no_such_axis
from shapeflow.check.cause.joining import join
from shapeflow.check.cause.linear import linear
from shapeflow.check.cause.multi_head import multi_head, transformer
from shapeflow.check.cause.norm import channel_norm, layer_norm
from shapeflow.check.cause.products import attention, einsum, matmul
from shapeflow.check.cause.recurrent import recurrent
from shapeflow.check.cause.resampling import interpolate, pool
from shapeflow.check.cause.reshaping import reshape
from shapeflow.check.cause.result import Cause

Family = Callable[[Call], Cause | None]

BY_MODULE: dict[type[nn.Module], Family] = {
    nn.MultiheadAttention: multi_head,
    nn.Transformer: transformer,
    nn.RNNBase: recurrent,
    nn.RNNCellBase: recurrent,
    nn.modules.batchnorm._NormBase: channel_norm,
}
BY_OPERATOR: dict[str, Family] = {
    "linear": linear,
    **{f"conv{count}d": convolution for count in (1, 2, 3)},
    **{f"conv_transpose{count}d": convolution for count in (1, 2, 3)},
    **{f"{kind}_pool{count}d": pool for kind in ("max", "avg") for count in (1, 2, 3)},
    "batch_norm": channel_norm,
    "instance_norm": channel_norm,
    "group_norm": channel_norm,
    "layer_norm": layer_norm,
    "rms_norm": layer_norm,
    "embedding": embedding,
    "cat": join,
    "stack": join,
    "view": reshape,
    "reshape": reshape,
    "unflatten": reshape,
    **dict.fromkeys(("matmul", "bmm", "mm", "baddbmm", "addmm", "mv"), matmul),
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "cross_entropy": class_loss,
    "nll_loss": class_loss,
    "getitem": index,
    "setitem": written,
    "permute": permute,
    "split": split,
    "one_hot": one_hot,
    "item": item,
    "gather": gather,
    "interpolate": interpolate,
    "upsample": interpolate,
}


def cause(call: Call) -> Cause:
    """The cause of the call's error, by its family; at least operator, shapes and torch's own sentence."""
    try:
        found = dtypes(call) or earlier(call) or _by_family(call) or no_such_axis(call) or fallback(call)
    except Exception:  # whatever an unforeseen call does to a family, it must not hide the user's own error
        found = fallback(call)
    return replace(found, details=(*found.details, *_details(call, found)))


def _by_family(call: Call) -> Cause | None:
    for kind, family in BY_MODULE.items():
        if isinstance(call.module, kind) and (found := family(call)) is not None:
            return found
    if call.operator in BY_OPERATOR:
        return BY_OPERATOR[call.operator](call)
    return equal_shapes(call) or in_place(call) or elementwise(call) if broadcasts(call) else None


def _details(call: Call, found: Cause) -> list[str]:
    """Where it raised, on which operator with which shapes, and what torch says."""
    lines = []
    if call.location is not None and call.location != found.location:
        lines.append(f"raised at {call.location}")
    shapes = ", ".join(_shown(each.path, str(each)) for each in call.tensors)
    lines.append(f"{call.operator}({shapes})")
    lines.append(first_sentence(call.error))
    return lines


def _shown(path: str, shape: str) -> str:
    return f"{path}: {shape}" if path else shape
