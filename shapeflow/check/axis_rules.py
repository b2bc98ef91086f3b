"""What each operator does to axes: which it keeps, moves, drops, makes.

A rule gives the axes of one output, or None where it does not know; `Axes` then takes them as new. Where an axis does
not have the size that it should, it is new too: a rule need not ask whether a slice takes the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import fx

from shapeflow.check.axis import ONE, Axis, Dims, Factor, Recut, Shape, axes_named, split, whole
from shapeflow.check.axis_products import attended, contracted_by_name, multiplied, paired
from shapeflow.check.nodes import argument, numbers_of, operator_of, tensors_of
from shapeflow.check.regroup import groups, nested, reordered
from shapeflow.dims.expr import Expr
from shapeflow.trace.view import KEEPS_AXES

if TYPE_CHECKING:
    from shapeflow.check.axes import Axes

Rule: TypeAlias = "Callable[[Axes, fx.Node, Dims, int], Shape | None]"


def kept(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """The first argument's axes, whatever their sizes are now."""
    shape = axes.of(node.args[0]) if node.args else None
    return shape if shape is not None and len(shape) == len(dims) else None


def elementwise(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """Axes aligned from the last one; where several operands have an axis, the first one's that is no parameter's."""
    operands = [(shape, each.op == "get_attr") for each in tensors_of(node) if (shape := axes.of(each)) is not None]
    if not operands:
        return None
    return tuple(paired(operands, back, axes, dims) for back in range(len(dims), 0, -1))


def last_replaced(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """`linear`: the last axis is new, and of size one only because the layer has one feature."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) != len(dims):
        return None
    return (*shape[:-1], axes.axis(dims[-1], implicit=True))


def embedded(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    shape = axes.of(node.args[0])
    return None if shape is None else (*shape, axes.axis(dims[-1], implicit=True))


def convolved(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """The batch stays; channels are new, positions where their number changes."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) != len(dims) or len(shape) < 3:
        return None
    return (shape[0], axes.axis(dims[1], implicit=True), *shape[2:])


def recurrent(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """The output has the input's first axes; a state is (layers, batch, features)."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) != 3 or len(dims) != 3:
        return None
    if output == 0:
        return (*shape[:-1], axes.axis(dims[-1], implicit=True))
    first = node.args[-1] is True
    return (axes.axis(dims[0], implicit=True), shape[0 if first else 1], axes.axis(dims[2], implicit=True))


# Axes that move


def transposed(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    shape = axes.of(node.args[0])
    order = None if shape is None or len(shape) != len(dims) else order_of(node, len(shape))
    return None if order is None or shape is None else tuple(shape[axis] for axis in order)


def order_of(node: fx.Node, rank: int) -> list[int] | None:
    """Which axis of its argument each axis of a transpose, permute or movedim is."""
    name, given = operator_of(node), numbers_of(node.args[1:], node.kwargs)
    order = list(range(rank))
    if name in ("T", "H"):
        return order[::-1]
    if name in ("t", "mT", "mH", "adjoint"):
        return [*order[:-2], *reversed(order[-2:])]
    if any(not -rank <= axis < rank for axis in given):
        return None
    given = [axis % rank for axis in given]
    if name == "permute":
        return given if len(given) == rank else None
    if name in ("movedim", "moveaxis"):
        return _moved(given[: len(given) // 2], given[len(given) // 2 :], rank)
    if len(given) != 2:
        return None
    order[given[0]], order[given[1]] = given[1], given[0]
    return order


def _moved(source: list[int], target: list[int], rank: int) -> list[int]:
    rest = iter([axis for axis in range(rank) if axis not in source])
    placed = dict(zip(target, source, strict=False))
    return [placed[axis] if axis in placed else next(rest) for axis in range(rank)]


# Axes of size one, and those that disappear


def unsqueezed(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    shape, given = axes.of(node.args[0]), numbers_of(node.args[1:], node.kwargs)
    if shape is None or len(given) != 1:
        return None
    at = given[0] % (len(shape) + 1)
    return (*shape[:at], Axis((), literal=True), *shape[at:])


def squeezed(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    shape, given = axes.of(node.args[0]), numbers_of(node.args[1:], node.kwargs)
    if shape is None:
        return None
    dropped = {axis % len(shape) for axis in given} if given else set(range(len(shape)))
    return tuple(axis for at, axis in enumerate(shape) if axis.factors or at not in dropped)


def expanded(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """A size-one axis that is expanded has an origin of its own, and all along it is equal."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) > len(dims):
        return None
    new = len(dims) - len(shape)
    rest = zip(shape, dims[new:], strict=True)
    return (*(axes.axis(dim, trait="constant") for dim in dims[:new]), *(_stretched(axes, a, d) for a, d in rest))


def _stretched(axes: Axes, axis: Axis, dim: Expr) -> Axis:
    return axis if axis.factors or dim.value == 1 else axes.axis(dim, trait="constant")


def repeated(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """Copies of an axis: the copies are the slower factor."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) > len(dims):
        return None
    new = len(dims) - len(shape)
    rest = zip(shape, dims[new:], strict=True)
    return (*(axes.axis(dim, trait="constant") for dim in dims[:new]), *(_copied(axes, a, d) for a, d in rest))


def _copied(axes: Axes, axis: Axis, dim: Expr, *, inner: bool = False) -> Axis:
    if not axis.factors or axes.equal(axis.size, dim):
        return _stretched(axes, axis, dim)
    times = dim.unpinned // axis.size.unpinned
    if not axes.equal(times * axis.size, dim):
        return axes.axis(dim)
    copies = axes.axis(times, trait="constant").factors
    return Axis((*axis.factors, *copies) if inner else (*copies, *axis.factors))


def interleaved(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """`repeat_interleave`: each element several times, the copies are the faster factor."""
    shape = axes.of(node.args[0])
    at = axes_named(argument(node, 2, "dim"), len(shape)) if shape is not None else None
    if shape is None or at is None or len(shape) != len(dims):
        return None
    return tuple(
        _copied(axes, a, d, inner=True) if i in at else a for i, (a, d) in enumerate(zip(shape, dims, strict=True))
    )


def reduced(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    shape = axes.of(node.args[0])
    if shape is None or not dims:
        return None
    if len(shape) == len(dims):
        return tuple(a if axes.equal(a.size, d) else Axis(()) for a, d in zip(shape, dims, strict=True))
    dropped = axes_named(
        argument(node, 2 if operator_of(node) in ("norm", "renorm") else 1, "dim", node.kwargs.get("axis")), len(shape)
    )
    return None if dropped is None else tuple(axis for at, axis in enumerate(shape) if at not in dropped)


# Parts and joins


def joined(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """Each axis from the first tensor that has it at its size; the one along which they are joined is new."""
    parts = argument(node, 0, "tensors")
    shapes = [axes.of(part) for part in parts] if isinstance(parts, tuple | list) else []
    if not shapes or not all(shape is not None and len(shape) == len(dims) for shape in shapes):
        return None
    at = axes_named(argument(node, 1, "dim", 0), len(dims))
    along = {0} if at is None else at
    rows = [[shape[index] for shape in shapes if shape is not None] for index in range(len(dims))]
    return tuple(axes.axis(dims[i]) if i in along else _best(row) for i, row in enumerate(rows))


def _best(row: list[Axis]) -> Axis:
    return next((axis for axis in row if axis.factors and not axis.constant), row[0])


def stacked(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    parts = argument(node, 0, "tensors")
    shape = axes.of(parts[0]) if isinstance(parts, tuple | list) and parts else None
    at = argument(node, 1, "dim", 0)
    if shape is None or not isinstance(at, int):
        return None
    at %= len(dims)
    return (*shape[:at], axes.axis(dims[at]), *shape[at:])


def indexed(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """`x[:, 0]`, `x[..., None]`, `x[:, :t]`: a part of an axis has an origin of its own."""
    shape, index = axes.of(node.args[0]), index_of(axes, node)
    if shape is None or any(isinstance(part, fx.Node) and "size" not in part.meta for part in index):
        return None
    rest = len(shape) - sum(part is not None and part is not Ellipsis for part in index)
    made: list[Axis] = []
    at = 0
    for part in index if Ellipsis in index else (*index, Ellipsis):
        if part is Ellipsis:
            made.extend(shape[at : at + rest])
            at += rest
        elif part is None:
            made.append(Axis((), literal=True))
        else:
            if isinstance(part, slice):
                made.append(_part(axes, shape[at], dims[len(made)] if len(made) < len(dims) else ONE))
            at += 1
    return tuple(made)


def index_of(axes: Axes, node: fx.Node) -> tuple[Any, ...]:
    """The parts of an index in the order of the axes."""
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return tuple(axes.constant(part) for part in index)


def _part(axes: Axes, axis: Axis, dim: Expr) -> Axis:
    """An axis, or a part of it, whose rows are shifted when its own are."""
    if dim.value == 1 and not axis.factors:
        return axis
    traits = {factor.trait for factor in axis.factors}
    trait = "shifted" if "shifted" in traits else "constant" if axis.constant and axis.factors else ""
    return axis if axes.equal(axis.size, dim) else axes.axis(dim, trait=trait)


def narrowed(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """`narrow`, `pad`, `index_select`, pooling: axes whose size changes are parts, the others stay."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) != len(dims):
        return None
    return tuple(_part(axes, axis, dim) for axis, dim in zip(shape, dims, strict=True))


def selected(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    shape = axes.of(node.args[0])
    dropped = axes_named(argument(node, 1, "dim", 0), len(shape)) if shape is not None else None
    return None if shape is None or dropped is None else tuple(a for at, a in enumerate(shape) if at not in dropped)


def parted(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """`chunk`, `split`: the other axes stay. A part of one feature is of size one because the layer has so many."""
    shape = axes.of(node.args[0])
    if shape is None or len(shape) != len(dims):
        return None
    return tuple(
        Axis((), implicit=True) if dim.value == 1 and axis.factors else _part(axes, axis, dim)
        for axis, dim in zip(shape, dims, strict=True)
    )


# Views


def viewed(axes: Axes, node: fx.Node, dims: Dims, output: int) -> Shape | None:
    """Factors split and merged; a view that does neither re-cuts its axes."""
    shape = axes.of(node.args[0])
    if shape is None:
        return None
    factors = whole([factor for axis in shape for factor in axis.factors])
    places = [at for at, dim in enumerate(dims) if dim.value != 1]
    made: list[Axis] = []
    for source, target in groups(axes, factors, [dims[at] for at in places]):
        made.extend(_cut(axes, node, source, target, places[len(made) : len(made) + len(target)]))
    cut = iter(made)
    ones = iter(axis for axis in shape if not axis.factors)
    return tuple(
        next(ones, Axis(()))
        if dim.value == 1 and _same_ones(shape, dims)
        else Axis(())
        if dim.value == 1
        else next(cut)
        for dim in dims
    )


def _same_ones(shape: Shape, dims: Dims) -> bool:
    """Whether a view leaves the axes of size one where they are."""
    return [not axis.factors for axis in shape] == [dim.value == 1 for dim in dims]


def _cut(
    axes: Axes, node: fx.Node, source: tuple[Factor, ...], target: tuple[Expr, ...], places: list[int]
) -> list[Axis]:
    if not source or not target or not axes.equal(Axis(source).size, Axis(tuple(Factor((), d) for d in target)).size):
        return list(axes.fresh(target))
    if len(target) == 1:
        return [Axis(source)]
    if len(source) == 1:
        return [Axis((each,)) for each in split(source[0], target)]
    found = nested(axes, list(source), target)
    if found is not None and not _swapped(axes, source, target):
        return found
    if not any(factor.trait == "shifted" for factor in source):  # what follows from one is not told again
        axes.recuts.append(Recut(node, source, target, tuple(places)))
    return [axes.axis(size, trait="shifted") for size in target]


def _swapped(axes: Axes, source: tuple[Factor, ...], target: tuple[Expr, ...]) -> bool:
    """Numbers may nest by chance, (16, 64) in (64, 16); whoever writes the same sizes in another order means axes."""
    if len(source) != len(target) or any(size.unpinned.constant is None for size in target):
        return False
    order = reordered(axes, source, target)
    return order is not None and [at for row in order for at in row] != list(range(len(source)))


RULES: dict[str, Rule] = (
    dict.fromkeys((name.rstrip("_") for name in KEEPS_AXES), elementwise)
    | dict.fromkeys(
        """floor_divide fmod logical_xor xor rpow bitwise_xor isclose nan_to_num rfloordiv rmod addcmul addcdiv
        masked_scatter xlogy logaddexp atan2 hypot sign floor ceil round trunc bernoulli zeros_like ones_like
        full_like rand_like randn_like empty_like erfinv sinh cosh tan asin acos atan softmin threshold hardshrink
        softshrink prelu rrelu feature_dropout dropout1d dropout2d dropout3d feature_alpha_dropout positive negative
        absolute""".split(),
        elementwise,
    )
    | dict.fromkeys(
        """softmax log_softmax gumbel_softmax normalize layer_norm rms_norm batch_norm group_norm instance_norm cumsum
        cumprod logcumsumexp flip roll dropout alpha_dropout to float bool half double bfloat16 int long contiguous
        clone detach type type_as cpu sort argsort triu tril local_response_norm requires_grad fill zero normal
        uniform""".split(),
        kept,
    )
    | {
        "linear": last_replaced,
        "bilinear": last_replaced,
        "embedding": embedded,
        "scaled_dot_product_attention": attended,
    }
    | dict.fromkeys("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split(), convolved)
    | dict.fromkeys(
        """max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d interpolate upsample pad constant_pad_nd narrow
        index_select topk max_pool2d_with_indices lp_pool2d glu""".split(),
        narrowed,
    )
    | dict.fromkeys(("matmul", "bmm", "mm", "mv", "dot", "rmatmul", "addmm", "baddbmm"), multiplied)
    | {"einsum": contracted_by_name}
    | dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent)
    | dict.fromkeys("transpose swapaxes swapdims permute t T H mT mH adjoint movedim moveaxis".split(), transposed)
    | {"unsqueeze": unsqueezed, "squeeze": squeezed, "getitem": indexed, "select": selected, "unbind": selected}
    | dict.fromkeys(("expand", "expand_as", "broadcast_to"), expanded)
    | {"repeat": repeated, "tile": repeated, "repeat_interleave": interleaved}
    | dict.fromkeys(
        """sum mean amax amin max min prod std var norm vector_norm logsumexp argmax argmin any all nansum
        median""".split(),
        reduced,
    )
    | dict.fromkeys(("cat", "concat", "concatenate"), joined)
    | {"stack": stacked}
    | dict.fromkeys(("chunk", "split", "split_with_sizes", "tensor_split"), parted)
    | dict.fromkeys(
        ("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "ravel", "_unsafe_view"), viewed
    )
)
