"""A small GPT learns to continue the Python reference, byte by byte: the text that `help()` shows, on every machine.

    python examples/train_gpt.py
    python examples/train_gpt.py --preset tiny                          # seconds, on the Zen of Python
    python examples/train_gpt.py --resume                               # after a kill: the same curve
    torchrun --nproc-per-node 2 examples/train_gpt.py --parallel fsdp   # or ddp: the same curve

From seed 0 the loss on bytes held out ends at 1.54 nats (the text of Python 3.11; versions edit it), of 5.5 for a
guess; with the tiny preset at 3.01. In one process a killed run that is resumed, with as many threads as before,
repeats the curve to the last bit; two ranks keep to it within 1e-5 nats at each of the tiny preset's steps.
`runs/train_gpt` gets the curve and the checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shapeflow as sf
from models.gpt import GPT, DecoderBlock, GPTConfig

sf.enforce("training")  # the shapes in its annotations hold from its import on, or it stops
from training.command import launch  # noqa: E402
from training.settings import TINY, RunError, Settings, setting  # noqa: E402
from training.text import TEXTS, Texts  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTSettings(Settings):
    """The common settings, a text and the length of its passages."""

    text: str = setting("reference", "what to learn: zen, reference, or a file of text")
    window: int = setting(96, "bytes of a passage: the longest context")


PRESETS = {
    "default": GPTSettings(d_model=96, d_ff=384, n_layers=3, batch=16, steps=800, rate=4e-3),
    "tiny": GPTSettings(text="zen", window=20, n_layers=2, **TINY),
}


class Continuation(Texts):
    """A GPT that fits the settings, and the passages that it learns from."""

    blocks = (DecoderBlock,)

    def __init__(self, settings: GPTSettings) -> None:
        super().__init__(text_of(settings.text), window=settings.window)
        self.config = GPTConfig(
            vocab=self.vocab,
            max_len=settings.window,
            d_model=settings.d_model,
            n_heads=settings.n_heads,
            d_ff=settings.d_ff,
            n_layers=settings.n_layers,
        )

    def model(self) -> GPT:
        return GPT(self.config)

    def sample(self, model: Any, seed: int) -> str:
        return super().sample(model, seed, n_layers=self.config.n_layers)


def text_of(name: str) -> str:
    """A text that ships with Python, or that of a file."""
    if name in TEXTS:
        return TEXTS[name]()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"text = {name} is none of {', '.join(TEXTS)}, and no file of text: {error}") from error


def main(arguments: Sequence[str] | None = None) -> None:
    launch("train_gpt", PRESETS, Continuation, about=__doc__, arguments=arguments)


if __name__ == "__main__":
    main()
