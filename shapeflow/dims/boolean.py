"""A comparison of sizes as torch sees it: the node behind a `SymBool`.

>>> bool(torch.SymInt(IntNode(env, T)) <= 512)      # answered by bounds, facts or the hint; recorded once
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapeflow.dims.relation import Relation
from shapeflow.dims.symnode import SymNodeBase

if TYPE_CHECKING:
    from shapeflow.dims.env import DimEnv


class BoolNode(SymNodeBase):
    """A relation, or a conjunction / disjunction of two nodes that is asked from left to right."""

    __slots__ = ("join", "parts", "relation")
    pytype = bool

    def __init__(
        self,
        env: DimEnv,
        relation: Relation | None,
        *,
        join: str = "",
        parts: tuple[BoolNode, BoolNode] | None = None,
    ) -> None:
        self.env, self.relation, self.join, self.parts = env, relation, join, parts

    @property
    def hint(self) -> bool:
        if self.relation is not None:
            relation = self.relation.unpinned
            return relation.holds(self.env.hint(relation.difference))
        left, right = self._sides()
        return (left.hint and right.hint) if self.join == "and" else (left.hint or right.hint)

    def _sides(self) -> tuple[BoolNode, BoolNode]:
        assert self.parts is not None
        return self.parts

    def is_bool(self) -> bool:
        return True

    def maybe_as_bool(self) -> bool | None:
        if self.relation is not None:
            return self.env.decide(self.relation)
        answers = {side.maybe_as_bool() for side in self._sides()}
        if self.join == "and":
            return False if False in answers else True if answers == {True} else None
        return True if True in answers else False if answers == {False} else None

    def is_constant(self) -> bool:
        """A comparison that is decided is a plain bool to Python: `T > 1` may be handed to an operator's flag."""
        return self.maybe_as_bool() is not None

    def str(self) -> str:
        if self.relation is not None:
            return str(self.relation)
        left, right = self._sides()
        return f"({left} {self.join} {right})"

    def clone(self) -> BoolNode:
        return self

    def guard_bool(self, file: str, line: int) -> bool:
        """The answer that this run goes on with; recorded where nothing decides it."""
        return self._ask(demanded=False)

    # torch's softer questions ("may I assume ...?"): every size here has a hint, so all are answered alike.
    guard_size_oblivious = guard_or_false = guard_or_true = guard_bool

    def expect_true(self, file: str, line: int) -> bool:
        """The same, from `torch._check`: an error follows if it does not hold."""
        return self._ask(demanded=True)

    def _ask(self, *, demanded: bool) -> bool:
        if self.relation is not None:
            return self.env.ask(self.relation, demanded=demanded)
        known = self.maybe_as_bool()
        if known is not None:
            return known
        left, right = self._sides()
        first = left._ask(demanded=demanded and self.join == "and")
        if self.join == "and":
            return first and right._ask(demanded=demanded)
        return first or right._ask(demanded=demanded)

    def statically_known_true(self, file: str, line: int) -> bool:
        return self.maybe_as_bool() is True

    def bool_(self) -> bool:
        return self.guard_bool("", 0)

    def sym_not(self) -> BoolNode:
        if self.relation is not None:
            return BoolNode(self.env, self.relation.negated)
        left, right = self._sides()
        join = "or" if self.join == "and" else "and"
        return BoolNode(self.env, None, join=join, parts=(left.sym_not(), right.sym_not()))

    def sym_and(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.env, None, join="and", parts=(self, other))

    def sym_or(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.env, None, join="or", parts=(self, other))

    and_ = sym_and
    or_ = sym_or

    def eq(self, other: BoolNode) -> BoolNode:
        return self.wrap_bool(self.guard_bool("", 0) == other.guard_bool("", 0))

    def ne(self, other: BoolNode) -> BoolNode:
        return self.wrap_bool(self.guard_bool("", 0) != other.guard_bool("", 0))
