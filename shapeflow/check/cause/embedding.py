"""Embedding: indices that are no whole numbers, or before the start or past the end of the table.

Embedding 'emb' takes whole numbers, gets float32
fix: self.emb(x.long())
"""

from __future__ import annotations

from torch import nn

from shapeflow.check.cause.call import Call, names_in
from shapeflow.check.cause.layer import layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.swapping import rewritten


def embedding(call: Call) -> Cause | None:
    """The cause for `F.embedding`."""
    given, weight = call.tensor("input"), call.tensor("weight")
    if given is None or weight is None or not weight.rank:
        return None
    layer = layer_of(call, nn.Embedding)
    name = str(layer) if layer is not None else "embedding"
    if "float" in given.dtype or given.dtype == "bool":
        message = f"{name} takes whole numbers, gets {given.dtype} ({given})"
        return Cause(message, rewritten(call, "input", ".long()"), names_in(*given.dims), call.location)
    rows = weight.dims[0]
    if given.low is not None and given.low < 0:
        message = f"{name} has rows from 0 on, the least index is {given.low}: a mark for what is left out?"
        return Cause(message, rewritten(call, "input", ".clamp(min=0)"), names_in(rows), call.location)
    if given.high is not None and rows.value is not None and given.high >= rows.value:
        message = f"{name} has {rows} rows, the greatest index is {given.high}"
        if layer is None:
            return Cause(message, "", names_in(rows), call.location)
        right = layer.repair(f"{message}: num_embeddings is too small", num_embeddings=given.high + 1)
        return Cause(right.message, right.fix, names_in(rows), right.location or call.location, candidates=(right,))
    return None
