"""SF308: a layer of torch that takes time first, given a batch first; or the other way round."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import Any

from torch import fx, nn

from shapeflow.check.axis import Shape
from shapeflow.check.batch import BATCHES
from shapeflow.check.cause import constructor_line, written_call
from shapeflow.check.cause.call import names_in
from shapeflow.check.cause.syntax import Source, Spot
from shapeflow.check.cause.written import Written, is_class
from shapeflow.check.nodes import record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.marks import is_truth
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, line_of
from shapeflow.check.rules.steps import last_examples, more_examples, pooled_examples
from shapeflow.trace.result import Location, Scope
from shapeflow.trace.source import short_path

STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)
"""They have no `batch_first` of their own: their layers have."""
LAYERS = (
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.Transformer,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    *STACKS,
)


def find(scene: Scene) -> Iterator[Problem]:
    """Layers that are given the wrong order, and what the code itself takes for a step."""
    yield from find_layers(scene)
    yield from last_examples(scene)
    yield from more_examples(scene)
    yield from pooled_examples(scene)


def find_layers(scene: Scene) -> Iterator[Problem]:
    """Each constructor's line once, whatever many layers it builds."""
    seen: set[Any] = set()
    for node, path in _entries(scene):
        problem = _wrong(scene, node, path)
        if (
            problem is not None
            and (key := (problem.file, problem.line, problem.code) if problem.line else path) not in seen
        ):
            seen.add(key)
            yield problem


def _entries(scene: Scene) -> Iterator[tuple[fx.Node, str]]:
    """The first operator of each call of a layer that reads what was made outside, and the layer's path."""
    if scene.root is None or scene.batch is None:
        return
    modules = dict(scene.root.named_modules())
    seen: set[Scope] = set()
    for node in scene.operators():
        record = record_of(node)
        scopes = record.scopes if record is not None else ()
        scope = next((scope for scope in scopes if isinstance(modules.get(scope.path), LAYERS)), None)
        if isinstance(scene.root, LAYERS):
            scope = Scope("", type(scene.root).__name__)
        if scope is not None and scope not in seen and _outer(node, scope) is not None:
            seen.add(scope)
            yield node, scope.path


def _outer(node: fx.Node, scope: Scope) -> fx.Node | None:
    """The first tensor that a node reads and that no operator of the layer made; parameters aside."""
    for each in node.all_input_nodes:
        if "size" in each.meta:
            continue
        record = record_of(each) or (record_of(each.args[0]) if each.args else None)
        outside = record is not None and record.kind in ("operator", "input") and scope not in record.scopes
        if outside and not is_truth(each):  # a mask of padding is (B, T) in either order
            return each
    return None


def _wrong(scene: Scene, node: fx.Node, path: str) -> Problem | None:
    modules = {} if scene.root is None else dict(scene.root.named_modules())
    layer = modules[path]
    owner = next((each for each in layer.modules() if hasattr(each, "batch_first")), None)
    record = record_of(node)
    scope = next((each for each in record.scopes if each.path == path), Scope(path, "")) if record is not None else None
    outer = _outer(node, scope) if scope is not None else None
    shape = scene.axes.of(outer)
    if owner is None or outer is None or not shape or len(shape) not in (2, 3):
        return None
    time = 0 if len(shape) == 2 or not owner.batch_first else 1
    if len(shape) == 2 and (scene.batch not in BATCHES or shape[1].size.value is None):
        return None
    if not scene.has_batch(shape[time]) or (len(shape) == 3 and scene.has_batch(shape[1 - time])):
        return None
    return _problem(scene, node, path, layer, shape, time)


def _problem(scene: Scene, node: fx.Node, path: str, layer: nn.Module, shape: Shape, time: int) -> Problem:
    kind, root = type(layer).__name__, scene.root
    assert root is not None
    row = ", ".join(map(str, shape))
    order = "time first" if time == 0 else "the batch first"
    name = f"{kind} '{path}'" if path else kind
    message = f"{name} takes {order} and gets ({row}): it reads axis {time} ({shape[time]}), the batch, as time"
    fix = _fix(root, path, layer, shape, time)
    where, used = _constructor(root, path, layer), line_of(node)
    details = (f"called at {used}",) if used is not None and where is not None else ()
    dims = names_in(shape[time].size)
    return Problem("SF308", "error", message, module=path, dims=dims, fix=fix, details=details).at(where or used)


def _constructor(root: nn.Module, path: str, layer: nn.Module) -> Location | None:
    """The line of what takes `batch_first`: of a stack, where its layer is built."""
    if not path:
        return None
    if isinstance(layer, STACKS):
        spot = _local_layer(root, path, layer)
        if spot is not None:
            line = spot.expr.lineno
            return Location(short_path(spot.source.file), line, linecache.getline(spot.source.file, line).strip())
        return constructor_line(root, f"{path}.layers.0") or constructor_line(root, path)
    return constructor_line(root, path)


def _call(root: nn.Module, path: str, layer: nn.Module) -> Written | None:
    """The same constructor's call."""
    if not path:
        return None
    if isinstance(layer, STACKS):
        spot = _local_layer(root, path, layer)
        if spot is not None and isinstance(spot.expr, ast.Call):
            return Written(spot.expr, "".join(linecache.getlines(spot.source.file)), type(_first(layer)))
        return written_call(root, f"{path}.layers.0")
    return written_call(root, path)


def _local_layer(root: nn.Module, path: str, layer: nn.Module) -> Spot | None:
    """`layer = nn.TransformerEncoderLayer(...)`, where a stack is built of a local name."""
    parent, _, name = path.rpartition(".")
    source = Source.of(type(root.get_submodule(parent)))
    for spot in source.assigned(name) if source is not None else ():
        given = spot.expr.args[0] if isinstance(spot.expr, ast.Call) and spot.expr.args else None
        for inner in spot.source.bound(given.id, spot.function) if isinstance(given, ast.Name) else ():
            if isinstance(inner.expr, ast.Call) and is_class(inner.expr.func, _first(layer)):
                return inner
    return None


def _first(layer: nn.Module) -> nn.Module:
    return layer.get_submodule("layers.0") if isinstance(layer, STACKS) else layer


def _fix(root: nn.Module, path: str, layer: nn.Module, shape: Shape, time: int) -> str:
    """The constructor with the other order; a batch of rows without time needs an axis more."""
    if len(shape) == 2:
        return "give it (batch, time, features): x.unsqueeze(1)"
    value, call = str(time == 0), _call(root, path, layer)
    return (
        call.changed(batch_first=value)
        if call is not None
        else f"{type(_first(layer)).__name__}(..., batch_first={value})"
    )


RULES = (
    Rule(
        "SF308",
        "the batch is read as time",
        "error",
        """
        torch's attention and recurrent layers take (T, B, C) unless batch_first=True. Given (B, T, C) the examples of a
        batch read each other, and no shape tells.

        wrong:
            self.rnn = nn.LSTM(8, 16)
            out, _ = self.rnn(x)                             # x: B T 8

        right:
            self.rnn = nn.LSTM(8, 16, batch_first=True)
        """,
        find,
    ),
)
