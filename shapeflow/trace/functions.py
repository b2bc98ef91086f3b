"""What kind of thing a torch function is: an operator, a question, a write in place, Python made of operators.

>>> kind_of(torch.Tensor.add_)
'write'
"""

from __future__ import annotations

import types
from typing import Any, Literal

import torch

Kind = Literal["operator", "question", "write", "unpacking", "expanded", "data", "copy"]

TENSOR_PROPERTIES = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
QUESTIONS = frozenset(
    """size dim stride numel nelement ndimension storage_offset is_floating_point is_complex is_contiguous is_signed
    is_conj is_neg is_inference element_size get_device has_names is_same_size is_set_to untyped_storage storage
    data_ptr __repr__ __hash__ __dir__ __reduce_ex__ __set__ register_hook retain_grad is_shared
    is_pinned dim_order result_type can_cast is_storage promote_types broadcast_shapes is_grad_enabled
    get_default_dtype _is_view typename is_tensor""".split()
)
"""Functions that tell of a tensor and make none: they run, and nothing is recorded."""
UNPACKING = frozenset({"__iter__", "__reversed__", "__contains__"})
"""Python made of operators: those are recorded instead."""
FROM_DATA = frozenset({"tensor", "as_tensor", "asarray", "from_numpy", "scalar_tensor"})
"""Constructors from values: never remembered, as the memo compares shapes."""
EXPANDED = frozenset({torch.nn.functional.multi_head_attention_forward})
"""Large functions of torch.nn.functional: drawn as the operators inside them."""
WRITTEN_SIZES = frozenset({"view", "reshape", "unflatten"})
"""Operators whose output has the sizes that the code writes."""
TAKES_SIZES = frozenset(
    """view reshape expand repeat zeros ones empty full rand randn randint new_zeros new_ones new_empty new_full arange
    narrow unflatten broadcast_to""".split()
)
"""Operators that take sizes, which may come as 0-d tensors."""


def kind_of(function: Any) -> Kind:
    """How the recorder treats the function."""
    name = name_of(function)
    if isinstance(function, types.MethodWrapperType):
        if property_name(function) not in TENSOR_PROPERTIES:
            return "question"
        return "operator" if name == "__get__" else "write"
    if name in QUESTIONS:
        return "question"
    if name in UNPACKING:
        return "unpacking"
    if function in EXPANDED:
        return "expanded"
    if name == "__deepcopy__":
        return "copy"
    return "write" if _writes(name) else "data" if name in FROM_DATA else "operator"


def _writes(name: str) -> bool:
    augmented = name.startswith("__i") and name not in ("__invert__", "__index__", "__int__", "__iter__", "__init__")
    return augmented or name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def name_of(function: Any) -> str:
    """The function's own name (`add_`, `__getitem__`), or its text where it has none."""
    return getattr(function, "__name__", "") or str(function)


def operator_name(function: Any) -> str:
    """The name for the reader: `add`, `getitem`, `T`."""
    name = name_of(function)
    return property_name(function) if name in ("__get__", "__set__") else name.strip("_").partition(".")[0] or name


def property_name(getter: Any) -> str:
    """`T` of `Tensor.T.__get__`."""
    return getter.__self__.__name__


def body_of(function: Any) -> Any:
    """A Python function of torch with its own check for function modes taken out, so that its operators are seen."""
    names = {**function.__globals__, "has_torch_function": lambda _: False}
    body = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    body.__kwdefaults__ = function.__kwdefaults__
    return body
