"""What training minimises: the negative log-likelihood of the next token, in nats (section 11).

>>> token_nll(torch.tensor([[[1.2, 0.3, -0.4, 2.0]]]), torch.tensor([[3]]))
tensor([[0.5439]])

A loss mask selects the predictions that are scored. It is no attention mask: a token that is not scored may still be
read (section 11.3).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def shifted_right(targets: Int[Tensor, "B T"], bos: int) -> Int[Tensor, "B T"]:
    """The decoder's input for these targets: `<BOS> I love models` for `I love models <EOS>` (section 10.1)."""
    return torch.cat([torch.full_like(targets[:, :1], bos), targets[:, :-1]], dim=1)


def next_token_pairs(ids: Int[Tensor, "B L"]) -> tuple[Int[Tensor, "B L-1"], Int[Tensor, "B L-1"]]:
    """Inputs and targets of a decoder-only model: each token but the last is to predict the one after it."""
    return ids[:, :-1], ids[:, 1:]


def token_nll(logits: Float[Tensor, "B T vocab"], targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """`-log p(target)` at every position, in nats; the sum over T is the loss of a sequence."""
    return -logits.log_softmax(dim=-1).gather(-1, targets[..., None]).squeeze(-1)


def mean_nll(
    logits: Float[Tensor, "B T vocab"], targets: Int[Tensor, "B T"], loss_mask: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, ""]:
    """The mean over the predictions that are scored, True in `loss_mask`; without a mask over all.

    Targets that are not scored must be ids all the same. A mask that scores nothing is an error: its mean is 0 / 0.
    """
    losses = token_nll(logits, targets)
    if loss_mask is None:
        return losses.mean()
    if not loss_mask.any():
        raise ValueError("the loss mask is empty: there is no prediction to score, so there is no mean loss")
    return losses[loss_mask].mean()
