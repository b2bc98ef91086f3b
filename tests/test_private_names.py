"""Names that torch keeps for itself stand in one file, so that a new torch breaks no other."""

import io
import re
import tokenize
from pathlib import Path

import pytest

import shapeflow

ROOT = Path(shapeflow.__file__).parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if path.name != "torch_private.py")
OWN = re.compile(r"\btorch(?:\.\w+)*\._(?!_)\w+|\._(?:cdata|opname|is_view|base|overloadname)\b")


def code(text: str) -> str:
    """The text without strings and comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kept = (each.string for each in tokens if each.type not in (tokenize.STRING, tokenize.COMMENT))
    return " ".join(kept).replace(" . ", ".")


@pytest.mark.parametrize("file", FILES)
def test_private_names_of_torch_are_in_one_file(file: str) -> None:
    assert OWN.findall(code((ROOT / file).read_text())) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from torch.utils._pytree import tree_leaves", True),
        ("with torch._C.DisableTorchFunction(): pass", True),
        ("key = x.untyped_storage()._cdata", True),
        ("torch.Tensor.__torch_function__", False),
        ("# torch._check", False),
    ],
)
def test_they_are_found(line: str, found: bool) -> None:
    assert bool(OWN.search(code(line))) == found
