"""SF311: a loss that normalises its input by itself, fed with what is normalised already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import fx

from shapeflow.check.cause import constructor_line
from shapeflow.check.cause.call import names_in
from shapeflow.check.nodes import dims_of, operator_of, record_of
from shapeflow.check.problem import Problem
from shapeflow.check.rules.marks import FARTHEST
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene, line_of

PROBABILITIES = {
    "cross_entropy": ("softmax", "gumbel_softmax"),
    "nll_loss": ("softmax", "gumbel_softmax", "sigmoid"),
    "binary_cross_entropy_with_logits": ("sigmoid", "hardsigmoid", "softmax"),
    "multilabel_soft_margin_loss": ("sigmoid", "softmax"),
    "kl_div": ("softmax",),
    "binary_cross_entropy": ("log_softmax", "logsigmoid"),
}
WANTS = {
    "cross_entropy": "takes logits and does the softmax itself",
    "nll_loss": "takes logarithms of probabilities",
    "binary_cross_entropy_with_logits": "takes logits and does the sigmoid itself",
    "multilabel_soft_margin_loss": "takes logits and does the sigmoid itself",
    "kl_div": "takes logarithms of probabilities",
    "binary_cross_entropy": "takes probabilities",
}
THROUGH = frozenset(
    """view reshape flatten transpose permute squeeze unsqueeze contiguous to float half clone getitem movedim t mT
    swapaxes dropout clamp""".split()
)


def find(scene: Scene) -> Iterator[Problem]:
    for node in scene.operators(*PROBABILITIES):
        given = node.args[0] if node.args else node.kwargs.get("input")
        made = _maker(given)
        if made is not None and operator_of(made) in PROBABILITIES[operator_of(node)]:
            yield _problem(scene, node, made)


def _maker(value: Any) -> fx.Node | None:
    """What made the values of a tensor, before it was moved about."""
    for _ in range(FARTHEST):
        if not isinstance(value, fx.Node) or operator_of(value) not in THROUGH or not value.args:
            break
        value = value.args[0]
    return value if isinstance(value, fx.Node) else None


def _problem(scene: Scene, node: fx.Node, made: fx.Node) -> Problem:
    loss, what = operator_of(node), operator_of(made)
    message = f"{loss} {WANTS[loss]}, and gets the result of {what}"
    problem = scene.problem("SF311", made, message, dims=names_in(*dims_of(made)[-1:]), fix=_fix(loss, what))
    where = _container_line(scene, made) or (None if _only_for(made, node) else line_of(node))
    used = line_of(node)
    told = problem if used is None else _with_detail(problem, f"{loss} is called at {used}")
    return told.at(where)


def _with_detail(problem: Problem, detail: str) -> Problem:
    return replace(problem, details=(*problem.details, detail))


def _fix(loss: str, what: str) -> str:
    if loss == "binary_cross_entropy":
        return f"give {loss} probabilities: {what.replace('log_', '').replace('logsigmoid', 'sigmoid')}"
    if loss in ("nll_loss", "kl_div"):
        return "log_softmax(...)" if what != "sigmoid" else "logsigmoid(...)"
    return f"give {loss} the logits: leave the {what} out"


def _only_for(made: fx.Node, reader: fx.Node) -> bool:
    """Whether the probabilities serve the loss alone: then they are what is too much."""
    waiting = [made]
    while waiting:
        for user in waiting.pop().users:
            if user is reader:
                continue
            if operator_of(user) not in THROUGH:
                return False
            waiting.append(user)
    return True


def _container_line(scene: Scene, made: fx.Node) -> Any:
    """A `nn.Softmax` inside a `nn.Sequential` is wrong where it is built."""
    record = record_of(made)
    scopes = list(record.scopes) if record is not None else []
    if scene.root is None or not scopes:
        return None
    owner = scopes[-2].kind if len(scopes) > 1 else type(scene.root).__name__
    return constructor_line(scene.root, scopes[-1].path) if owner == "Sequential" else None


RULES = (
    Rule(
        "SF311",
        "cross-entropy on probabilities",
        "error",
        """
        cross_entropy takes logits and does the softmax itself; of probabilities the gradient is small and never right.
        binary_cross_entropy_with_logits does the sigmoid itself. nll_loss and kl_div take logarithms.

        wrong:
            return F.cross_entropy(logits.softmax(-1), target)

        right:
            return F.cross_entropy(logits, target)
        """,
        find,
    ),
)
