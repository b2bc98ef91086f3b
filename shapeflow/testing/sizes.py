"""The sizes at which a model is run: primes that no two names share, 1 for each name, and the bounds.

>>> list(size_sets(example))
[{'B': 3, 'T': 5}, {'B': 5, 'T': 7}, {'B': 1, 'T': 5}, {'B': 3, 'T': 1}]
"""

from __future__ import annotations

from shapeflow.testing.example import Example

GREATEST = 2048
"""A bound above it is not run: a test should be quick."""


def size_sets(example: Example) -> list[dict[str, int]]:
    """The sizes of each run, without repeats."""
    base = example.sizes()
    found = [base, example.sizes(1)]
    for name in example.free:
        low, high = example.ranges[name]
        found.append({**base, name: low})
        if high is not None and high <= GREATEST:
            found.append({**base, name: high})
    return [each for at, each in enumerate(found) if each not in found[:at]]
