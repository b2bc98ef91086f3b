"""The rules: everything that the check can find, and the search for right-shaped operations that are probably wrong.

>>> RULES["SF301"].title
'a reshape interleaves axes'
"""

from __future__ import annotations

from shapeflow.check.problem import Problem
from shapeflow.check.rules import batch_as_time, broadcasting, recut, weights, whole_batch
from shapeflow.check.rules.rule import Rule
from shapeflow.check.rules.scene import Scene
from shapeflow.check.rules.shown import SHOWN
from shapeflow.trace.result import Trace

__all__ = ["RULES", "Rule", "find_silent"]

_TITLES = {
    "SF301": "a reshape interleaves axes",
    "SF302": "broadcasting makes a name appear twice",
    "SF303": "a vector is aligned with the wrong of two equal axes",
    "SF304": "softmax or normalisation over the batch",
    "SF305": "softmax over an axis of size one",
    "SF306": "softmax over another axis than the one contracted next",
    "SF307": "a mask that is constant along the softmax axis",
    "SF308": "the batch is read as time",
    "SF309": "a table sliced by the batch size",
    "SF310": "a bare squeeze() that can eat an axis",
    "SF311": "cross-entropy on probabilities",
    "SF312": "a mask of the wrong polarity",
    "SF313": "weights masked after softmax",
    "SF314": "a default dim on a tensor of rank three",
    "SF315": "a parameter that no output depends on",
}
FOUND = (*recut.RULES, *broadcasting.RULES, *whole_batch.RULES, *weights.RULES, *batch_as_time.RULES)
_SILENT = {name: Rule(name, title, "warning" if name == "SF315" else "error", title) for name, title in _TITLES.items()}
_ALL = {**_SILENT, **{rule.id: rule for rule in (*SHOWN, *FOUND)}}
RULES: dict[str, Rule] = {name: _ALL[name] for name in sorted(_ALL)}


def find_silent(trace: Trace) -> tuple[Problem, ...]:
    """What every rule finds in a trace."""
    scene = Scene.of(trace)
    return tuple(problem for rule in RULES.values() if rule.find is not None for problem in rule.find(scene))
