"""The dtypes that a spec can name, as text: nothing here imports torch.

>>> nearest("long")
'int64'
"""

from __future__ import annotations

import difflib
import re

# The order is the preference: jaxtyping's `Float` stands for float32, `Int` for int64, `UInt` for uint8.
DTYPES: tuple[str, ...] = (
    *("float32", "int64", "bool", "complex64", "uint8"),
    *("float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    *("int32", "int16", "int8", "int4", "int2"),
    *("uint16", "uint32", "uint64", "uint4", "uint2"),
    *("complex32", "complex128"),
)
DEFAULT_DTYPE = "float32"

_COMMON_NAMES = {  # torch's and C's names, that torch spells in two ways
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int64",  # Python's; torch.int would be int32
    "integer": "int64",
    "long": "int64",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "boolean": "bool",
    "complex": "complex64",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "chalf": "complex32",
}
_SHORT_FAMILIES = {"f": "float", "fp": "float", "bf": "bfloat", "i": "int", "u": "uint", "ui": "uint", "c": "complex"}


def nearest(name: str) -> str:
    """The dtype that `name` probably means (`long`, `f32`, `torch.int64`, `flaot32`), or "" when none is near."""
    name = name.strip().lower().rpartition(".")[2]
    short = re.fullmatch(r"([a-z]+)(\d+)", name)
    if short and short[1] in _SHORT_FAMILIES:
        name = _SHORT_FAMILIES[short[1]] + short[2]
    name = _COMMON_NAMES.get(name, name)
    if name in DTYPES:
        return name
    near = difflib.get_close_matches(name, [*DTYPES, *_COMMON_NAMES], n=1)
    return _COMMON_NAMES.get(near[0], near[0]) if near else ""
