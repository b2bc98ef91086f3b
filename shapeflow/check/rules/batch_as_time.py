"""SF308: a layer of torch that takes time first, given a batch first."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx, nn

from shapeflow.check.axes import record_of
from shapeflow.check.cause import constructor_line, written_call
from shapeflow.check.problem import Problem
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, at, line_of
from shapeflow.dims.expr import Expr

LAYERS = (
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


def find(scene: Scene) -> Iterator[Problem]:
    if scene.root is None or scene.batch is None:
        return
    modules = dict(scene.root.named_modules())
    seen: set[str] = set()
    for node in scene.operators():
        record = record_of(node)
        scopes = record.scopes if record is not None else ()
        path = next((scope.path for scope in scopes if isinstance(modules.get(scope.path), LAYERS)), None)
        if path is None or path in seen:
            continue
        read = [dims for source, dims in _read(node) if source != path and not source.startswith(f"{path}.")]
        if not read:
            continue
        seen.add(path)
        dims = read[0]
        wrong = len(dims) == 3 and scene.is_batch(dims[0]) and not scene.is_batch(dims[1])
        if wrong and not _batch_first(modules[path]):
            yield _problem(scene, node, path, modules[path], " ".join(map(str, dims)))


def _read(node: fx.Node) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Where each tensor that an operator reads was made, and its sizes; parameters aside."""
    record = record_of(node)
    for source, index, signature in record.sources if record is not None else ():
        if source.kind in ("operator", "input") and index < len(source.outputs):
            yield (source.scopes[-1].path if source.scopes else ""), signature.shape.dims


def _batch_first(module: nn.Module) -> bool:
    for each in module.modules():
        if isinstance(each, nn.MultiheadAttention | nn.RNNBase):
            return bool(each.batch_first)
    return True


def _problem(scene: Scene, node: fx.Node, path: str, module: nn.Module, shape: str) -> Problem:
    kind = type(module).__name__
    message = f"{kind} '{path}' takes time first, and gets {shape}: it reads the batch {scene.batch} as time"
    call = written_call(scene.root, path) if scene.root is not None else None
    fix = call.changed(batch_first="True") if call is not None else f"{kind}(..., batch_first=True)"
    where = constructor_line(scene.root, path) if scene.root is not None else None
    used = line_of(node)
    details = (f"called at {used}",) if used is not None else ()
    problem = Problem("SF308", "error", message, module=path, dims=(scene.batch or "",), fix=fix, details=details)
    return at(where or used, problem)


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
