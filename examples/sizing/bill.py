"""What a configuration takes, as formulas.

Of equal layers, and of the experts in a layer, each adds the same: counted are few layers with few experts, one layer
more and one expert more, and the differences are carried on to all. That is exact, as `whole=True` shows, which counts
every layer.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache

import torch

import shapeflow as sf
from shapeflow.dims.atoms import Symbol
from shapeflow.dims.expr import Expr, minimum

from .mistake import Refused
from .published import MODELS, Config

T = Symbol("T")
ONE_SEQUENCE = {Symbol("B"): Expr.const(1)}


@dataclass(frozen=True, slots=True)
class Bill:
    """Formulas: numbers, operations, bytes. `flops`, `cache` are for one sequence, `activations` for B of them."""

    parameters: Expr
    active: Expr  # that one token can touch
    flops: Expr
    cache: Expr
    weights: Expr  # bytes while training
    gradients: Expr
    states: Expr
    activations: Expr

    @property
    def flops_per_token(self) -> Expr:
        return self.flops // Expr.from_atom(T)

    @property
    def cache_per_token(self) -> Expr:
        return self.cache.replace({T: Expr.from_atom(T) + 1}) - self.cache

    @property
    def training(self) -> Expr:
        return self.weights + self.gradients + self.states + self.activations

    def __add__(self, other: "Bill") -> "Bill":
        return self.combined(lambda field: getattr(self, field) + getattr(other, field))

    def __sub__(self, other: "Bill") -> "Bill":
        return self.combined(lambda field: getattr(self, field) - getattr(other, field))

    def __mul__(self, times: int) -> "Bill":
        return self.combined(lambda field: getattr(self, field) * times)

    def combined(self, by: Callable[[str], Expr]) -> "Bill":
        return Bill(**{field.name: by(field.name) for field in fields(self)})


def bill(config: Config, dtype: torch.dtype, *, whole: bool = False) -> Bill:
    """Carried on from few layers and experts, or counted whole. Raises Refused for what cannot be built."""
    build(config, dtype)  # what is wrong with it is told of the sizes that were given
    mixed = bool(getattr(config, "dense_layers", ()))  # with experts here and there, no few layers stand for all
    return windowed(counted(config, dtype) if whole or mixed else carried_on(config, dtype), config)


def carried_on(config: Config, dtype: torch.dtype) -> Bill:
    first, few, step = fewest_layers(config), *fewest_experts(config)
    start = counted(smaller(config, first, few), dtype)
    total = start
    if config.n_layers > first:
        total += (counted(smaller(config, first + 1, few), dtype) - start) * (config.n_layers - first)
    if n_experts(config) > few:
        steps = (n_experts(config) - few) // step * layers_of_experts(config)
        total += (counted(smaller(config, first, few + step), dtype) - start) * steps
    return total


def fewest_layers(config: Config) -> int:
    """So many that the last is like all that follow, and the only one of its kind."""
    return 1 if layers_of_experts(config) in (0, config.n_layers) else config.n_layers - layers_of_experts(config) + 1


def fewest_experts(config: Config) -> tuple[int, int]:
    """More than a token goes to, where groups are to be filled in all of them; and how many make the next number."""
    groups = getattr(config, "groups", None)
    if not layers_of_experts(config):
        return n_experts(config), 1
    if groups is None:
        return min(config.top_k + 1, config.n_experts), 1
    size = max(groups.n_best, -(-config.top_k // groups.top_groups))
    return min(groups.n_groups * size, config.n_experts), groups.n_groups


def n_experts(config: Config) -> int:
    return getattr(config, "n_experts", 0)


def layers_of_experts(config: Config) -> int:
    return config.n_layers - getattr(config, "n_dense_layers", 0) if n_experts(config) else 0


def smaller(config: Config, n_layers: int, n_experts: int) -> Config:
    changes = {"n_layers": n_layers}
    if hasattr(config, "n_experts"):
        changes["n_experts"] = n_experts
    if hasattr(config, "n_dense_layers"):
        changes["n_dense_layers"] = min(config.n_dense_layers, n_layers)
    return replace(config, **changes)


@cache  # models side by side may have the same few layers
def counted(config: Config, dtype: torch.dtype) -> Bill:
    trace = sf.trace(build(config, dtype), "B T:int64")
    report, cost = sf.params(trace), sf.cost(trace)
    memory = cost.training_memory(optimizer="adam", precision="float32" if dtype == torch.float32 else "mixed")
    return Bill(
        parameters=Expr.const(report.total),
        active=Expr.const(report.active),
        flops=cost.flops.replace(ONE_SEQUENCE),
        cache=cost.kv_cache_bytes_per_sequence,
        weights=memory.parameters,
        gradients=memory.gradients,
        states=memory.states,
        activations=cost.activation_bytes,
    )


def build(config: Config, dtype: torch.dtype) -> torch.nn.Module:
    try:
        with torch.device("meta"):
            return MODELS[type(config)](config).to(dtype)
    except ValueError as error:
        raise Refused(str(error)) from error


def windowed(whole: Bill, config: Config) -> Bill:
    """With a sliding window a cache holds what the next query reads besides itself."""
    if getattr(config, "window", None) is None:
        return whole
    return replace(whole, cache=whole.cache.replace({T: minimum(Expr.from_atom(T), config.window - 1)}))
