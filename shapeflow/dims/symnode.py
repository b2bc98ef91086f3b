"""What every node that stands behind a SymInt, SymFloat or SymBool answers alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapeflow.dims.boolean import BoolNode
    from shapeflow.dims.env import DimEnv
    from shapeflow.dims.floating import FloatNode
    from shapeflow.dims.node import IntNode


class _NoSymbols:
    """What torch sees as a node's `expr`: an expression without sympy symbols and without parts.

    `free_symbols` and `args` are walked by torch.fx.experimental.symbolic_shapes to look for sizes that have
    no hint; ours always have one.
    """

    free_symbols: frozenset[Any] = frozenset()
    args = ()
    is_Symbol = False
    is_number = False


NO_SYMBOLS = _NoSymbols()


class SymNodeBase:
    """The part of the SymNode protocol that does not depend on the kind of number."""

    __slots__ = ("__weakref__", "env")
    env: DimEnv
    shape_env = None  # None: torch then asks the node itself instead of a ShapeEnv
    expr = NO_SYMBOLS
    hint: Any

    @property
    def _hint(self) -> Any:
        return self.hint

    def __deepcopy__(self, memo: dict[int, Any]) -> SymNodeBase:
        """Itself: a copied module has sizes of the same run."""
        return self

    def has_hint(self) -> bool:
        return True

    def is_int(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def constant_int(self) -> int | None:
        return None

    def constant_bool(self) -> bool | None:
        return None

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def str(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self.str()

    def __repr__(self) -> str:
        return self.str()

    def _graph_repr(self) -> str:
        return self.str()

    def wrap_int(self, number: int) -> IntNode:
        return self.env.integer(number)

    def wrap_float(self, number: float) -> FloatNode:
        return self.env.real(number)

    def wrap_bool(self, answer: bool) -> BoolNode:
        return self.env.truth(answer)
