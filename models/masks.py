"""Who may read whom: Boolean masks for attention, True where a query may read a key (section 5).

>>> causal_allowed(2, 3, query_offset=1)
tensor([[ True,  True, False],
        [ True,  True,  True]])

Masks combine with `&`. They say what attention reads; what the loss scores is another mask, in `loss.py`.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def padding_allowed(valid: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
    """Every query of every head reads the keys that are real tokens (True in `valid`), and no padding (section 5.1)."""
    return valid[:, None, None, :]


def causal_allowed(
    t_q: int,
    t_k: int,
    *,
    query_offset: int = 0,
    key_offset: int = 0,
    window: int | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """A query reads the keys up to its own position (section 5.2), with a `window` only the last so many of them.

    The offsets are the positions of the first query and the first key. Without a cache `t_q == t_k` and both are 0. A
    decoder that holds `n` keys in a cache asks for `causal_allowed(1, n + 1, query_offset=n)`: with offset 0 the new
    query would see the first key alone (section 13.1). Keys that a window has dropped move `key_offset`.
    """
    if any(isinstance(n, bool) for n in (t_q, t_k, query_offset, key_offset, window)):
        raise TypeError("lengths, offsets and window are numbers of positions, not truth values")
    if t_q <= 0 or t_k <= 0 or query_offset < 0 or key_offset < 0:
        raise ValueError(
            "t_q and t_k must be positive and the offsets not negative, "
            f"got {t_q}, {t_k}, query_offset = {query_offset} and key_offset = {key_offset}"
        )
    queries = torch.arange(t_q, device=device) + query_offset
    keys = torch.arange(key_offset, key_offset + t_k, device=device)
    allowed = keys <= queries[:, None]
    return allowed if window is None else allowed & window_allowed(queries, keys, window)


def window_allowed(queries: Int[Tensor, " T"], keys: Int[Tensor, " S"], window: int) -> Bool[Tensor, "T S"]:
    """Position t reads t itself and the `window - 1` before it; what lies after it is for the causal mask to hide."""
    if window <= 0:
        raise ValueError(f"a window holds at least the query's own position, got {window}")
    return queries[:, None] - keys < window


def cross_allowed(source_valid: Bool[Tensor, "B S"], t_q: int) -> Bool[Tensor, "B 1 T S"]:
    """Target queries read the whole source but its padding: a rectangle, with no triangle in it (section 5.4)."""
    return padding_allowed(source_valid).expand(-1, -1, t_q, -1)


def decoder_allowed(
    t_q: int,
    t_k: int,
    *,
    valid: Bool[Tensor, "B all"] | None = None,
    query_offset: int = 0,
    key_offset: int = 0,
    window: int | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "... T S"]:
    """The causal mask and the padding mask together, as a decoder wants them: no row is empty.

    `valid` covers every position read so far, cached and new; columns that a window has dropped are skipped. A padded
    query stands before the first real token and could read nothing: it reads itself, and its output means nothing.
    """
    causal = causal_allowed(t_q, t_k, query_offset=query_offset, key_offset=key_offset, window=window, device=device)
    if valid is None:
        return causal
    if valid.shape[1] != key_offset + t_k:
        raise ValueError(f"valid covers {valid.shape[1]} positions, but {key_offset + t_k} have been read")
    queries = torch.arange(t_q, device=device) + query_offset
    keys = torch.arange(t_k, device=device) + key_offset
    itself = keys == queries[:, None]
    return causal & (padding_allowed(valid[:, key_offset:]) | itself)


def real_positions(valid: Bool[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """The position of each token counted over the real ones, so that padding on the left moves nothing; padding is 0.

    >>> real_positions(torch.tensor([[False, False, True, True, True]]))
    tensor([[0, 0, 0, 1, 2]])
    """
    return (valid.cumsum(dim=1) - 1).clamp(min=0)


def blocked(allowed: Bool[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """The other convention, True where a query may NOT read; and back again (section 5.5).

    `torch.nn.functional.scaled_dot_product_attention` takes `allowed` as it is. `attn_mask` and `key_padding_mask` of
    `torch.nn.MultiheadAttention`, and every Boolean mask of `torch.nn.Transformer`, take `blocked(allowed)`.
    """
    return ~allowed


def score_bias(allowed: Bool[Tensor, "*axes"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "*axes"]:
    """The mask as numbers to add to the scores: 0 where a query may read, -inf where not. Both of torch's take it."""
    return torch.zeros_like(allowed, dtype=dtype).masked_fill(blocked(allowed), -math.inf)
