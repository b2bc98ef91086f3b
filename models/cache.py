"""What a decoder keeps of the positions that it has read, so that a new token costs one query (section 12.3).

>>> layer = LayerCache()
>>> prompt = layer.extend(torch.zeros(2, 4, 5, 8), torch.zeros(2, 4, 5, 8))
>>> k, v = layer.extend(torch.ones(2, 4, 1, 8), torch.ones(2, 4, 1, 8))
>>> k.shape, layer.length
(torch.Size([2, 4, 6, 8]), 6)

In a causal model old keys and values never change, as long as the weights, the positions and what may be read stay the
same and dropout is off. A cache is valid for one batch of prefixes: an edited prefix needs a new one.
"""

from collections.abc import Callable

import torch
from jaxtyping import Shaped
from torch import Tensor


class LayerCache:
    """What one attention layer keeps: its keys and values, or whatever it makes them from.

    Read `length` and `offset` before `extend`: the first new query stands at position `length`, and the first key that
    `extend` returns at position `offset`. Both are numbers of positions, padding counted.
    """

    def __init__(self, window: int | None = None) -> None:
        if window is not None and window <= 0:
            raise ValueError(f"a window holds at least the query's own position, got {window}")
        self.window = window
        self.length = 0
        self.held: tuple[Tensor, ...] = ()
        self.kept: tuple[Tensor, ...] = ()

    @property
    def offset(self) -> int:
        """The position of the first key held: 0 as long as no window has dropped one."""
        return self.length - (self.held[0].shape[-2] if self.held else 0)

    def extend(self, *new: Shaped[Tensor, "... T _"]) -> tuple[Shaped[Tensor, "... S _"], ...]:
        """Append each tensor to what is held under its place, along the axis of positions; give back the whole.

        With a window only what later queries may read is held afterwards: `window - 1` positions, as a query always
        reads itself. What is returned still serves every one of the new queries.
        """
        pairs = zip(self.held, new, strict=True) if self.held else ()
        whole = tuple(torch.cat(pair, dim=-2) for pair in pairs) or new
        self.length += new[0].shape[-2]
        self.held = whole if self.window is None else tuple(last(part, self.window - 1) for part in whole)
        return whole

    def keep(self, make: Callable[[], tuple[Tensor, ...]]) -> tuple[Shaped[Tensor, "... S _"], ...]:
        """What `make` gave the first time: the keys and values of cross-attention, which no new token changes."""
        if not self.kept:
            self.kept = make()
        return self.kept


class Cache:
    """One `LayerCache` per layer, in the order of the layers."""

    def __init__(self, n_layers: int, window: int | None = None) -> None:
        self.layers = tuple(LayerCache(window) for _ in range(n_layers))

    @property
    def length(self) -> int:
        """Positions read so far: the `query_offset` of the next token."""
        return self.layers[0].length

    @property
    def offset(self) -> int:
        """The position of the first key held."""
        return self.layers[0].offset


def last(x: Shaped[Tensor, "... S width"], n: int) -> Shaped[Tensor, "... n width"]:
    """At most the last `n` positions, also where n is 0."""
    return x[..., max(x.shape[-2] - n, 0) :, :]
