"""Models that fail, one way each, for the tests of `sf.explain`; constant tensors, so that statistics are stable."""

import torch
import torch.nn.functional as F
from beartype import beartype
from jaxtyping import Float, Int, jaxtyped
from torch import Tensor, nn

import shapeflow as sf


def ones(*shape):
    return torch.ones(*shape)


class Attention(nn.Module):
    def __init__(self, d_model=16):
        super().__init__()
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "B T d_model"]):
        return self.attend(x, x.clone())

    def attend(self, q, k):
        scores = q @ k
        return scores.softmax(-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()

    def forward(self, x):
        return x + self.self_attn(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), nn.Identity(), Block()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = Decoder()

    def forward(self, x: Float[Tensor, "batch time 16"]):
        return self.decoder(x)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pe", torch.zeros(1, 20, 16))

    def forward(self, x: Float[Tensor, "B T 16"]) -> Float[Tensor, "B T 16"]:
        return x + self.pe[:, : x.shape[1]]


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.n_heads = 4

    def forward(self, x: Float[Tensor, "B T d"]):
        b, t, d = x.shape
        return x.view(b, t, self.n_heads, d // self.n_heads)


class Loss(nn.Module):
    def forward(self, logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]):
        return F.cross_entropy(logits, target)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(7, 3)
        nn.init.zeros_(self.tok.weight)

    def forward(self, ids: Int[Tensor, "B T"]):
        return self.tok(ids)


class Refuses(nn.Module):
    def forward(self, x: Float[Tensor, "B T"]):
        if x.shape[1] > 5:
            raise ValueError("a sequence of more than 5 tokens")
        return x


class Joins(nn.Module):
    def forward(self, a: Float[Tensor, "B T"], b: Float[Tensor, "B S"]):
        return torch.cat([a, b], dim=0)


class Checked(nn.Module):
    @jaxtyped(typechecker=beartype)
    def forward(self, x: Float[Tensor, "B T 8"], y: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return x.sum(-1)[:, 1:] if len(x) == 3 else x.sum(-1)


class Beartyped(nn.Module):
    @beartype
    def forward(self, x: Float[Tensor, "B T 8"]):
        return x


@sf.typed
class Enforced(nn.Module):
    def __init__(self):
        super().__init__()
        self.d_model = 8

    def forward(self, x: Float[Tensor, "B T d_model"]):
        return x


class Typed(nn.Module):
    def __init__(self):
        super().__init__()
        self.checked = Checked()

    def forward(self, x, y):
        return self.checked(x, y)


class Writes(nn.Module):
    def forward(self, x: Float[Tensor, "B T"]):
        x[:, 0] = ones(3, 3)
        return x


class Kernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3, bias=False)
        nn.init.zeros_(self.stem.weight)

    def forward(self, images: Float[Tensor, "B C H W"]):
        return self.stem(images)


class Looks(nn.Module):
    def forward(self, x: Float[Tensor, "B T"], names):
        return x * names["scale"]


def outer(a: Float[Tensor, "n m"], b: Float[Tensor, "m k"]):
    return torch.matmul(a, b)
