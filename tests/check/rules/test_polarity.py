"""SF312: True hides for nn.MultiheadAttention, and shows for F.scaled_dot_product_attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.rules.found import at_the_marked_line, errors, found


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.register_buffer("past", torch.tril(torch.ones(64, 64)).bool())
        self.register_buffer("future", torch.ones(64, 64).triu(1).bool())


class Past(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        mask = torch.tril(torch.ones(t, t, dtype=torch.bool))  # here
        return self.attention(x, x, x, attn_mask=mask)[0]


class PastWithoutWeights(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        mask = torch.ones(t, t).tril() == 1  # here
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class PastOfALayer(Attention):
    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).tril()  # here
        return self.layer(self.embed(ids), src_mask=mask)


class Future(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)  # here
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class NotPast(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        return F.scaled_dot_product_attention(x, x, x, ~self.past[:t, :t])  # here


class ByHand(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        past = torch.tril(torch.ones(t, t))
        scores = (x @ x.mT).masked_fill(past == 1, float("-inf"))  # here
        return scores.softmax(-1) @ x


class FutureBuffer(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        scores = torch.where(self.future[:t, :t], x @ x.mT, -1e9)  # here
        return scores.softmax(-1) @ x


class Positions(Attention):
    def forward(self, ids):
        x, at = self.embed(ids), torch.arange(ids.shape[1])
        seen = at[None, :] > at[:, None]  # here
        return F.scaled_dot_product_attention(x, x, x, attn_mask=seen)


class OnesAdded(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        mask = torch.tril(torch.ones(t, t))  # here
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


TRIANGLES = [Past, PastWithoutWeights, PastOfALayer, Future, NotPast, ByHand, FutureBuffer, Positions, OnesAdded]


@pytest.mark.parametrize("kind", TRIANGLES)
def test_a_triangle_the_wrong_way_round(kind):
    (problem,) = errors(kind(), "B T:int64")
    assert problem.rule == "SF312" and at_the_marked_line(problem)
    assert problem.dims == ("T",) and problem.fix


def test_the_other_triangle_is_the_fix():
    (past,) = found("SF312", Past(), "B T:int64")
    (future,) = found("SF312", Future(), "B T:int64")
    assert past.fix == "torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)"
    assert future.fix == "torch.tril(torch.ones(t, t, dtype=torch.bool))"


def test_the_message_tells_what_the_reader_takes():
    (problem,) = found("SF312", Past(), "B T:int64")
    assert problem.message == (
        "the mask for MultiheadAttention is the wrong way round (True is what is hidden): "
        "a position reads the later ones, and none before it"
    )


class Tokens(Attention):
    def forward(self, ids):
        x = self.embed(ids)
        return self.attention(x, x, x, key_padding_mask=ids != 0)[0]  # here


class TokensOfALayer(Attention):
    def forward(self, ids):
        real = ids.ne(1)  # here
        return self.layer(self.embed(ids), src_key_padding_mask=real)


class Padding(Attention):
    def forward(self, ids):
        x = self.embed(ids)
        pad = (ids == 0)[:, None, :]  # here
        return F.scaled_dot_product_attention(x, x, x, attn_mask=pad)


class PaddingByHand(Attention):
    def forward(self, ids):
        x = self.embed(ids)
        real = (ids != 0).unsqueeze(1)  # here
        return (x @ x.mT).masked_fill(real, -1e9).softmax(-1) @ x


@pytest.mark.parametrize("kind", [Tokens, TokensOfALayer, Padding, PaddingByHand])
def test_padding_the_wrong_way_round(kind):
    (problem,) = errors(kind(), "B T:int64")
    assert problem.rule == "SF312" and at_the_marked_line(problem)
    assert problem.message.endswith("it hides the real tokens and shows the padding")
    assert problem.fix == ("!= instead of ==" if kind is Padding else "== instead of !=")


def test_lengths_the_wrong_way_round():
    class Lengths(Attention):
        def forward(self, ids, lengths):
            x = self.embed(ids)
            real = torch.arange(ids.shape[1])[None] < lengths[:, None]  # here
            return self.attention(x, x, x, key_padding_mask=real)[0]

    (problem,) = errors(Lengths(), "B T:int64", "B:int64")
    assert at_the_marked_line(problem) and problem.fix == ">= instead of <"


class AllRight(Attention):
    def forward(self, ids):
        x, t = self.embed(ids), ids.shape[1]
        future = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        y = self.attention(x, x, x, attn_mask=future, key_padding_mask=ids == 0)[0]
        y = y + self.layer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(t))
        y = y + self.layer(x, src_mask=self.future[:t, :t], src_key_padding_mask=~(ids != 0))
        y = y + F.scaled_dot_product_attention(x, x, x, attn_mask=self.past[:t, :t] & (ids != 0)[:, None])
        y = y + F.scaled_dot_product_attention(x, x, x, attn_mask=(ids != 0)[:, None])
        y = y + (x @ x.mT).masked_fill(torch.ones(t, t).tril() == 0, -1e9).softmax(-1) @ x
        return y + (x @ x.mT).masked_fill((ids == 0)[:, None], -1e9).softmax(-1) @ x


def test_masks_that_say_what_is_meant():
    assert errors(AllRight(), "B T:int64") == []


class Windowed(Attention):
    """A band, all pairs, and the past without the position itself are no wrong triangles."""

    def forward(self, ids):
        x, at = self.embed(ids), torch.arange(ids.shape[1])
        near = (at[None] - at[:, None]).abs() <= 2
        y = F.scaled_dot_product_attention(x, x, x, attn_mask=near)
        y = y + self.attention(x, x, x, attn_mask=torch.eye(ids.shape[1], dtype=torch.bool))[0]
        return y + F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones_like(near))


def test_other_masks():
    assert errors(Windowed(), "B T:int64") == []


def test_a_mask_among_the_inputs_says_nothing():
    class Given(Attention):
        def forward(self, ids, mask):
            x = self.embed(ids)
            y = self.attention(x, x, x, key_padding_mask=mask != 0)[0]
            return y + (x @ x.mT).masked_fill(mask[:, None] == 0, -1e9).softmax(-1) @ x

    assert errors(Given(), "B T:int64", "B T:int64") == []
