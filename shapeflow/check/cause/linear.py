"""Linear: a wrong in_features, a flatten or a transpose that is missing, arguments the wrong way round.

Linear 'head' takes 10, gets 490 = 10*7*7: flatten is right, in_features is not
fix: nn.Linear(10 * 7 * 7, 5)
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from shapeflow.check.cause.call import Call, Operand, factors_text, names_in, number, same, valued
from shapeflow.check.cause.chain import chain, joined_from, merged_from
from shapeflow.check.cause.layer import Layer, layer_at, layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.suspects import widths_behind
from shapeflow.check.cause.swapping import move_last, other_axis, rewritten
from shapeflow.dims.expr import Expr, product


def linear(call: Call) -> Cause | None:
    """The cause for `F.linear`, with the layer it belongs to or a bare weight."""
    given, weight = call.tensor("input"), call.tensor("weight")
    if given is None or weight is None or weight.rank != 2 or not given.rank:
        return None
    takes = weight.dims[1]
    if same(takes, given.dims[-1]):
        return None
    layer = layer_of(call, nn.Linear)
    name = str(layer) if layer is not None else "linear"
    return (
        _unflattened(call, name, given, takes)
        or _overflattened(call, name, given, takes)
        or _transposed(call, name, given, takes)
        or _wrong_size(call, name, given, takes, layer)
    )


def _unflattened(call: Call, name: str, given: Operand, takes: Expr) -> Cause | None:
    """Trailing axes whose product is what the layer takes: `B 8 7 7` for 392, `B 64 1 1` for 64."""
    if given.rank == 1:
        return None
    for first in range(1 if given.rank > 2 else 0, given.rank - 1):
        trailing = given.dims[first:]
        if same(product(trailing), takes):
            shown = factors_text(trailing)
            message = f"{name} takes {takes} = {shown}, gets {valued(given.dims[-1])}, the last axis of {given}"
            fix = rewritten(call, "input", f".flatten({first})")
            return Cause(f"{message}: a flatten is missing", fix, names_in(given.dims[-1], takes), call.location)
    return None


def _overflattened(call: Call, name: str, given: Operand, takes: Expr) -> Cause | None:
    """`x.flatten()`, which takes the batch along."""
    step = next(chain(given), None) if given.rank == 1 else None
    if step is None or len(step.before) < 2 or not same(product(step.before[1:]), takes):
        return None
    message = f"{name} takes {takes} = {factors_text(step.before[1:])}, gets {given.dims[-1]}"
    where = step.maker.location or call.location
    return Cause(f"{message}: the flatten takes the batch along", ".flatten(1)", names_in(given.dims[-1], takes), where)


def _transposed(call: Call, name: str, given: Operand, takes: Expr) -> Cause | None:
    """Another axis has the size."""
    axis = other_axis(given, takes, given.rank - 1)
    if axis is None:
        return None
    message = f"{name} takes {takes}, gets {valued(given.dims[-1])}, the last axis of {given}"
    dims = names_in(given.dims[-1], takes)
    if given.rank == 4 and axis == 1 and call.promised is not None and len(call.promised) == 2:
        fix = rewritten(call, "input", ".mean((2, 3))")
        return Cause(f"{message}: its {takes} channels are not pooled", fix, dims, call.location)
    how = "a permute" if given.rank > 3 and axis != given.rank - 2 else "a transpose"
    why = f"{message}: axis {axis} has the {takes}, {how} is missing"
    return Cause(why, rewritten(call, "input", move_last(given.rank, axis)), dims, call.location)


def _wrong_size(call: Call, name: str, given: Operand, takes: Expr, layer: Layer | None) -> Cause:
    gets, (formula, reason) = given.dims[-1], _made_of(given, layer)
    shown = f"{gets} = {formula.replace(' ', '')}" if formula else valued(gets)
    message, dims, size = f"{name} takes {takes}, gets {shown}", names_in(gets, takes), number(gets)
    if layer is None:
        return Cause(message, f"a weight of {gets} columns", dims, call.location)
    if size is None and number(takes) is None:  # a model of symbols: the formula is what belongs there
        fix = layer.written(in_features=str(gets))
        return Cause(f"{message}: {reason}", fix, dims, layer.location or call.location)
    if size is None:
        return _depends(call, layer, message, given)
    known = formula and not any(char.isalpha() for char in formula)
    text = formula if known else str(size)
    also = _likewise(call, layer)
    reason += f", in {' and '.join(map(repr, also))} too" if also else ""
    right = layer.repair(f"{message}: {reason}", {"in_features": text}, in_features=size)
    right = replace(right, also=tuple(also))
    repairs = [right, *widths_behind(layer.root, given, -1, takes, message)]
    if size == layer.attribute("out_features"):
        swapped = f"{message} and gives {size}: its arguments are swapped"
        back = layer.repair(swapped, in_features=size, out_features=layer.attribute("in_features"))
        repairs = [back, *repairs] if _gives(call, takes, layer) else [right, back, *repairs[1:]]
    first = repairs[0]
    return Cause(first.message, first.fix, dims, first.location or call.location, candidates=tuple(repairs))


def _likewise(call: Call, layer: Layer) -> list[str]:
    """Paths of other layers that are given the same tensor in the same function, and take the same wrong width."""
    if call.expression is None or not call.direct:
        return []
    before = layer.path.rpartition(".")[0]
    paths = [f"{before}.{name}".lstrip(".") for name in call.expression.likewise(call.text("input", ""))]
    others = [layer_at(layer.root, path, nn.Linear) for path in paths if path != layer.path]
    width = layer.attribute("in_features")
    return [each.path for each in others if each is not None and each.attribute("in_features") == width]


def _made_of(given: Operand, layer: Layer | None) -> tuple[str, str]:
    """How the last axis came about, as a formula (`10 * 7 * 7`), and what to say of it."""
    merged, joined = merged_from(given), joined_from(given)
    merged = tuple(dim for dim in merged if not same(dim, 1))
    if len(merged) > 1:
        return factors_text(merged, " * "), "flatten is right, in_features is not"
    if joined:
        return " + ".join(map(str, joined)), "the parts of the cat add up, in_features is wrong"
    for step in chain(given):
        source = layer_at(layer.root, step.maker.path, nn.RNNBase) if layer is not None else None
        if source is not None:
            width = source.attribute("proj_size") or source.attribute("hidden_size")
            if source.attribute("bidirectional") and same(given.dims[-1], 2 * width):
                return f"2 * {width}", f"{source} reads both ways, in_features is wrong"
            break
        if not step.before or step.before[-1] is not step.after[-1]:
            break
    return "", "in_features is wrong"


def _gives(call: Call, takes: Expr, layer: Layer) -> bool:
    """Whether a result as wide as the input was to be is promised, or what the next layer takes: swapped arguments."""
    if call.promised is not None and any(same(dim, takes) for dim in call.promised):
        return True
    names = ("in_features", "in_channels", "num_features", "input_size")
    owner = layer.root.get_submodule(layer.path.rpartition(".")[0])
    behind = list(owner.children())
    behind = behind[behind.index(layer.module) + 1 :] if layer.module in behind else []
    sizes = (getattr(each, name) for each in behind for name in names if hasattr(each, name))
    return next(sizes, None) == number(takes)


def _depends(call: Call, layer: Layer, message: str, given: Operand) -> Cause:
    """The features are as many as the input's sizes make them: no number is right for all."""
    gets = given.dims[-1]
    names = names_in(gets)
    at = f" = {given.sizes[-1]} in this run" if given.sizes[-1] > 0 else ""
    fix = f"declare {' and '.join(names)} as numbers and size {layer} by them"
    if len(merged_from(given)) >= 3:
        fix = f"pool to a fixed size in front of the flatten (nn.AdaptiveAvgPool2d), or {fix}"
    return Cause(f"{message}{at}: it depends on {', '.join(names)}", fix, names, layer.location or call.location)
