"""Scaled dot-product attention in the open: scores, then weights, then the mixture (sections 4, 5 and 13).

>>> q = k = v = torch.eye(2)
>>> output, weights = scaled_dot_product_attention(q, k, v, allowed=torch.tensor([[True, False], [True, True]]))
>>> weights
tensor([[1.0000, 0.0000],
        [0.3302, 0.6698]])

The signatures check ranks, dtypes and the sizes that must agree; the bodies check what a shape cannot tell: empty axes,
devices, values.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def scaled_dot_product_attention(
    q: Float[Tensor, "... T d_head"],
    k: Float[Tensor, "... S d_head"],
    v: Float[Tensor, "... S d_v"],
    allowed: Bool[Tensor, "... #T #S"] | None = None,
    *,
    empty_row: Literal["error", "zero"] = "error",
) -> tuple[Float[Tensor, "... T d_v"], Float[Tensor, "... T S"]]:
    """The mixture of values for each query, and the weights that made it: `softmax(q @ k^T / sqrt(d_head)) @ v`.

    Leading axes broadcast. The result is float64 where an input is, else float32. `allowed` broadcasts to the scores,
    True where a query may read a key (torch's `MultiheadAttention.attn_mask` means the opposite). A query that may
    read no key is an error; `empty_row="zero"` gives it zero weights and a zero output instead.

    Raises ValueError for bad inputs, FloatingPointError where finite inputs give scores or outputs that are not finite.
    """
    check_inputs(q, k, v)
    q, k, v = align(q, k, v)
    scores = attention_scores(q, k)
    weights = attention_weights(scores, allowed, empty_row=empty_row)
    output = weights @ v
    if not torch.isfinite(output).all():
        raise FloatingPointError("the attention output overflowed: the values in v are too large")
    return output, weights


def check_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse axes without elements, tensors on several devices, and NaN or infinity."""
    for name, tensor in {"q": q, "k": k, "v": v}.items():
        if 0 in tensor.shape:
            raise ValueError(f"{name} has an empty axis: its shape is {tuple(tensor.shape)}")
        if tensor.device != q.device:
            raise ValueError(f"q, k and v must be on one device, but q is on {q.device} and {name} on {tensor.device}")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds NaN or infinity")


def align(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same tensors in one dtype, at least float32, and with the same leading axes."""
    dtype = torch.float64 if torch.float64 in (q.dtype, k.dtype, v.dtype) else torch.float32
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (tensor.to(dtype).expand(*batch, *tensor.shape[-2:]) for tensor in (q, k, v))
    return q, k, v


def attention_scores(
    q: Float[Tensor, "*batch T d_head"], k: Float[Tensor, "*batch S d_head"]
) -> Float[Tensor, "*batch T S"]:
    """How well each query matches each key, in units that do not grow with `d_head` (section 4.3)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if not torch.isfinite(scores).all():
        raise FloatingPointError("the attention scores overflowed: the products of q and k are too large")
    return scores


def attention_weights(
    scores: Float[Tensor, "*batch T S"],
    allowed: Bool[Tensor, "... #T #S"] | None = None,
    *,
    empty_row: Literal["error", "zero"] = "error",
) -> Float[Tensor, "*batch T S"]:
    """Softmax over the keys that each query may read; a row of weights sums to 1, or to 0 where it may read none."""
    if allowed is None:
        return scores.softmax(dim=-1)
    allowed = torch.broadcast_to(allowed.to(scores.device), scores.shape)
    empty = ~allowed.any(dim=-1, keepdim=True)
    if empty_row == "error" and empty.any():
        raise ValueError('a query may read no key (a fully masked row): mend the mask, or pass empty_row="zero"')
    # Softmax over -inf alone is NaN, and so is its gradient: an empty row reads everything first, and is zeroed after.
    weights = scores.masked_fill(~(allowed | empty), -math.inf).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)
