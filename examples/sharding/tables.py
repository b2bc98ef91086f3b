"""What a rank holds and sends, as tables."""

from collections.abc import Iterator

from rich.table import Table

import shapeflow as sf
from shapeflow.trace.sharding import Collective


def parameter_table(trace: sf.Trace, layer: str) -> Table:
    """The parameters of one layer: all of each, and what a rank has of it."""
    table = Table("parameter", "whole", "placement", "one rank", "bytes", title=f"parameters of {layer}", box=None)
    table.columns[-1].justify = "right"
    for path, shape in trace.parameters.items():
        if path.startswith(f"{layer}."):
            held = shape.local
            name = path.removeprefix(f"{layer}.")
            table.add_row(name, str(shape), str(shape.sharding or "whole"), str(held), f"{held.bytes.at():,}")
    return table


def operator_table(trace: sf.Trace, layer: str) -> Table:
    """The operators of one layer that make a tensor which is spread."""
    table = Table("module", "operator", "whole", "placement", "one rank", title=f"tensors of {layer}", box=None)
    for node in trace.nodes:
        shape = node.outputs[0] if node.outputs else None
        if shape is not None and shape.sharding is not None and f"{node.module}.".startswith(f"{layer}."):
            module = node.module.removeprefix(layer).removeprefix(".")
            table.add_row(module, node.operator, str(shape), str(shape.sharding), str(shape.local))
    return table


def collective_table(trace: sf.Trace, sizes: dict[str, int]) -> Table:
    """The collectives of a forward, equal ones together."""
    at = ", ".join(f"{name}={size}" for name, size in sizes.items())
    table = Table("times", "collective", "ranks", "each sends", "and has then", "bytes", f"at {at}", box=None)
    table.title = "collectives of a forward"
    for count, each in counted(trace):
        sent, received = str(each.sent), str(each.received)
        table.add_row(
            str(count), each.operator, str(each.ranks), sent, received, str(each.bytes), f"{each.bytes.at(**sizes):,}"
        )
    total = sum(each.bytes.at(**sizes) for each in trace.collectives)
    table.add_row("", "all of them", "", "", "", "", f"{total:,}", style="bold")
    return table


def counted(trace: sf.Trace) -> Iterator[tuple[int, Collective]]:
    groups: dict[tuple, list] = {}
    for each in trace.collectives:
        groups.setdefault((each.operator, each.ranks, str(each.sent), str(each.received)), []).append(each)
    yield from ((len(group), group[0]) for group in groups.values())
