"""Layers behind a tensor that may have made an axis too long or too short, and the argument that would mend it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn.modules import pooling

from shapeflow.check.cause.call import Operand, number, same
from shapeflow.check.cause.chain import Step, axis_before, chain
from shapeflow.check.cause.layer import Layer, layer_at
from shapeflow.check.cause.result import Repair
from shapeflow.dims.expr import Expr

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
POOLS = (pooling._MaxPoolNd, pooling._AvgPoolNd)
WIDTH: dict[type[nn.Module], str] = {
    nn.Linear: "out_features",
    nn.Embedding: "embedding_dim",
    **dict.fromkeys(CONVS + TRANSPOSED, "out_channels"),
}
Target = Mapping[int, Expr]


def layers_behind(root: nn.Module | None, operand: Operand) -> Iterator[tuple[Layer, Step]]:
    """The layers that resize, on the way to a tensor, the last first."""
    for layer, step, _ in _on_the_way(root, operand, ()):
        if layer is not None:
            yield layer, step


def _on_the_way(
    root: nn.Module | None, operand: Operand, axes: Iterable[int]
) -> Iterator[tuple[Layer | None, Step, tuple[int, ...]]]:
    """Each step, with its layer (at the layer's last step), and where the axes (from the end) were behind it."""
    seen: set[str] = set()
    now: tuple[int | None, ...] = tuple(axes)
    for step in chain(operand) if root is not None else ():
        path = step.maker.path
        layer = None if path in seen else layer_at(root, path, *WIDTH, *POOLS, nn.RNNBase)
        seen.add(path)
        known = tuple(axis for axis in now if axis is not None)
        if len(known) < len(now):
            return
        yield layer, step, known
        if now:
            now = tuple(axis_before(step, axis) for axis in known)


def widths_behind(root: nn.Module | None, operand: Operand, axis: int, size: Expr, message: str = "") -> list[Repair]:
    """The last layer that decides the width of this axis, with the width `size`."""
    wanted, length = number(size), operand.dims[axis]
    place = axis - operand.rank if axis >= 0 else axis
    for layer, step, (now,) in _on_the_way(root, operand, (place,)) if wanted is not None else ():
        kinds = [kind for kind in WIDTH if layer is not None and isinstance(layer.module, kind)]
        if layer is None or not kinds:
            continue
        own = -len(step.after) + 1 if kinds[0] in CONVS + TRANSPOSED else -1
        attribute = WIDTH[kinds[0]]
        if now != own or step.after[now] is not length or layer.attribute(attribute) != number(length):
            return []
        told = f"{message}: " if message else ""
        return [layer.repair(f"{told}{layer} gives {length}, not {size}", **{attribute: wanted})]
    return []


def mends_behind(
    root: nn.Module | None, operand: Operand, target: Target, message: str, *, resizing: bool = True
) -> list[Repair]:
    """Repairs of the layers behind a tensor that give its axes (from the end: -1, -2) the sizes of `target`.

    `resizing`: only of layers that change the size of one of the axes now; otherwise of the others too.
    """
    after: list[nn.Module] = []
    found: list[Repair] = []
    sizes = tuple(target.values())
    for layer, step, axes in _on_the_way(root, operand, target):
        if layer is not None and isinstance(layer.module, CONVS + TRANSPOSED + POOLS):
            if len(step.before) != len(step.after) or min(axes) < 2 - len(step.after):
                break  # channels are no matter of strides
            if not resizing or any(step.before[axis] is not step.after[axis] for axis in axes):
                found += _mends(layer, step, dict(zip(axes, sizes, strict=True)), after, message)
            after.insert(0, layer.module)
        elif any(_changes(step, axis) for axis in axes):
            break
    return found


def _changes(step: Step, axis: int) -> bool:
    """Whether an operator other than a known layer gave the axis another size."""
    before = axis_before(step, axis)
    return before is None or step.before[before] is not step.after[axis]


def _mends(layer: Layer, step: Step, target: Target, after: list[nn.Module], message: str) -> Iterator[Repair]:
    """The arguments of one layer that lead to the target through the layers behind it, by the formulas of torch."""
    for name, value in _options(layer.module):
        changed = {**_hyper(layer.module), name: value}
        if all(_reaches(step.before[axis], layer.module, changed, after, axis, size) for axis, size in target.items()):
            axis = max(target)
            told = f"{layer} makes {step.after[axis]} of {step.before[axis]} {_because(layer, name)}"
            yield layer.repair(f"{message}: {told}", **{name: value})


def _because(layer: Layer, name: str) -> str:
    if name in ("stride", "padding", "dilation", "kernel_size", "output_padding"):
        now = layer.attribute(name)
        now = now[0] if isinstance(now, tuple) else now
        return f"({name}={now})"
    return ""


def _reaches(
    size: Expr, module: nn.Module, hyper: Mapping[str, Any], after: list[nn.Module], axis: int, wanted: Expr
) -> bool:
    now = _out(size, module, hyper, axis)
    for each in after:
        now = _out(now, each, _hyper(each), axis)
    return same(now, wanted)


def _hyper(module: nn.Module) -> dict[str, Any]:
    names = ("kernel_size", "stride", "padding", "dilation", "output_padding", "ceil_mode")
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _options(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Other values for the arguments that decide the size, the likeliest first."""
    if isinstance(module, TRANSPOSED):
        stride, kernel = _one(module.stride), _one(module.kernel_size)
        yield from (("output_padding", value) for value in range(stride) if value != _one(module.output_padding))
        yield from (("kernel_size", value) for value in range(1, kernel + 3) if value != kernel)
        yield from (("padding", value) for value in range(kernel) if value != _one(module.padding))
        yield from (("stride", value) for value in (1, 2, 4) if value != stride)
        return
    stride, kernel = _one(getattr(module, "stride", 1)), _one(getattr(module, "kernel_size", 1))
    yield from (("stride", value) for value in (1, 2, 4) if value != stride)
    padding = getattr(module, "padding", 0)
    if not isinstance(padding, str):
        yield from (("padding", value) for value in range(kernel + 1) if value != _one(padding))
    if isinstance(module, POOLS):
        yield "ceil_mode", not getattr(module, "ceil_mode", False)


def _one(value: Any) -> int:
    """A size per axis as one number."""
    return value[0] if isinstance(value, tuple) else value


def _out(size: Expr, module: nn.Module, hyper: Mapping[str, Any], axis: int) -> Expr:
    """The length of an axis (from the end) behind a convolution or a pooling."""

    def at(name: str, default: int = 0) -> int:
        value = hyper.get(name, default)
        return value[axis] if isinstance(value, tuple) else value

    if hyper.get("padding") == "same":
        return size
    padding = 0 if hyper.get("padding") == "valid" else at("padding")
    reach = at("dilation", 1) * (at("kernel_size") - 1)
    if isinstance(module, TRANSPOSED):
        return (size - 1) * at("stride") - 2 * padding + reach + at("output_padding") + 1
    extra = at("stride") - 1 if hyper.get("ceil_mode") else 0
    return (size + 2 * padding - reach - 1 + extra) // at("stride") + 1


def lacking(module: nn.Module) -> int:
    """How many rows a transposed convolution makes too few for `stride * n` of `n`."""
    size, stride = Expr.symbol("n"), _one(module.stride)
    found = _out(size, module, _hyper(module), -1) - size * stride
    return -(found.constant or 0)
