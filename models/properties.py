"""What must hold for a model whatever its weights are, as checks that say where it does not (sections 5.2, 14.1).

>>> future_leaks(lambda ids: ids[..., None].cumsum(dim=1).float(), torch.tensor([[3, 1, 2]]))
()
>>> future_leaks(lambda ids: ids[..., None].flip(1).float(), torch.tensor([[3, 1, 2]]))
(0,)

A model here is anything from ids to one vector per position, in eval mode: dropout would change every output. Run each
check on a model that must fail it too (an unmasked one, a norm over the batch): only then does `()` mean something.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Model = Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T width"]]


def future_leaks(model: Model, ids: Int[Tensor, "B T"], *, tolerance: float = 1e-5) -> tuple[int, ...]:
    """The positions whose output changes when a later token is another one; none in a causal model."""
    leaks = set()
    for t in range(1, ids.shape[1]):
        leaks |= {position for position in changed_positions(model, ids, t, tolerance=tolerance) if position < t}
    return tuple(sorted(leaks))


def changed_positions(model: Model, ids: Int[Tensor, "B T"], t: int, *, tolerance: float = 1e-5) -> tuple[int, ...]:
    """The positions whose output changes in some sequence when the token at position `t` is another one."""
    difference = (model(ids) - model(with_another_token(ids, t))).abs().amax(dim=(0, 2))
    return tuple((difference > tolerance).nonzero()[:, 0].tolist())


def with_another_token(ids: Int[Tensor, "B T"], t: int) -> Int[Tensor, "B T"]:
    """The same ids but for position `t`, where every sequence gets the id below its own, or 1 in the place of 0."""
    column = ids[:, t]
    changed = ids.clone()
    changed[:, t] = torch.where(column > 0, column - 1, column + 1)
    return changed


def batch_leaks(model: Model, ids: Int[Tensor, "B T"], *, tolerance: float = 1e-5) -> tuple[int, ...]:
    """The sequences whose output depends on which others are in the batch: alone it is not what it is among them."""
    together = model(ids)
    alone = torch.cat([model(row[None]) for row in ids])
    difference = (together - alone).abs().amax(dim=(1, 2))
    return tuple((difference > tolerance).nonzero()[:, 0].tolist())
