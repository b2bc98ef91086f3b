"""Models that crash, as people write them, and how their causes are found."""

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from shapeflow.check.cause import call_in, cause
from shapeflow.trace.tracer import Search, prepared

FOLDER = Path(__file__).parents[2] / "cases" / "shape_bugs"


def attempt(model, *inputs, hints=None, **named):
    """One search of the tracer; its error may be None."""
    hints = hints or {}
    subject, bound = prepared(model, inputs, named, hints)
    return Search(subject, bound, hints, None).run()


def cause_of(model, *inputs, hints=None, **named):
    failed = attempt(model, *inputs, hints=hints, **named)
    assert failed.error is not None, "the model runs"
    return cause(call_in(failed))


def runs(model, *inputs, **named):
    return attempt(model, *inputs, **named).error is None


def load(case):
    (path,) = FOLDER.glob(f"{case}_*.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    specs = {name: " ".join(map(str, each["shape"])) + f":{each['dtype']}" for name, each in module.make()[1].items()}
    return module, specs


# Classifiers


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(16 * 5 * 5, 120),
            nn.ReLU(),
            nn.Linear(120, 10),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class LeNetView(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 5)
        self.fc = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x):
        x = F.max_pool2d(self.conv(x), 4)
        x = x.view(-1, 16 * 5 * 5)
        return self.fc(x)


class AnySize(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3, stride=2, padding=1)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        return self.head(torch.flatten(self.conv(x), 1))


class FlatBatch(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 8 * 8, 10)

    def forward(self, x):
        return self.head(x.flatten())


class NotPooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 40, 3)
        self.head = nn.Linear(40, 10)

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 10"]:
        return self.head(self.conv(x))


class Swapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 32)
        self.down = nn.Linear(128, 10)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Hidden(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, width), nn.GELU(), nn.Linear(width * 2, 5))

    def forward(self, x):
        return self.body(x)


class Concatenated(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(30, 16), nn.Linear(50, 24)
        self.head = nn.Linear(16, 2)

    def forward(self, image, text):
        return self.head(torch.cat([self.image(image), self.text(text)], dim=-1))


class WrongAxisOfCat(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(40, 2)

    def forward(self, a, b):
        return self.head(torch.cat([a, b], dim=1))


# Sequences


class LstmThenLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(10, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1])


class LstmInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(100, 24)
        self.rnn = nn.LSTM(input_size=32, hidden_size=48, batch_first=True)

    def forward(self, ids):
        return self.rnn(self.emb(ids))[0]


class GruState(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(10, 32)

    def forward(self, x):
        h = x.new_zeros(1, x.shape[0], 32)
        return self.rnn(x, h)[0]


class GruLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(10, 32, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.rnn(x, torch.zeros(1, x.shape[0], 32))[0]


class Kdim(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, memory):
        return self.attn(x, memory, memory)[0]


class EmbedDim(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim=64, num_heads=4, batch_first=True)

    def forward(self, x):
        return self.attn(x, x, x)[0]


class CausalMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 4)

    def forward(self, x):
        t = x.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        return self.attn(x, x, x, attn_mask=mask)[0]


class PaddingMask(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x, padding):
        return self.layer(x, src_key_padding_mask=padding.T)


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        return torch.softmax(self.q(x) @ self.k(x), dim=-1) @ x


class Sdpa(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Heads(nn.Module):
    def __init__(self, d_model=48, n_heads=5):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, _ = x.shape
        return self.proj(x).reshape(b, t, self.n_heads, self.d_head).transpose(1, 2)


class MergedView(nn.Module):
    def forward(self, x):
        b, h, t, d = x.shape
        return x.transpose(1, 2).view(b, t, h * d)


# Images


class Grey(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)

    def forward(self, x):
        return self.conv(x)


class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, stride=2)

    def forward(self, images):
        return self.stem(images)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class BadNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(32), nn.ReLU())

    def forward(self, x):
        return self.block(x)


class OneD(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.bn = nn.BatchNorm1d(16)

    def forward(self, x):
        return self.bn(self.conv(x))


class Groups(nn.Module):
    def forward(self, x):
        return F.group_norm(x, 8)


class LayerNormFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(24)

    def forward(self, x):
        return self.norm(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.down2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.up1 = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1)
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        skip = self.down1(x)
        y = self.up1(self.down2(skip))
        return self.out(torch.cat([y, skip], dim=1))


class Upsampled(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(4)
        self.up = nn.Upsample(scale_factor=4)

    def forward(self, x):
        return x + self.up(self.pool(x))


class Shortcut(nn.Module):
    def __init__(self, inside=16, outside=32):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)

    def forward(self, x: Float[Tensor, "B 16 H W"]) -> Float[Tensor, "B 32 H W"]:
        return x + self.conv2(torch.relu(self.conv1(x)))


class NoPadding(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)

    def forward(self, x):
        return x + self.conv(x)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 16)

    def forward(self, x):
        s = torch.sigmoid(self.fc(x.mean((2, 3))))
        return x * s


class Position(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 16)
        self.pos = nn.Parameter(torch.zeros(1, 12, 16))

    def forward(self, ids):
        return self.emb(ids) + self.pos[:, : ids.size(1)]


class WidthsOfSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(100, 64)
        self.typ = nn.Embedding(2, 32)

    def forward(self, ids, types):
        return self.tok(ids) + self.typ(types)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        for _ in range(5):
            x = self.pool(x)
        return x


# Losses, indices, functions


class OneHot(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 5)

    def forward(self, x, target):
        return F.cross_entropy(self.head(x), target)


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 50)

    def forward(self, x, ids):
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def bilinear(x: Float[Tensor, "B N d=8"], y: Float[Tensor, "B M e=6"]) -> Float[Tensor, "B N M"]:
    return torch.einsum("bnd,bmd->bnm", x, y)


def last_of_five(x: Float[Tensor, "B 5 D"]) -> Float[Tensor, "B D"]:
    return x[:, 5]


def distance(a: Float[Tensor, "B T C"], b: Float[Tensor, "B C T"]) -> Float[Tensor, ""]:
    return F.mse_loss(a, b)


def stacked(a: Float[Tensor, "B T 4"], b: Float[Tensor, "B T 5"]) -> Float[Tensor, "..."]:
    return torch.stack((a, b))


class SplitWidth(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 90)

    def forward(self, x):
        b, t, _ = x.shape
        return self.qkv(x).reshape(b, t, 3, 4, 8)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Linear(49, 57)

    def forward(self, x):
        x += self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return x


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(
            [nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(8, 4, 5, padding=1)]
        )

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


class FixedBatch(nn.Module):
    def forward(self, x):
        return x.view(32, -1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

    def forward(self, x):
        return self.layer(x)


class WideMemory(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True)

    def forward(self, x, memory):
        return self.layer(x, memory)


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(12, 12, 3, groups=12)

    def forward(self, x):
        return self.conv(x)


class ClassToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 16))

    def forward(self, x):
        return torch.cat((self.token, x), dim=1)


class MaskedScores(nn.Module):
    def forward(self, scores, padding):
        return scores.masked_fill(padding, float("-inf"))


class Batched(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


class SameName(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return x


class FloatIndex(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 8)

    def forward(self, x):
        return self.emb(x)


class LargeKernel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 7)

    def forward(self, x):
        return self.conv(
            x,
        )


class Lines(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(
            8 * 7 * 7,
            10,
        )

    def forward(self, x):
        return self.head(
            torch.relu(x),
        )
