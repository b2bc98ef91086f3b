"""`assert_causal`: no position of the output sees a later position of the input.

>>> assert_causal(gpt, "B T:int64")
"""

from __future__ import annotations

from typing import Any

from shapeflow.testing.change import effects_of, listed
from shapeflow.testing.opening import Given, opened_along, refuse_without_effect
from shapeflow.testing.running import undisturbed


def assert_causal(
    module: Any,
    *inputs: Any,
    axis: int = 1,
    tolerance: float | None = None,
    high: int | None = None,
    sizes: dict[str, int] | None = None,
    named: dict[str, Any] | None = None,
) -> None:
    """Each output position depends on input positions up to its own only.

    Each position along `axis` is changed in turn, and outputs before it must stay within `tolerance` (None: some
    roundings of the greatest output). It is a failure, too, when no change has any effect, as then nothing is shown.
    Names without a size get primes; `sizes` gives others, `high` bounds random ids.
    """
    __tracebackhide__ = True
    given = opened_along(module, inputs, Given(high, sizes, named), axis=axis, shows="position: causality shows")
    with undisturbed(module):
        effects = effects_of(module, given.example, given.inputs, axis=axis, tolerance=tolerance)
    refuse_without_effect(given.name, effects, "position")
    leaks = {position: [at for at in changed if at < position] for position, changed in effects.items()}
    leaks = {position: seen for position, seen in leaks.items() if seen}
    if leaks:
        raise AssertionError(
            f"{given.name} is not causal along axis {axis}, of {given.count} positions:\n{_told(leaks, effects)}"
        )


def _told(leaks: dict[int, list[int]], effects: dict[int, dict[int, float]]) -> str:
    lines = [
        f"  input {position} changes output {listed(seen)} (by up to {max(effects[position][at] for at in seen):.2g})"
        for position, seen in list(leaks.items())[:12]
    ]
    more = [f"  ... and so do {len(leaks) - 12} more"] if len(leaks) > 12 else []
    seeing = {at for seen in leaks.values() for at in seen}
    return "\n".join([*lines, *more, f"  outputs that see the future: {listed(seeing)}"])
