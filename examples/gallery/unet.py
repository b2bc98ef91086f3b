"""A U-Net as in https://arxiv.org/abs/1505.04597, with padded convolutions: for sizes that 16 divides."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn


class DoubleConv(nn.Sequential):
    """Two convolutions of 3 x 3, each with a norm and a ReLU."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
        )


class Down(nn.Module):
    """Half the height and width, twice the channels."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.conv = DoubleConv(c_in, c_out)

    def forward(self, x: Float[Tensor, "B C_in H W"]) -> Float[Tensor, "B C_out H2 W2"]:
        return self.conv(self.pool(x))


class Up(nn.Module):
    """Twice the height and width, joined with what the way down had at that size."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(c_in, c_out, 2, stride=2)
        self.conv = DoubleConv(2 * c_out, c_out)

    def forward(
        self, x: Float[Tensor, "B C_in H W"], skip: Float[Tensor, "B C_out H2 W2"]
    ) -> Float[Tensor, "B C_out H2 W2"]:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class UNet(nn.Module):
    """Four levels down and four up; `width` channels at full size."""

    def __init__(self, width: int = 64, classes: int = 2) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.first = DoubleConv(3, width)
        self.down = nn.ModuleList([Down(a, b) for a, b in pairwise(widths)])
        self.up = nn.ModuleList([Up(b, a) for a, b in pairwise(widths)][::-1])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, image: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B classes H W"]:
        levels = [self.first(image)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up in self.up:
            x = up(x, levels.pop())
        return self.last(x)
