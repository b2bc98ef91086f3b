"""Why a shape error happened, and what would be right: `cause(call)`, for a trace and for a real run alike."""

from shapeflow.check.cause.call import Call
from shapeflow.check.cause.constructor import constructor_line, written_call
from shapeflow.check.cause.explain import cause
from shapeflow.check.cause.making import call_from, call_in, call_in_traceback, call_of
from shapeflow.check.cause.prove import prove
from shapeflow.check.cause.result import Cause, Repair

__all__ = [
    "Call",
    "Cause",
    "Repair",
    "call_from",
    "call_in",
    "call_in_traceback",
    "call_of",
    "cause",
    "constructor_line",
    "prove",
    "written_call",
]
