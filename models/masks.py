"""Who may read whom: Boolean masks for attention, True where a query may read a key (section 5).

>>> causal_allowed(2, 3, query_offset=1)
tensor([[ True,  True, False],
        [ True,  True,  True]])
"""

import torch
from jaxtyping import Bool
from torch import Tensor


def causal_allowed(
    t_q: int, t_k: int, *, query_offset: int = 0, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """A query reads the keys up to its own position; `query_offset` is the position of the first query.

    Without a cache `t_q == t_k` and the offset is 0. A decoder that holds `n` keys in a cache asks for
    `causal_allowed(1, n + 1, query_offset=n)`: with offset 0 the new query would see the first key alone.
    """
    if any(isinstance(n, bool) for n in (t_q, t_k, query_offset)):
        raise TypeError("t_q, t_k and query_offset are numbers of positions, not truth values")
    if t_q <= 0 or t_k <= 0 or query_offset < 0:
        raise ValueError(
            f"t_q and t_k must be positive and query_offset not negative, got {t_q}, {t_k} and {query_offset}"
        )
    queries = torch.arange(t_q, device=device) + query_offset
    keys = torch.arange(t_k, device=device)
    return keys <= queries[:, None]
