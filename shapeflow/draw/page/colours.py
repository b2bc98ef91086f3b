"""The palette of the drawings as variables of the page's style sheet, for light and for dark."""

from __future__ import annotations

from collections.abc import Iterator

from shapeflow.draw.palette import DARK, LIGHT, Paint, Theme

# What a page has beside a drawing: surfaces of panels, what can be clicked. Contrast with text is above 4.5 to 1.
SURFACES = {
    "light": {"raised": "#f7f8fa", "soft": "#e9edf2", "edge": "#cdd4db", "accent": "#1d5fa8", "on-accent": "#ffffff"},
    "dark": {"raised": "#1b2127", "soft": "#29313a", "edge": "#3d4751", "accent": "#7fbcf5", "on-accent": "#0d1216"},
}


def colours() -> str:
    """The rules: light by default, dark where the reader's system or the page's own button says so."""
    light, dark = _block(LIGHT, SURFACES["light"]), _block(DARK, SURFACES["dark"])
    families = (
        f".family-{name} {{ --fill-of: var(--{name}-fill); --line-of: var(--{name}-line); }}" for name in LIGHT.fills
    )
    return "\n".join(
        [
            f":root {{ color-scheme: light; {light} }}",
            f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ color-scheme: dark; {dark} }} }}",
            f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}",
            *families,
            "",
        ]
    )


def _block(theme: Theme, surfaces: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in [*_of(theme), *surfaces.items()])


def _of(theme: Theme) -> Iterator[tuple[str, str]]:
    yield from (("ground", theme.ground), ("text", theme.text), ("faint", theme.faint), ("wire", theme.line))
    yield from (("spine", theme.spine), ("mark", theme.mark), ("fresh", theme.fresh), ("end-text", theme.end_text))
    paints = {"plain": theme.plain, "block": theme.block, "end": theme.end, "made": theme.made, **theme.fills}
    paints |= {"error": theme.error, "warned": theme.warning}
    for name, paint in paints.items():
        yield from _paint(name, paint)


def _paint(name: str, paint: Paint) -> Iterator[tuple[str, str]]:
    yield f"{name}-fill", paint.fill
    yield f"{name}-line", paint.line
