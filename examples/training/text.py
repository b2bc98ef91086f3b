"""Text that every Python has at hand, cut into passages of bytes: what a language model learns to continue.

>>> Texts(zen(), window=20).batch([0]).ids.shape
torch.Size([1, 20])
"""

import codecs
import contextlib
import hashlib
import io
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.cache import Cache
from models.decoding import Sampler, generate
from models.loss import next_token_pairs, token_nll
from models.tokenisers import ByteTokeniser

from .batch import Logits
from .settings import RunError


def zen() -> str:
    """The text of the module `this`: it prints itself on its first import, and keeps itself in a simple cipher."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def reference() -> str:
    """What `help()` says on the language: its reference, half a million characters, which Python versions edit."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


TEXTS = {"zen": zen, "reference": reference}


@dataclass(frozen=True, slots=True)
class Passages:
    """Bytes of a text, and the byte that follows each."""

    ids: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]

    @property
    def n_scored(self) -> int:
        return self.targets.numel()


class Texts:
    """A text's passages of `window` bytes: any of its first four fifths to learn from, those of the last held out."""

    def __init__(self, text: str, *, window: int) -> None:
        tokeniser = ByteTokeniser()
        self.window = window
        self.vocab = tokeniser.vocab
        ids = torch.tensor(tokeniser.encode(text))
        self.known, self.unknown = ids[: len(ids) * 4 // 5], ids[len(ids) * 4 // 5 :]
        self.n_items = len(self.known) - window  # a passage starts at any byte, and has one more to predict
        self.n_held_out = len(self.unknown) // (window + 1)
        self.data = f"{len(ids):,} bytes of text ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
        if self.n_items < 1:
            raise RunError(f"a text of {len(ids)} bytes holds no passage of window = {window} to learn from")

    def batch(self, items: list[int], *, held_out: bool = False) -> Passages:
        step = self.window + 1 if held_out else 1
        source = self.unknown if held_out else self.known
        passages = torch.stack([source[item * step : item * step + self.window + 1] for item in items])
        return Passages(*next_token_pairs(passages))

    def nll_sum(self, model: Logits, batch: Passages) -> Float[Tensor, ""]:
        return token_nll(model(batch.ids), batch.targets).sum()

    def sample(self, model: Logits, seed: int, *, n_layers: int) -> str:
        """How the model goes on from the first half of a passage that it has not seen, drawn at temperature 0.8."""
        prompt = self.unknown[None, : (self.window + 1) // 2]
        choose = Sampler(temperature=0.8, generator=torch.Generator().manual_seed(seed))
        new = self.window - prompt.shape[1]
        told = generate(model, prompt, max_new_tokens=new, choose=choose, cache=Cache(n_layers))
        tokeniser = ByteTokeniser()
        return f"{tokeniser.decode(prompt[0].tolist())!r} + {tokeniser.decode(told.new_tokens()[0])!r}"
