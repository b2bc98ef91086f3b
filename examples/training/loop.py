"""Training: a step, an evaluation, and all that a checkpoint has to keep of both.

A batch is drawn for all ranks together and each takes its share; losses are summed over tokens and divided by those of
the whole batch, so that one process and several follow the same curve.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .batch import Task, share
from .curve import Curve
from .order import Order
from .ranks import Ranks, clipped, spread_state, whole_model, whole_optimiser
from .settings import Settings


class Training:
    """A model on its way: weights, optimiser, place in the data, curve."""

    def __init__(self, task: Task[Any], settings: Settings, ranks: Ranks) -> None:
        self.task, self.settings, self.ranks = task, settings, ranks
        torch.manual_seed(settings.seed)
        model = task.model()
        self.n_parameters = sum(weight.numel() for weight in model.parameters())
        self.model = ranks.spread(model, task.blocks)
        self.optimiser = adamw(self.model, settings)
        self.order = Order(task.n_items, seed=settings.seed)
        self.curve = Curve()
        torch.manual_seed(1_000_003 * (settings.seed + 1) + ranks.rank)  # of dropout, which each rank draws on its own

    @property
    def done(self) -> int:
        """Steps so far."""
        return len(self.curve.losses)

    def step(self) -> float:
        """One update of the weights; gives the gradient's norm before it was clipped."""
        whole = self.task.batch(self.order.take(self.settings.batch))
        mine = share(whole, self.ranks.rank, self.ranks.world)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate_at(self.done)
        self.model.train()
        nll = self.task.nll_sum(self.model, mine)
        self.optimiser.zero_grad()
        (nll * self.ranks.world / whole.n_scored).backward()  # the ranks' gradients are averaged
        norm = clipped(self.model, self.settings.clip)
        self.optimiser.step()
        self.curve.losses.append(self.ranks.total(nll) / whole.n_scored)
        return norm

    @torch.no_grad()
    def evaluate(self) -> float:
        """The mean loss of a token that was held out, over the same first batches every time."""
        batch, total, scored = self.settings.batch, 0.0, 0
        self.model.eval()
        for start in range(0, min(self.settings.eval_batches, self.task.n_held_out // batch) * batch, batch):
            whole = self.task.batch(list(range(start, start + batch)), held_out=True)
            total += self.ranks.total(self.task.nll_sum(self.model, share(whole, self.ranks.rank, self.ranks.world)))
            scored += whole.n_scored
        self.curve.held_out[self.done] = total / scored
        return total / scored

    def sample(self) -> str:
        """What the first rank's own copy of the whole model writes; nothing on the others."""
        weights = whole_model(self.model)
        if not self.ranks.first:
            return ""
        with torch.random.fork_rng(devices=[]):  # the first weights of a new model are drawn, and thrown away
            model = self.task.model()
        model.load_state_dict(weights)
        return self.task.sample(model.eval(), self.settings.seed + self.done)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on. Every rank has to ask; the first one gets the whole."""
        return {
            "model": whole_model(self.model),
            "optimiser": whole_optimiser(self.model, self.optimiser),
            "position": self.order.position,
            "generators": self.ranks.generator_states(),
            "curve": self.curve.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state of any number of ranks. With another number, dropout draws anew."""
        spread_state(self.model, self.optimiser, state["model"], state["optimiser"])
        self.order = Order(self.task.n_items, seed=self.settings.seed, position=state["position"])
        self.curve = Curve(**state["curve"])
        if len(state["generators"]) == self.ranks.world:
            torch.set_rng_state(state["generators"][self.ranks.rank])


def adamw(model: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Weight decay is for matrices: biases and the gains of norms have no need to be small."""
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.98))


@contextmanager
def reproducible() -> Iterator[None]:
    """Inside, torch uses no operator whose result differs from run to run, or says that it has no other."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
