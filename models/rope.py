"""Rotary positions: queries and keys are turned by angles that grow with the position (notes, sections 4.1 and 4.3.5).

>>> q, k = torch.randn(2, 1, 1, 1, 8)
>>> def score(i, j):
...     rotary = Rotary(8)
...     return (rotary(torch.tensor([[i]])).turn(q) * rotary(torch.tensor([[j]])).turn(k)).sum()
>>> torch.allclose(score(3, 2), score(100, 99), atol=1e-5)  # the offset alone counts
True

Axis i of the first half and axis i of the second make a pair, which turns as one point of a plane. (DeepSeek's released
weights pair neighbours instead; `pretrained` reorders their rows, so that one rotation serves every model.)
"""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .masks import real_positions

Frequencies = tuple[float, ...]  # radians per position, of each pair


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions squeezed by a factor: every pair turns that much slower."""

    factor: float  # the text may be this many times as long

    def rescale(self, frequencies: Frequencies, base: float) -> Frequencies:
        return tuple(frequency / self.factor for frequency in frequencies)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1: slow pairs are slowed further, fast ones stay, and those between are mixed."""

    factor: float  # how many times slower the slow pairs turn
    low_freq_factor: float  # a pair that makes fewer turns than this within the old length is slow
    high_freq_factor: float  # and one that makes more turns than this is fast
    original_max_len: int  # the length that the model was first trained at

    def rescale(self, frequencies: Frequencies, base: float) -> Frequencies:
        return tuple(mix(frequency, self.factor, self.slowness(frequency)) for frequency in frequencies)

    def slowness(self, frequency: float) -> float:
        turns = self.original_max_len * frequency / (2 * math.pi)
        return ramp(turns, self.high_freq_factor, self.low_freq_factor)


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al., 2023), of DeepSeek and gpt-oss: as Llama 3.1, but the ramp runs over the pairs' numbers.

    `magnitude` multiplies the turned queries and keys, so the scores by its square; see `yarn_magnitude`.
    """

    factor: float  # the text may be this many times as long
    original_max_len: int  # the length that the model was first trained at
    beta_fast: float = 32.0  # a pair with more turns than this within the old length stays
    beta_slow: float = 1.0  # a pair with fewer is slowed by the factor
    truncate: bool = True  # the ramp starts and ends at whole numbers of pairs
    magnitude: float = 1.0  # of turned vectors

    def rescale(self, frequencies: Frequencies, base: float) -> Frequencies:
        d_pair = len(frequencies)
        first, last = self.pair_with(self.beta_fast, base, d_pair), self.pair_with(self.beta_slow, base, d_pair)
        if self.truncate:
            first, last = float(math.floor(first)), float(math.ceil(last))
        first, last = max(first, 0.0), min(last, 2.0 * d_pair - 1)
        return tuple(
            mix(frequency, self.factor, ramp(float(i), first, last)) for i, frequency in enumerate(frequencies)
        )

    def pair_with(self, turns: float, base: float, d_pair: int) -> float:
        """The number (with a fraction) of the pair that makes so many turns within the old length."""
        return d_pair * math.log(self.original_max_len / (2 * math.pi * turns)) / math.log(base)


Scaling = LinearScaling | Llama3Scaling | YarnScaling


def ramp(x: float, zero: float, one: float) -> float:
    """0 up to `zero`, 1 from `one` on, a straight line between; a step where the two are one point."""
    if zero == one:
        return float(x > zero)
    return min(max((x - zero) / (one - zero), 0.0), 1.0)


def mix(frequency: float, factor: float, slowness: float) -> float:
    return slowness * frequency / factor + (1 - slowness) * frequency


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """What vectors are lengthened by, so that attention over a longer text stays as sharp: `0.1 w ln(factor) + 1`."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosine and sine of every angle: what `Rotary` gives for some positions, and every layer uses."""

    cos: Float[Tensor, "B T d_pair"]
    sin: Float[Tensor, "B T d_pair"]

    def turn(self, x: Float[Tensor, "B T _ d_head"]) -> Float[Tensor, "B T _ d_head"]:
        """Every head of x turned; the axis without a name counts heads."""
        d_pair = self.cos.shape[-1]
        first, second = x.split([d_pair, d_pair], dim=-1)
        cos, sin = self.cos[:, :, None], self.sin[:, :, None]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def token_positions(
    ids: Int[Tensor, "B T"], *, valid: Bool[Tensor, "B _"] | None = None, offset: int = 0
) -> Int[Tensor, "B T"]:
    """The positions of new tokens behind `offset` others; with `valid` (of all of them) counted over the real ones."""
    end = offset + ids.shape[1]
    if valid is None:
        return torch.arange(offset, end, device=ids.device).expand(ids.shape)
    if valid.shape[1] != end:
        raise ValueError(f"valid covers {valid.shape[1]} positions, but {end} have been read")
    return real_positions(valid)[:, offset:]


class Rotary(nn.Module):
    """The angles of positions: pair i turns by `base ** (-2 i / d_head)` per step.

    The frequencies are plain numbers: a buffer would be rounded when the model is cast to half precision, and empty in
    a model that was built on the meta device.
    """

    def __init__(self, d_head: int, *, base: float = 10000.0, scaling: Scaling | None = None) -> None:
        super().__init__()
        if d_head % 2 != 0:
            raise ValueError(f"axes turn in pairs, so d_head must be even, got {d_head}")
        self.d_head = d_head
        self.d_pair = d_head // 2
        frequencies = tuple(base ** (-2 * i / d_head) for i in range(self.d_pair))
        self.frequencies = frequencies if scaling is None else scaling.rescale(frequencies, base)
        self.magnitude = scaling.magnitude if isinstance(scaling, YarnScaling) else 1.0

    def forward(self, positions: Int[Tensor, "B T"]) -> Rotation:
        angles = positions[..., None] * self.steps(positions.device)
        return Rotation(cos=angles.cos() * self.magnitude, sin=angles.sin() * self.magnitude)

    def steps(self, device: torch.device) -> Float[Tensor, " d_pair"]:
        """Radians per position of each pair, from 1 down to nearly 1 / base."""
        return torch.tensor(self.frequencies, dtype=torch.float32, device=device)
