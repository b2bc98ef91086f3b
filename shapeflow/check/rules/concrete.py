"""Values of what is made of sizes and constants alone: the graph behind a mask, run at the sizes of the trace.

>>> value_of(scene, mask)           # of torch.ones(t, t).tril() > 0
tensor([[ True, False],
        [ True,  True]])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from shapeflow.check.nodes import record_of
from shapeflow.check.rules.scene import Scene
from shapeflow.torch_private import FakeTensor, without_modes

MOST_NODES = 60
MOST_ELEMENTS = 1 << 22
WRITES = frozenset({"setitem"})
RANDOM = frozenset(
    "rand randn randint bernoulli dropout rand_like randn_like normal uniform randperm multinomial".split()
)


def value_of(scene: Scene, node: fx.Node) -> torch.Tensor | None:
    """The tensor that a node makes, None where inputs or parameters decide, or where it is too much."""
    nodes = _behind(node)
    if nodes is None or any(_is_open(each, nodes) for each in nodes):
        return None
    known: dict[fx.Node, Any] = {}
    with without_modes(), torch.no_grad():
        for each in scene.trace.graph.nodes:
            if each in nodes:
                known[each] = _run(scene, each, known)
                if known[each] is None:
                    return None
    found = known[node]
    return found if isinstance(found, torch.Tensor) else None


def _behind(node: fx.Node) -> set[fx.Node] | None:
    """A node and all that it needs; sizes need nothing."""
    found, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        if len(found) > MOST_NODES:
            return None
        for source in each.all_input_nodes if "size" not in each.meta else ():
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def _is_open(node: fx.Node, nodes: set[fx.Node]) -> bool:
    """Whether an input, chance, or a write that is no part of the row decides the value."""
    if "size" in node.meta:
        return False
    record = record_of(node)
    if node.op == "placeholder" or (record is not None and record.operator.rstrip("_") in RANDOM):
        return True
    return any(_writes(user) and user.args[0] is node and user not in nodes for user in node.users)


def _writes(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in WRITES or (name.endswith("_") and not name.endswith("__"))


def _run(scene: Scene, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if "size" in node.meta:
        return scene.axes.env.hint(node.meta["size"])
    if node.op == "get_attr":
        return _constant(scene, str(node.target))
    record = record_of(node)
    dims = [dim for output in (record.outputs if record else ()) for dim in output.shape.dims]
    total = 1
    for dim in dims:
        total *= scene.axes.env.hint(dim)
    if total > MOST_ELEMENTS:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), lambda each: known[each])
    try:
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs) if node.op == "call_function" else None  # type: ignore[operator]
    except Exception:  # any: an operator that does not run alone leaves the value unknown
        return None


def _constant(scene: Scene, path: str) -> Any:
    """A buffer or a constant; a parameter is learned, and has no value to rely on."""
    attempt = scene.trace._attempt
    if path in attempt.recorder.writer.attributes:
        found = attempt.recorder.writer.attributes[path]
    else:
        found = scene.root
        for name in path.split("."):
            found = getattr(found, name, None)
    if not isinstance(found, torch.Tensor):
        return found
    usable = not isinstance(found, FakeTensor | torch.nn.Parameter) and found.device.type == "cpu"
    return found.detach().clone() if usable and found.numel() <= MOST_ELEMENTS else None
