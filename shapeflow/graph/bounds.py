"""The bounds in the text of a domain, as a saved trace has it.

>>> bounds_of("B >= 2, 2 <= T <= 64, 3*T <= 4*B")
{'B': (2, None), 'T': (2, 64)}
"""

from __future__ import annotations

import re

_BOUNDS = re.compile(r"(?:(?P<low>\d+) <= )?(?P<name>\w+) (?P<relation><=|>=|==) (?P<number>\d+)")


def bounds_of(domain: str) -> dict[str, tuple[int, int | None]]:
    """The least and the greatest size by name, as far as the domain tells them in so many words; None is no end."""
    found: dict[str, tuple[int, int | None]] = {}
    for part in domain.split(", "):
        if match := _BOUNDS.fullmatch(part):
            number, relation = int(match["number"]), match["relation"]
            low = number if relation != "<=" else int(match["low"] or 0)
            found[match["name"]] = low, None if relation == ">=" else number
    return found
