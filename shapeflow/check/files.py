"""The Python files of a folder that may hold something to check: found by their text, none is imported here.

>>> [str(path) for path in python_files(Path("models"), exclude=("old",), root=Path.cwd())]
['models/bert.py', 'models/gpt.py']
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from shapeflow.check.config import matches

SKIPPED_FOLDERS = ("__pycache__", "build", "dist", "node_modules", "site-packages", "venv", "env")
SKIPPED_FILES = ("conftest.py", "setup.py", "noxfile.py", "__main__.py")
SHAPES = ("torch", "jaxtyping")
"""A file that imports neither, and has no `forward` of its own, holds nothing that could be checked."""


def python_files(folder: Path, *, exclude: Iterable[str] = (), root: Path | None = None) -> Iterator[Path]:
    """Files below a folder in the order of their names; tests, builds, hidden folders and environments are left out.

    Each is imported to be checked: those that only run as scripts, or mention no tensor, are better left alone.
    """
    exclude = tuple(exclude)
    root = root or Path.cwd()
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = sorted(each for each in folders if not _is_skipped(here / each, exclude, root))
        for name in sorted(files):
            path = here / name
            excluded = any(matches(path, pattern, root) for pattern in exclude)
            if name.endswith(".py") and not excluded and not _is_test(name) and may_hold_targets(path):
                yield path


def _is_skipped(folder: Path, exclude: tuple[str, ...], root: Path) -> bool:
    name = folder.name
    if name.startswith(".") or name in SKIPPED_FOLDERS or (folder / "pyvenv.cfg").is_file():
        return True
    return any(matches(folder, pattern, root) for pattern in exclude)


def _is_test(name: str) -> bool:
    return name in SKIPPED_FILES or name.startswith("test_") or name.endswith("_test.py")


def may_hold_targets(path: Path) -> bool:
    """Whether a file could define a module or a function on tensors. A file that does not parse could."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return True  # importing it will tell what is wrong
    defines = any(isinstance(each, ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign) for each in tree.body)
    nodes = list(ast.walk(tree))
    return defines and any(_imports_shapes(node) or _is_forward(node) for node in nodes)


def _imports_shapes(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in SHAPES for alias in node.names)
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in SHAPES


def _is_forward(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "forward"
