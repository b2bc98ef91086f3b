"""Text on every ground of the page can be read, in light and in dark (WCAG 2.2, 1.4.3: 4.5 to 1)."""

import re

import pytest

from shapeflow.draw.page.colours import colours
from shapeflow.draw.palette import FAMILIES

GROUNDS = {
    "text": [
        "ground",
        "raised",
        "soft",
        "plain-fill",
        "block-fill",
        "made-fill",
        *(f"{name}-fill" for name in FAMILIES),
    ],
    "faint": ["ground", "raised", "soft", "plain-fill", "block-fill", *(f"{name}-fill" for name in FAMILIES)],
    "accent": ["ground", "raised"],
    "on-accent": ["accent"],
    "end-text": ["end-fill"],
    "mark": ["ground", "raised"],
    "fresh": ["ground", "raised"],
}
PAIRS = [(text, ground) for text, grounds in GROUNDS.items() for ground in grounds]


def themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root(?:\[data-theme=(dark)\])? \{(.*?)\}", colours())
    return {name or "light": dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for name, block in blocks}


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"), [(text, ground) for text, grounds in GROUNDS.items() for ground in grounds]
)
def test_contrast(theme, text, ground):
    found = themes()[theme]
    low, high = sorted([luminance(found[text]), luminance(found[ground])])
    assert (high + 0.05) / (low + 0.05) >= 4.5
