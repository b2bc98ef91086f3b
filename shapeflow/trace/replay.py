"""Running a traced graph on real tensors: the proof that the graph is the program.

>>> trace.graph_module(tokens)          # equals model(tokens), at any sizes of the domain
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from shapeflow.torch_private import FakeTensor
from shapeflow.trace.structure import Slot, map_tensors

if TYPE_CHECKING:
    from shapeflow.trace.attempt import Attempt


class ReplayError(AssertionError):
    """The graph was traced under an assumption that these inputs do not meet."""


def expect(value: Any, answer: Any, message: str) -> None:
    """Assert in a replayed graph what the trace assumed of a value that it did not have."""
    found = value.item() if isinstance(value, torch.Tensor) else value
    if found != answer:
        raise ReplayError(f"{message}: the trace assumed {answer}, here it is {found}")


def hold(difference: int, operator: str, text: str) -> None:
    """Assert in a replayed graph a condition on sizes that decided how the model ran."""
    if not {"==": difference == 0, "!=": difference != 0, ">=": difference >= 0}[operator]:
        raise ReplayError(f"the graph was traced for sizes with {text}, and these are not such")


def refill(skeleton: Any, tensors: tuple[torch.Tensor, ...]) -> Any:
    """A copy of an object with its tensors put back: a cache, a model's output, a distribution."""
    return map_tensors(skeleton, lambda slot: tensors[slot.number], at=Slot)


def unreadable(name: str) -> Any:
    """A dim that torch found inside an operator, in a tensor that the graph does not see."""
    raise ReplayError(f"{name} is a number that an operator read from a value inside it: the graph cannot tell it")


def graph_module(attempt: Attempt) -> fx.GraphModule:
    """The recorded graph over the model's own parameters, buffers and constants."""
    writer = attempt.recorder.writer
    held = {}
    for node in writer.graph.nodes:
        if node.op == "get_attr":
            target = str(node.target)
            held[target] = writer.attributes[target] if target in writer.attributes else _of_model(attempt, target)
            if isinstance(held[target], FakeTensor):
                raise ReplayError(
                    f"{node.target} was made by code that the trace did not see: the graph cannot replay it"
                )
    return fx.GraphModule(held, writer.graph, class_name=attempt.subject.name)


def _of_model(attempt: Attempt, path: str) -> Any:
    found: Any = attempt.subject.root
    for name in path.split("."):
        found = getattr(found, name)
    return found
