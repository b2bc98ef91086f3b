"""Six small models of the kinds that people draw, for the golden drawings: `SMALL[name]()` is one and its inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(1, 2)).masked_fill(mask, float("-inf"))
        return scores.softmax(dim=-1) @ v


class Block(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attn = Attention(d_model)
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), mask)
        return x + self.ffn(self.norm2(x))


class GPT(nn.Module):
    """Three equal blocks, one mask for all, a head that is tied to the embedding."""

    def __init__(self, d_model: int = 12, vocab: int = 31) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.blocks = nn.ModuleList([Block(d_model) for _ in range(3)])
        self.head = nn.Linear(d_model, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        t = ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out)
        self.short = nn.Identity() if c_in == c_out else nn.Conv2d(c_in, c_out, 1)

    def forward(self, x):
        y = self.norm(self.conv(x)).relu_()
        y += self.short(x)
        return y


class ResNet(nn.Sequential):
    """In-place writes, and a shortcut with a projection."""

    def __init__(self) -> None:
        super().__init__(Residual(3, 8), Residual(8, 8), Residual(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(8, 10)


class UNet(nn.Module):
    """One level down and up, with a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.join = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 2, 1)

    def forward(self, image):
        skip = self.down(image).relu()
        deep = self.deep(F.max_pool2d(skip, 2)).relu()
        return self.join(torch.cat([skip, self.up(deep)], dim=1))


class Experts(nn.Module):
    """Each token to one of three experts: sizes that only values decide."""

    def __init__(self, d_model: int = 6) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, 3)
        self.experts = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(3)])

    def forward(self, x):
        choice, y = self.gate(x).argmax(dim=-1), torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            chosen = (choice == i).nonzero().squeeze(-1)
            y[chosen] = expert(x[chosen])
        return y


class Tagger(nn.Module):
    """A recurrent layer, and three outputs of which two have one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 6)
        self.lstm = nn.LSTM(6, 7, batch_first=True)
        self.head = nn.Linear(7, 3)

    def forward(self, ids):
        y, (hidden, cell) = self.lstm(self.table(ids))
        return {"tags": self.head(y), "hidden": hidden, "cell": cell}


class EncoderDecoder(nn.Module):
    """Two layers each; the decoder's read what the encoder's last made."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Transformer(8, 2, 2, 2, 16, batch_first=True)

    def forward(self, source, target):
        return self.model(source, target)


SMALL = {
    "gpt": lambda: (GPT(), ["B T:int64"]),
    "resnet": lambda: (ResNet(), ["B 3 H W"]),
    "unet": lambda: (UNet(), ["B 3 2*h 2*w"]),
    "experts": lambda: (Experts(), ["N 6"]),
    "tagger": lambda: (Tagger(), ["B T:int64"]),
    "encoder_decoder": lambda: (EncoderDecoder(), ["B S 8", "B T 8"]),
}
