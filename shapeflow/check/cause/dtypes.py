"""Tensors that fit in shape and not in dtype: the input of a layer, an index, a target of class numbers.

Linear 'head' is float32, x is float64
fix: self.head(x.float())
"""

from __future__ import annotations

from torch import nn

from shapeflow.check.cause.call import Call, Operand, names_in
from shapeflow.check.cause.layer import layer_of
from shapeflow.check.cause.result import Cause
from shapeflow.check.cause.swapping import rewritten

_SAID = ("dtype", "scalar type", "same type", "should be the same", "datatype")
"""What torch says of dtypes, in one of its many ways."""
_METHODS = {"float32": ".float()", "float64": ".double()", "float16": ".half()", "bfloat16": ".bfloat16()"}
_CLASSES = ("cross_entropy", "nll_loss")


def dtypes(call: Call) -> Cause | None:
    """The cause for two dtypes that do not go together."""
    if not any(text in call.error for text in _SAID):
        return None
    if call.operator in _CLASSES:
        return _class_numbers(call)
    named = {name: value for name, value in call.arguments.items() if isinstance(value, Operand)}
    first, *others = named or [""]
    other = next((name for name in others if named[name].dtype != named[first].dtype), None)
    if other is None:
        return None
    layer = layer_of(call, nn.Module) if named[other].kind == "parameter" else None
    given, wanted = named[first], named[other].dtype
    text, path = call.text(first, first), str(layer) if layer is not None else call.text(other, other)
    fix = rewritten(call, first, _METHODS.get(wanted, f".to(torch.{wanted})"))
    return Cause(f"{path} is {wanted}, {text} is {given.dtype}", fix, names_in(*given.dims), call.location)


def _class_numbers(call: Call) -> Cause | None:
    given, target = call.tensor("input"), call.tensor("target")
    if given is None or target is None or target.dtype in ("int64", "uint8"):
        return None
    text = call.text("target", "target")
    message = f"{call.operator} takes class numbers of int64, {text} is {target.dtype}"
    return Cause(message, rewritten(call, "target", ".long()"), names_in(*target.dims), call.location)
