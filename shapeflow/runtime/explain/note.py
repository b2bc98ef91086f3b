"""The note of an error: text, made at once from the frames that it went through, so that it keeps nothing alive.

shapeflow: in head (Linear of Net)
  net.py:17, in forward: linear
     17 |         return self.head(x.flatten(1))
        |                ^^^^^^^^^^^^^^^^^^^^^^^
  x.flatten(1)  4 490  float32 cpu
  head.weight   5 10   float32 cpu  min -0.31, max 0.3, mean 0.007
  dims: B = 4 (axis 0 of x)
  axis: axis 1 of x.flatten(1) is 490, axis 1 of head.weight is 10
  cause: Linear 'head' takes 10, gets 490 = 10*7*7: flatten is right, in_features is not
  fix: nn.Linear(10 * 7 * 7, 5)
  fault: net.py:9: self.head = nn.Linear(10, 5)
"""

from __future__ import annotations

import sys
from pathlib import Path

from shapeflow.runtime.explain.origin import leaves_of, reason

HEADER = "shapeflow: "


def annotate(error: BaseException) -> None:
    """Add one note to an error, or to each error of a group, unless it has one or has nothing to do with tensors."""
    for each in leaves_of(error):
        if "torch" in sys.modules and not is_annotated(each):
            note = _written(each)
            if note:
                _add(each, note)


def _add(error: BaseException, note: str) -> None:
    """Add the note, where the error takes one: a class may have `__notes__`, or `add_note`, of its own."""
    try:
        error.add_note(note)
    except Exception:  # whatever a class of the user's does here, its error is what has to arrive
        return


def is_annotated(error: BaseException) -> bool:
    """Whether an explanation is there already."""
    try:
        notes = tuple(getattr(error, "__notes__", ()))
    except Exception:  # as in `_add`
        return False
    return any(isinstance(note, str) and note.startswith(HEADER) for note in notes)


def _written(error: Exception) -> str:
    try:
        from shapeflow.runtime.explain.report import report_of

        lines = report_of(error)
        return "\n  ".join(lines) if lines else ""
    except Exception as fault:  # a fault of ours must not hide the user's own error: it is told, in one line
        return f"{HEADER}no explanation, which is a fault of shapeflow's own: {located(fault)}"


def located(fault: Exception) -> str:
    """What went wrong in our own code, and in which line of it."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    at = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace is not None else ""
    return reason(fault) + at
