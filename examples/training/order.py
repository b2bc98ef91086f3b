"""Which examples a step sees: all of them in a new random order every epoch, from a seed and a position.

>>> order = Order(5, seed=0)
>>> first = order.take(3)
>>> sorted(first + order.take(2)), order.position
([0, 1, 2, 3, 4], 5)
"""

import torch


class Order:
    """`position` examples were taken so far: with the seed, all that a checkpoint has to keep."""

    def __init__(self, n_items: int, *, seed: int, position: int = 0) -> None:
        self.n_items = n_items
        self.seed = seed
        self.position = position
        self._epoch, self._shuffled = -1, torch.empty(0, dtype=torch.int64)

    def take(self, count: int) -> list[int]:
        """The next numbers below `n_items`; the same for every rank."""
        taken: list[int] = []
        while len(taken) < count:
            epoch, start = divmod(self.position, self.n_items)
            part = self._epoch_order(epoch)[start : start + count - len(taken)].tolist()
            taken += part
            self.position += len(part)
        return taken

    def _epoch_order(self, epoch: int) -> torch.Tensor:
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)  # a prime: seeds share no epoch
            self._epoch, self._shuffled = epoch, torch.randperm(self.n_items, generator=generator)
        return self._shuffled
