"""A head that is too narrow, and what `sf.explain` adds to torch's error."""

import torch
from torch import nn

import shapeflow as sf


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, kernel_size=3)
        self.head = nn.Linear(10, 5)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        x = self.conv(picture)
        return self.head(x.flatten(1))


torch.manual_seed(0)
try:
    with sf.explain():
        Net()(torch.zeros(4, 3, 9, 9))
except RuntimeError as error:
    print(error, *error.__notes__, sep="\n\n")
