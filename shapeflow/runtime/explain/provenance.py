"""Where the tensors on the failing line come from: the operators behind them, and names for their axes.

>>> provenance = Provenance.of(stack, statement, bound, start)
>>> provenance.named[id(scores)].dims
(B, T, T)

A name is given by origin, never by value: the statements are gone through again with one named size changed, and an
axis that changes along with it, as often as it is tried, is that name, or a formula in it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from shapeflow.check.cause.call import Dims, Maker, Operand
from shapeflow.dims.expr import Expr
from shapeflow.runtime.explain.body import Body, function_at
from shapeflow.runtime.explain.bound import Bound
from shapeflow.runtime.explain.evaluate import Evaluator
from shapeflow.runtime.explain.pure import Unseen
from shapeflow.runtime.explain.recording import Made, Memory, Recorder
from shapeflow.runtime.explain.stack import Step
from shapeflow.runtime.explain.statement import Statement
from shapeflow.runtime.explain.tensor import is_tensor

STEPS = (2, 5)
"""How much a named size is changed: two amounts, so that half of it, rounded, is not taken for it."""
MOST_NAMES = 6
MOST_OPERATORS = 500
"""Beyond so many operators names are not looked for: an explanation should be there at once."""


@dataclass
class Provenance:
    """What is known of tensors, by `id`. `evaluator` is that of the failing line, `tensors` keeps the ids."""

    evaluator: Evaluator
    named: dict[int, Operand] = field(default_factory=dict)
    tensors: list[torch.Tensor] = field(default_factory=list)

    def dims(self, tensor: torch.Tensor) -> Dims | None:
        operand = self.named.get(id(tensor))
        return None if operand is None else operand.dims

    def also(self, tensor: Any, like: Any) -> None:
        """A tensor that is what another one stands for."""
        operand = self.named.get(id(like))
        if operand is not None and is_tensor(tensor) and operand.sizes == tuple(tensor.shape):
            self.named.setdefault(id(tensor), operand)


def provenance_of(
    steps: Sequence[Step], statement: Statement | None, bound: Bound, names: Mapping[str, int], root: nn.Module | None
) -> Provenance:
    """Go from the first of these steps, whose arguments `bound` knows, to the failing line."""
    last = steps[-1]
    paths = {id(module): path for path, module in root.named_modules()} if root is not None else {}
    plain = Provenance(Evaluator.of(last.frame), _given(bound))
    twins: dict[int, nn.Module] = {}
    base = World(paths, twins).at_the_end_of(steps, bound)
    if base is None or statement is None or statement.node is None:
        return plain
    worlds: dict[tuple[str, int], World] = {}
    for name in list(names)[:MOST_NAMES] if len(base.memory.made) < MOST_OPERATORS else ():
        for step in STEPS:
            changed = {**names, name: names[name] + step}
            world = World(paths, twins).at_the_end_of(steps, bound, changed)
            if world is not None:
                worlds[name, step] = world
    return _compared(plain, last, statement, base, worlds, names, root)


class World:
    """One way through the functions."""

    def __init__(self, paths: Mapping[int, str], twins: dict[int, nn.Module]) -> None:
        self.memory = Memory(paths, twins)
        self.recorder: Recorder | None = None

    def at_the_end_of(
        self, steps: Sequence[Step], bound: Bound, sizes: Mapping[str, int] | None = None
    ) -> World | None:
        """Go through the functions of all steps, at other sizes where they are given; None where there is no way.

        At other sizes no value of the true run can stand for one that is not known.
        """
        same = sizes is None
        names = dict(bound.values) if sizes is None else {k: _resized(v, bound, sizes) for k, v in bound.values.items()}
        for at, step in enumerate(steps):
            definition, where = function_at(step.code), Statement.of(step)
            if definition is None or where is None or where.stands is None:
                return None
            around = {name: step.frame.f_locals[name] for name in step.code.co_freevars if name in step.frame.f_locals}
            recorder = self._recorder(step, {**around, **names})
            if not Body(recorder, recorder.names).up_to(definition, where.stands, step.frame.f_locals, fall_back=same):
                return None
            self.recorder = recorder
            if at + 1 < len(steps):
                names = self._passed(recorder, where, steps[at + 1], fall_back=same)
        return self

    def _recorder(self, step: Step, names: dict[str, Any]) -> Recorder:
        path = self.memory.paths.get(id(step.module), "")
        return Recorder(names, step.frame.f_globals, self.memory, step.code.co_filename, path=path)

    def _passed(self, recorder: Recorder, where: Statement, inner: Step, *, fall_back: bool) -> dict[str, Any]:
        """The arguments with which the next function was called, as the failing call of this one gives them."""
        code, local = inner.code, inner.frame.f_locals
        parameters = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        found: dict[str, Any] = {}
        for name in parameters:
            value = local.get(name)
            if fall_back or not is_tensor(value):
                found[name] = value
        if not isinstance(where.node, ast.Call):
            return found
        method = parameters[:1] == ["self"] and not isinstance(recorder.known(where.node.func), type)
        for name, node in zip(parameters[int(method) :], where.node.args, strict=False):
            if isinstance(node, ast.Starred):
                break
            self._pass(found, name, node, recorder, fall_back)
        for keyword in where.node.keywords:
            if keyword.arg in parameters:
                self._pass(found, keyword.arg, keyword.value, recorder, fall_back)
        return found

    def _pass(self, found: dict[str, Any], name: str, node: ast.AST, recorder: Recorder, fall_back: bool) -> None:
        try:
            found[name] = recorder.value(node)
        except Unseen:
            if not fall_back:
                found.pop(name, None)


def _resized(tensor: Any, bound: Bound, sizes: Mapping[str, int]) -> Any:
    """The tensor with its named axes at other sizes, without values; what is none stays."""
    dims = bound.dims(tensor) if is_tensor(tensor) else None
    if dims is None:
        return tensor
    shape = [dim.at(**sizes) for dim in map(_free, dims)]
    return torch.empty(shape, dtype=tensor.dtype, device="meta")


def _free(dim: Expr) -> Expr:
    """The axis with its names free again: `bound` has them pinned to their size."""
    return dim.replace({symbol: Expr.symbol(symbol.name) for symbol in dim.symbols})


def _given(bound: Bound) -> dict[int, Operand]:
    """The arguments that annotations named, as operands."""
    found = {}
    for name, tensor in bound.tensors.items():
        dims = bound.dims(tensor)
        if dims is not None:
            dtype = str(tensor.dtype).removeprefix("torch.")
            found[id(tensor)] = Operand(dims, tuple(tensor.shape), dtype, "input", name)
    return found


def _tables(root: nn.Module | None) -> dict[int, Operand]:
    """Parameters and buffers, with their paths."""
    if root is None:
        return {}
    buffers = {id(each): _plain(each, "buffer", path) for path, each in root.named_buffers()}
    return {**buffers, **{id(each): _plain(each, "parameter", path) for path, each in root.named_parameters()}}


def _plain(tensor: torch.Tensor, kind: str, path: str = "") -> Operand:
    sizes = tuple(tensor.shape)
    return Operand(tuple(map(Expr.const, sizes)), sizes, str(tensor.dtype).removeprefix("torch."), kind, path)


def _compared(
    plain: Provenance,
    last: Step,
    statement: Statement,
    base: World,
    worlds: Mapping[tuple[str, int], World],
    names: Mapping[str, int],
    root: nn.Module | None,
) -> Provenance:
    """The operands of the failing line, with names as the worlds tell them."""
    assert base.recorder is not None
    followed = dict(base.recorder.names)
    local = dict(last.frame.f_locals)
    recorder = Recorder(local, last.frame.f_globals, base.memory, last.code.co_filename, path=base.recorder.path)
    recorder._devices |= base.recorder._devices
    reader = _Reader(base.memory, worlds, names, {**_tables(root), **plain.named})
    found = Provenance(recorder, reader.operands, reader.kept)
    _read_all(base.memory, reader)
    for name, value in local.items():
        if is_tensor(value) and id(value) not in reader.operands:
            before = followed.get(name)
            if not is_tensor(before) or before is value:
                continue
            if (before.shape, before.dtype) == (value.shape, value.dtype):
                reader.operands[id(value)] = reader.operand(before)
    for node in statement.operands:
        _evaluate(node, recorder, worlds)
    _read_all(base.memory, reader)
    return found


def _read_all(memory: Memory, reader: _Reader) -> None:
    """All tensors in the order in which they were made, so that each finds its inputs read."""
    for made in list(memory.made.values()):
        reader.operand(made.tensor)


def _evaluate(node: ast.expr, recorder: Recorder, worlds: Mapping[tuple[str, int], World]) -> None:
    """An operand in each world, in one order, so that its tensors have the same keys."""
    for each in [recorder, *(world.recorder for world in worlds.values() if world.recorder is not None)]:
        each.memory.counts.clear()
        each.memory.counts.update({id(part): _FINAL for part in ast.walk(node)})
        try:
            each.once(node)
        except Unseen:
            continue


_FINAL = 1_000_000
"""The count of a node on the failing line: how often it was evaluated before may differ."""


class _Reader:
    """Operands from tensors, each once."""

    def __init__(
        self,
        memory: Memory,
        worlds: Mapping[tuple[str, int], World],
        names: Mapping[str, int],
        operands: dict[int, Operand],
    ) -> None:
        self.memory, self.worlds, self.names, self.operands = memory, worlds, names, dict(operands)
        self.kept: list[torch.Tensor] = []

    def operand(self, tensor: torch.Tensor) -> Operand:
        known = self.operands.get(id(tensor))
        if known is not None:
            return known
        made, sizes = self.memory.made.get(id(tensor)), tuple(tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if made is None:
            return _plain(tensor, "parameter" if isinstance(tensor, nn.Parameter) else "result")
        self.kept.append(tensor)
        inputs = tuple(self.operand(each) for each in made.inputs)
        maker = Maker(made.operator, made.path, made.kind, made.location, _args(made), lambda: inputs)
        dims = tuple(self._dim(made, axis, size) for axis, size in enumerate(sizes))
        found = self.operands[id(tensor)] = Operand(dims, sizes, dtype, "result", "", maker)
        return found

    def _dim(self, made: Made, axis: int, size: int) -> Expr:
        """The axis as a formula: how it grows with each name that can grow; a number where that is not even."""
        slopes: dict[str, int] = {}
        for name in self.names:
            grown = [(self._growth(made, axis, size, name, step), step) for step in STEPS]
            rates = {growth / step for growth, step in grown if growth is not None}
            if len(rates) > 1 or not all(rate.is_integer() for rate in rates):
                return Expr.const(size)
            if rates and (rate := int(rates.pop())):
                slopes[name] = rate
        return _formula(slopes, size, self.names)

    def _growth(self, made: Made, axis: int, size: int, name: str, step: int) -> int | None:
        world = self.worlds.get((name, step))
        tensor = None if world is None else world.memory.by_key.get(made.key)
        return None if tensor is None or tensor.dim() <= axis else tensor.shape[axis] - size


def _formula(slopes: Mapping[str, int], size: int, names: Mapping[str, int]) -> Expr:
    """`T`, `2*T + 1`, `B*T`, from how much an axis grows with each name."""
    pins = {name: Expr.symbol(name, names[name]) for name in slopes}
    product = Expr.const(1)
    for name in slopes:
        product = product * pins[name]
    rest = product.value
    if (
        slopes
        and rest
        and size % rest == 0
        and all(rate == size // rest * (rest // names[name]) for name, rate in slopes.items())
    ):
        return product * (size // rest)
    linear = Expr.const(0)
    for name, rate in slopes.items():
        linear = linear + pins[name] * rate
    return linear + (size - (linear.value or 0))


def _args(made: Made) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without tensors, which nobody needs to keep."""
    args = tuple(None if is_tensor(each) else each for each in made.args)
    return args, {name: each for name, each in made.kwargs.items() if not is_tensor(each)}
