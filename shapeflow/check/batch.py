"""Which name is the batch: one that is called so, else the first axis of the first input.

>>> batch_of([(B, T, d_model)])
'B'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr
from shapeflow.trace.attempt import Attempt

BATCHES = ("B", "b", "batch", "bs", "bsz", "batch_size", "n_batch", "BATCH")
TIMES = frozenset("T t S s L l seq seq_len time len length steps tokens src_len tgt_len n_tokens frames".split())
"""Names of a first axis that is no batch: inputs laid out as (T, B, C)."""


def batch_of(inputs: Iterable[Sequence[Expr]]) -> str | None:
    """The name of the batch among these shapes of the inputs, the first input first; None where none is free."""
    shapes = [list(shape) for shape in inputs]
    free = [name for shape in shapes for dim in shape if (name := _free_name(dim)) is not None]
    called = next((name for name in BATCHES if name in free), None)
    if called is not None:
        return called
    first = next((shape for shape in shapes if shape), None)
    if first is None or (len(first) == 1 and len(shapes) == 1):
        return None
    name = _free_name(first[0])
    return None if name is None or name in TIMES else name


def batch_in(attempt: Attempt) -> str | None:
    """The batch of a run, by the shapes of its inputs."""
    return batch_of([record.outputs[0].shape.dims for _, record in attempt.inputs])


def _free_name(dim: Expr) -> str | None:
    symbols = dim.symbols
    if len(symbols) != 1:
        return None
    (symbol,) = symbols
    plain = isinstance(symbol, Symbol) and symbol.value is None and dim is Expr.symbol(symbol.name)
    return symbol.name if plain else None
