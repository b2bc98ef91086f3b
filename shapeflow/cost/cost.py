"""What a model costs to run and to train: operations and bytes, as formulas in the model's own sizes.

>>> cost = sf.cost(model, "B T:int64")
>>> cost.flops
105506304*B*T + 6144*B*T^2
>>> cost.flops.at(B=2, T=5), cost.activation_bytes.at(B=2, T=5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapeflow.cost import recurrent
from shapeflow.cost.breakdown import CostRow, OperatorCost, Unknown, rows
from shapeflow.cost.calls import Call, calls, expr_of
from shapeflow.cost.domain import check_sizes
from shapeflow.cost.probe import Probe, Work
from shapeflow.cost.training import TrainingMemory, training_memory
from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError
from shapeflow.trace.result import Trace

if TYPE_CHECKING:
    from shapeflow.cost.autograd import Autograd
    from shapeflow.cost.kv_cache import Held
    from shapeflow.cost.parts import Part
    from shapeflow.cost.scaling import Scaling
    from shapeflow.cost.sheet import Sheet
    from shapeflow.dims.atoms import Symbol


def cost(
    target: Any,
    /,
    *inputs: Any,
    hints: Mapping[str, int] | None = None,
    progress: Callable[[str], None] | None = None,
    **named: Any,
) -> Cost:
    """What a trace costs, or a model with the inputs that `sf.trace` takes. Raises what `sf.trace` raises."""
    if not isinstance(target, Trace):
        from shapeflow.trace.tracer import trace

        return Cost(trace(target, *inputs, hints=hints, progress=progress, **named))
    if inputs or named or hints:
        raise InputError("a trace has its inputs already: sf.cost(trace) takes no others")
    return Cost(target)


class Cost:
    """Formulas over the sizes of the trace: each is an `Expr`, with `.at(B=2, T=5)` for the number.

    What takes a backward to know is computed when it is first asked for.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.name = trace.name
        self.calls = calls(trace)
        self._probe = Probe(trace._attempt)

    # Operations

    @cached_property
    def flops(self) -> Expr:
        """Operations of one forward, two for a multiply-add."""
        return self._summed(self.forward)

    @cached_property
    def forward(self) -> tuple[Expr, ...]:
        """Operations of each call of an operator, in the order of `calls`."""
        return tuple(self._spelt(self._works[id(call)].flops) for call in self.calls)

    @property
    def macs(self) -> Expr:
        """Multiply-adds of one forward."""
        return self.flops // 2

    @cached_property
    def backward_flops(self) -> Expr:
        """Operations of one backward from all outputs, to all parameters that are trained."""
        return self._summed(self._autograd.backward(call, self._works[id(call)]).flops for call in self.calls)

    @property
    def training_flops(self) -> Expr:
        """Operations of one step: forward and backward."""
        return self.flops + self.backward_flops

    @cached_property
    def unknown(self) -> tuple[Unknown, ...]:
        """Operators of the forward that no rule knows."""
        found: dict[str, dict[str, None]] = {}
        for call in self.calls:
            for operator in self._works[id(call)].unknown:
                found.setdefault(operator, {})[call.path] = None
        return tuple(Unknown(operator, tuple(paths)) for operator, paths in found.items())

    @cached_property
    def _works(self) -> dict[int, Work]:
        known: dict[Any, Work] = {}
        for call in self.calls:
            if call.key not in known:
                known[call.key] = self._work(call)
        return {id(call): known[call.key] for call in self.calls}

    def _work(self, call: Call) -> Work:
        from shapeflow.cost.rules import FREE

        if call.record.operator in FREE:
            return Work()
        if call.function in recurrent.RECURRENT:
            return Work(recurrent.forward(call))
        return self._probe.forward(call)

    # Memory

    @cached_property
    def activation_bytes(self) -> Expr:
        """Bytes kept from the forward for the backward, each storage once, without parameters and buffers."""
        return self._summed(self._autograd.kept.values())

    @cached_property
    def _autograd(self) -> Autograd:
        from shapeflow.cost.autograd import Autograd

        return Autograd(self.trace, self.calls)

    @cached_property
    def peak_bytes(self) -> Expr:
        """Bytes that a forward without autograd holds at its fullest: inputs and outputs too, but no parameters."""
        from shapeflow.cost.lifetimes import fullest, highest_of

        return highest_of([self._spelt(level) for level in fullest(self.trace._attempt, self.calls)])

    @cached_property
    def kv_cache(self) -> tuple[Held, ...]:
        """What a decoder keeps of the positions that it has read, for each attention, and states of recurrences."""
        from shapeflow.cost.kv_cache import decoding, kv_cache

        trace = decoding(self.trace)
        return kv_cache(trace._attempt, self.calls if trace is self.trace else calls(trace))

    @cached_property
    def kv_cache_bytes(self) -> Expr:
        """Bytes of keys and values, or what they are made from, of all sequences; 0 where no attention is causal."""
        return self._summed(held.bytes for held in self.kv_cache)

    @cached_property
    def kv_cache_bytes_per_sequence(self) -> Expr:
        """The same for one sequence of the batch."""
        return self._summed(held.per_sequence for held in self.kv_cache)

    @cached_property
    def kv_cache_bytes_per_token(self) -> Expr:
        """How much one more token adds to one sequence."""
        grown = self._summed(held.per_sequence for held in self.kv_cache if held.grows)
        maker = self.trace._attempt.subject.maker
        of_constructor = frozenset() if maker is None else frozenset(maker.symbols)
        more = {symbol: Expr.from_atom(symbol) + 1 for symbol in grown.symbols if symbol.name not in of_constructor}
        return grown.replace(more) - grown

    @property
    def parameter_bytes(self) -> Expr:
        """Bytes of all parameters, each tensor once."""
        return sum((size * count for held in self._parameters for size, count in held.items()), Expr.const(0))

    def training_memory(self, *, optimizer: str = "adam", precision: str | None = None) -> TrainingMemory:
        """Bytes of parameters, gradients and states of the optimiser, each on its own."""
        trained, frozen = self._parameters
        return training_memory(trained, frozen, optimizer=optimizer, precision=precision)

    def training_bytes(self, *, optimizer: str = "adam", precision: str | None = None) -> Expr:
        """Bytes of parameters, gradients and states of the optimiser; activations come on top.

        `optimizer`: sgd, momentum, adam, adamw, adagrad, rmsprop, lion. `precision`: float32, mixed, bfloat16, float16,
        float64; without one all of it is in the parameters' own dtype.
        """
        return self.training_memory(optimizer=optimizer, precision=precision).total

    @cached_property
    def _parameters(self) -> tuple[dict[int, Expr], dict[int, Expr]]:
        """Counts of trained and of frozen parameters by bytes of a number."""
        held: tuple[dict[int, Expr], dict[int, Expr]] = {}, {}
        root = self.trace._attempt.subject.root
        for each in () if root is None else root.parameters():
            by_size = held[0 if each.requires_grad else 1]
            by_size[each.dtype.itemsize] = by_size.get(each.dtype.itemsize, Expr.const(0)) + expr_of(each.numel())
        return held

    def at(self, **sizes: int) -> dict[str, int]:
        """Every total as a number. Raises InputError for names and sizes that the trace does not hold for."""
        check_sizes(self.trace, sizes)
        names = (
            "flops",
            "macs",
            "backward_flops",
            "activation_bytes",
            "peak_bytes",
            "kv_cache_bytes",
            "parameter_bytes",
        )
        return {name: getattr(self, name).at(**sizes) for name in names}

    # Parts

    @cached_property
    def operators(self) -> tuple[OperatorCost, ...]:
        """Every operator of the trace."""
        return tuple(
            OperatorCost(
                call.name,
                call.record.operator,
                call.record.scopes,
                flops,
                self._spelt(self._autograd.backward(call, self._works[id(call)]).flops),
                self._spelt(self._autograd.kept[id(call)]),
            )
            for call, flops in zip(self.calls, self.forward, strict=True)
        )

    @cached_property
    def rows(self) -> tuple[CostRow, ...]:
        """Every module that ran, in the order of definition, each with what is below it."""
        return rows(self)

    # Scaling

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What the forward's operations are for: feed-forwards, projections, attention, the head."""
        from shapeflow.cost.parts import parts

        return parts(self)

    def scaling(self, dim: str, **sizes: int) -> Scaling:
        """Which part takes the most at which `dim`, and where one overtakes another."""
        from shapeflow.cost.scaling import scaling

        return scaling(self, dim, sizes)

    def plot(
        self, dim: str, path: str | Path, *, low: int | None = None, high: int | None = None, **sizes: int
    ) -> None:
        """Draw the operations against one size, from `low` to `high`, to an `.svg`, `.png` or `.pdf`."""
        from shapeflow.cost.plot import plot

        plot(self, dim, path, sizes=sizes, low=low, high=high)

    # Tables

    def sheet(self, **sizes: int) -> Sheet:
        """A table for `shapeflow.cost.formats`: formulas, or the numbers at these sizes."""
        from shapeflow.cost.report import sheet

        return sheet(self, sizes=sizes)

    def __str__(self) -> str:
        from shapeflow.cost.formats import text
        from shapeflow.cost.sheet import select

        return text(select(self.sheet()))

    # Spelling

    def _summed(self, parts: Iterable[Expr]) -> Expr:
        times: dict[Expr, int] = {}
        for part in parts:
            times[part] = times.get(part, 0) + 1
        return self._spelt(sum((part * count for part, count in times.items()), Expr.const(0)))

    def _spelt(self, formula: Expr) -> Expr:
        """In the inputs' sizes alone: names of longer expressions written out, known numbers put in."""
        while formula.symbols & self._definitions.keys():
            formula = formula.replace(self._definitions)
        return formula.replace(self._shares).unpinned

    @cached_property
    def _definitions(self) -> Mapping[Symbol, Expr]:
        env = self.trace._attempt.env
        if not env.computed:
            return env.definitions
        from shapeflow.cost.rounding import rounded

        return {**env.definitions, **rounded(env)}

    @cached_property
    def _shares(self) -> dict[Symbol, Expr]:
        """What is known of counts that values decide: the rows of experts."""
        if not self.trace._attempt.env.fresh:
            return {}
        from shapeflow.cost.attention import Lineage
        from shapeflow.cost.dispatch import dispatched

        return dispatched(self.trace._attempt, Lineage(self.calls))
