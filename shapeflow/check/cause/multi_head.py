"""nn.MultiheadAttention: widths of query, key and value, lengths, masks, the batch.

MultiheadAttention 'attn' takes 32 features in key, gets 48: kdim is missing
fix: nn.MultiheadAttention(32, 4, kdim=48, vdim=48)
"""

from __future__ import annotations

from typing import Any

from torch import nn

from shapeflow.check.cause.call import Call, Operand, names_in, number, same, valued
from shapeflow.check.cause.layer import Layer, layer_at, layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import widths_behind
from shapeflow.check.cause.swapping import move_last, other_axis
from shapeflow.dims.expr import Expr

BLOCKS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
WIDTHS = {"query": "embed_dim", "key": "kdim", "value": "vdim"}


def multi_head(call: Call) -> Cause | None:
    """The cause for an attention module of torch."""
    layer = layer_of(call, nn.MultiheadAttention)
    q, k, v = (call.tensor(name) for name in WIDTHS)
    if layer is None or q is None or k is None or v is None:
        return None
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        takes = layer.attribute(WIDTHS[name])
        if not same(tensor.dims[-1], takes):
            return _width(call, layer, name, tensor, takes, same_source=_alike(k, v))
    return _lengths(call, layer, q, k, v) or _masks(call, layer, q, k)


def _alike(k: Operand, v: Operand) -> bool:
    return same(k.dims[-1], v.dims[-1])


def _width(call: Call, layer: Layer, name: str, tensor: Operand, takes: int, *, same_source: bool) -> Cause:
    gets = tensor.dims[-1]
    message, dims = (
        f"{layer} takes {takes} features in {name}, gets {valued(gets)}, the last axis of {tensor}",
        names_in(gets, takes),
    )
    axis = other_axis(tensor, takes, tensor.rank - 1)
    if axis is not None:
        text = call.text(name, name)
        return Cause(f"{message}: a transpose is missing", text + move_last(tensor.rank, axis), dims, call.location)
    size = number(gets)
    if size is None:
        return Cause(message, "", dims, call.location)
    if (block := _block(layer)) is not None:
        return _of_block(call, block, name, tensor, takes, size)
    behind = widths_behind(layer.root, tensor, -1, Expr.const(takes), message)
    if name == "query":
        repairs = [*_embed(layer, message, size), *behind]
    else:
        both: dict[str, Any] = {"kdim": size, "vdim": size} if name == "key" and same_source else {WIDTHS[name]: size}
        repairs = [layer.repair(f"{message}: {WIDTHS[name]} is missing", **both), *behind]
    if not repairs:
        return Cause(message, "", dims, layer.location or call.location)
    first = repairs[0]
    return Cause(first.message, first.fix, dims, first.location or call.location, candidates=tuple(repairs))


def _block(layer: Layer) -> Layer | None:
    """The layer of a transformer that the attention is a part of, which has no kdim of its own."""
    return layer_at(layer.root, layer.path.rpartition(".")[0], *BLOCKS)


def _of_block(call: Call, block: Layer, name: str, tensor: Operand, takes: int, size: int) -> Cause:
    dims = names_in(size, takes)
    message = f"{block} takes {takes} features, gets {valued(tensor.dims[-1])} in {name}, the last axis of {tensor}"
    if name == "query":
        right = block.repair(f"{message}: d_model is wrong", d_model=size)
        return Cause(right.message, right.fix, dims, right.location or call.location, candidates=(right,))
    return Cause(f"{message}: it has one width for all", f"nn.Linear({size}, {takes}) in front", dims, call.location)


def transformer(call: Call) -> Cause | None:
    """The cause for nn.Transformer, which looks at its inputs before its layers do."""
    layer = layer_of(call, nn.Transformer)
    for name in ("src", "tgt"):
        tensor, takes = call.tensor(name), None if layer is None else layer.attribute("d_model")
        if layer is None or tensor is None or takes is None or same(tensor.dims[-1], takes):
            continue
        size = number(tensor.dims[-1])
        message = f"{layer} takes {takes} features, gets {valued(tensor.dims[-1])} in {name}, the last axis of {tensor}"
        fix = f"nn.Linear({size}, {takes}) in front" if size is not None else ""
        return Cause(message, fix, names_in(tensor.dims[-1], takes), call.location)
    return None


def _embed(layer: Layer, message: str, size: int) -> list[Any]:
    heads = layer.attribute("num_heads")
    if size % heads:
        return []
    return [layer.repair(f"{message}: embed_dim is wrong", embed_dim=size)]


def _lengths(call: Call, layer: Layer, q: Operand, k: Operand, v: Operand) -> Cause | None:
    if q.rank != 3 or k.rank != 3 or v.rank != 3:
        message = f"{layer} takes three axes each: query is {q}, key is {k}, value is {v}"
        return Cause(message, "", names_in(), call.location) if len({q.rank, k.rank, v.rank}) > 1 else None
    batch, time = (0, 1) if layer.attribute("batch_first") else (1, 0)
    if not same(k.dims[time], v.dims[time]) or not same(k.dims[batch], v.dims[batch]):
        return Cause(f"{layer}: key is {k}, value is {v}: they differ", "", names_in(*k.dims[:2]), call.location)
    if same(q.dims[batch], k.dims[batch]):
        return None
    message = f"{layer}: query is {q}, key is {k}: it reads axis {batch} as the batch"
    dims = names_in(q.dims[batch], k.dims[batch])
    if same(q.dims[time], k.dims[time]):
        right = layer.repair(f"{message}, axis {time} is", batch_first=not layer.attribute("batch_first"))
        return Cause(right.message, right.fix, dims, right.location or call.location, candidates=(right,))
    return Cause(message, "", dims, call.location)


def _masks(call: Call, layer: Layer, q: Operand, k: Operand) -> Cause | None:
    batch, time = (0, 1) if layer.attribute("batch_first") else (1, 0)
    mask, padding = call.tensor("attn_mask"), call.tensor("key_padding_mask")
    flipped = not layer.attribute("batch_first") and q.rank == 3
    if mask is not None:
        expected = [q.dims[time], k.dims[time]] if q.rank == 3 else [q.dims[0], k.dims[0]]
        if mask.rank == 3:
            expected = [q.dims[batch] * layer.attribute("num_heads"), *expected]
        if mask.rank != len(expected) or not all(same(a, b) for a, b in zip(mask.dims, expected, strict=True)):
            return _mask(call, layer, "attn_mask", mask, expected, q, flipped)
    if padding is not None and q.rank == 3:
        expected = [k.dims[batch], k.dims[time]]
        if padding.rank != 2 or not all(same(a, b) for a, b in zip(padding.dims, expected, strict=True)):
            return _mask(call, layer, "key_padding_mask", padding, expected, k, flipped)
    return None


def _mask(
    call: Call, layer: Layer, name: str, mask: Operand, expected: list[Any], reader: Operand, flipped: bool
) -> Cause:
    shown = " ".join(map(str, expected))
    message = f"{layer} takes {name} of {shown}, gets {mask}"
    dims = names_in(*mask.dims, *expected)
    swapped = mask.rank == 2 == len(expected) and same(mask.dims[0], expected[1]) and same(mask.dims[1], expected[0])
    if flipped and _fits_batch_first(name, mask, reader):
        right = layer.repair(f"{message}: it reads axis 1 of {reader} as the batch", batch_first=True)
        return Cause(right.message, right.fix, dims, right.location or call.location, candidates=(right,))
    text = call.text(name, "")
    if name == "attn_mask" and _is_padding(call, layer, mask):
        fix = f"key_padding_mask={text or 'mask'}"
        return Cause(f"{message}: one row for each sample is a key_padding_mask", fix, dims, call.location)
    if swapped:
        return Cause(f"{message}: it is transposed", f"{text}.T" if text else f"{name} as {shown}", dims, call.location)
    return Cause(message, f"a mask of {shown}", dims, call.location)


def _is_padding(call: Call, layer: Layer, mask: Operand) -> bool:
    """Whether a mask has batch and keys for its axes."""
    key = call.tensor("key")
    if key is None or key.rank != 3 or mask.rank != 2 or call.tensor("key_padding_mask") is not None:
        return False
    batch = 0 if layer.attribute("batch_first") else 1
    return same(mask.dims[0], key.dims[batch]) and same(mask.dims[1], key.dims[1 - batch])


def _fits_batch_first(name: str, mask: Operand, reader: Operand) -> bool:
    """Whether the mask would fit if axis 0 of the reader were the batch."""
    if mask.rank != 2 or reader.rank != 3:
        return False
    if name == "key_padding_mask":
        return same(mask.dims[0], reader.dims[0]) and same(mask.dims[1], reader.dims[1])
    return same(mask.dims[0], reader.dims[1])
