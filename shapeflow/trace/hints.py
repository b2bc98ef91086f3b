"""The numbers that stand for free sizes in a run: far from every constant of the model, and large enough.

A hint answers what bounds and facts leave open, so it must not look like a size of the model: an image-size head
passed at H = W = 28 would hide the fault. Where small primes do not get through a model (an image of 11 by 13 is
smaller than its kernels), larger sizes are tried.

    >>> Hints(0, frozenset()).choose("T", axis=1)
    7
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

BATCH_FROM = 3
IMAGE_FROM = 257
"""An axis behind batch and channels is an image's or a volume's: smaller sizes shrink to nothing within the model."""
LENGTH_FROM = 67
RUNGS: tuple[tuple[int, ...], ...] = ((7,), (67,), (224, 448, 672), (224, 224, 224, 224), (16007,))
"""Each rung: primes from a number on, or (more than one number) the sizes of usual images, multiples of 32 and 7."""


@dataclass(slots=True)
class Hints:
    """Chooses a number for each free name; `given` and `fixed` come first. Names in `pinned` are not free at all.

    What is chosen freely is a multiple of `multiple`: ranks that share an axis get equal parts of it.
    """

    rung: int
    constants: frozenset[int]
    given: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)
    pinned: Mapping[str, int] = field(default_factory=dict)
    multiple: int = 1
    chosen: dict[str, int] = field(default_factory=dict)

    def choose(self, name: str, *, axis: int, rank: int = 1, low: int = 2, high: int | None = None) -> int:
        """The size of `name` in this run, within the bounds that its spec declares."""
        if name in self.chosen:
            return self.chosen[name]
        number = self.fixed.get(name, self.given.get(name))
        if number is None:
            number = self._free(axis, rank) * self.multiple
            if not low <= number or (high is not None and number > high):
                number = next((n for n in self._primes(low) if high is None or n <= high), high or low)
        self.chosen[name] = number
        return number

    def _free(self, axis: int, rank: int) -> int:
        first, *others = RUNGS[self.rung]
        if axis == 0 and rank > 1:  # the batch
            return next(self._primes(BATCH_FROM))
        image = rank >= 4 and axis >= 2
        if others and not image:  # two names are two sizes
            return next(self._primes(LENGTH_FROM))
        if others:
            images = [number for number in self.chosen.values() if number >= first]
            return (first, *others)[min(len(images), len(others))]
        return next(self._primes(max(first, IMAGE_FROM if image else 0)))

    def _primes(self, start: int) -> Iterator[int]:
        """Primes from `start` on that are neither taken nor near a constant of the model."""
        taken = set(self.chosen.values())
        number = start
        while number < start + 5000:
            near = {number - 1, number, number + 1} & self.constants
            if is_prime(number) and number not in taken and not (near and number - start < 200):
                yield number
            number += 1


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
