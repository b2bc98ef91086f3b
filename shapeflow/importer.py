"""Imports the module that a target names: a dotted name, or a file, as a member of its package where it has one.

>>> import_module("json").__name__
'json'
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from shapeflow.errors import TargetError
from shapeflow.trace.source import location, place_of_error


def import_module(where: str) -> ModuleType:
    """The module at a path (`models/gpt.py`) or of a dotted name (`models.gpt`)."""
    if where.endswith(".py") or os.sep in where or "/" in where or Path(where).is_file():
        return _import_file(Path(where))
    _put_first(Path.cwd())
    return _import_name(where)


def closest(name: str, names: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no name is near."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def describe(error: BaseException) -> str:
    """An error of the user's own code on one line, with the place where it was raised."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind}: {error.msg} ({error.filename}:{error.lineno})"
    lines = str(error).strip().splitlines()
    place = location(place_of_error(error.__traceback__))
    return ": ".join([kind, *lines[-1:]]) + (f" ({place})" if place else "")


def _import_file(path: Path) -> ModuleType:
    file = _existing_file(path).resolve()
    root, name = _package_root(file)
    _put_first(root)
    top = name.partition(".")[0]
    package = root / top / "__init__.py"
    holder = sys.modules.get(top)
    if "." not in file.stem and (holder is None or _is_at(holder, package if package.is_file() else file)):
        return _import_name(name)
    if root == file.parent:
        return _import_apart(name, file)
    raise TargetError(f"{path} belongs to a package {top}, but that name is taken by {_file_of(holder)}")


def _existing_file(path: Path) -> Path:
    if path.is_dir() and (path / "__init__.py").is_file():
        return path / "__init__.py"
    if path.is_file() and path.suffix == ".py":
        return path
    if path.with_name(path.name + ".py").is_file():
        raise TargetError(f"no such file: {path}; did you mean {path}.py?")
    if path.exists():
        raise TargetError(f"{path} is no Python file")
    folder = path.parent
    if not folder.is_dir():
        raise TargetError(f"no such file: {path} (there is no folder {folder} in {Path.cwd()})")
    suggestion = closest(str(path), (str(file) for file in folder.glob("*.py")))
    raise TargetError(f"no such file: {path}{suggestion or f' (in {Path.cwd()})'}")


def _package_root(file: Path) -> tuple[Path, str]:
    """The folder that has to be on `sys.path`, and the module's name seen from there."""
    parts = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _put_first(folder: Path) -> None:
    """As `python file.py` does: what lies beside the file wins over what is installed."""
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()


def _is_at(module: ModuleType, file: Path) -> bool:
    return Path(_file_of(module)).resolve() == file


def _file_of(module: ModuleType | None) -> str:
    """Modules that are built into Python have no `__file__`, namespace packages have None."""
    return getattr(module, "__file__", None) or "Python"


def _import_apart(name: str, file: Path) -> ModuleType:
    """A lone file called like a module that is loaded already (`types.py`, `main.py`): imported under another name."""
    spec = importlib.util.spec_from_file_location(f"shapeflow_target_{name}", file)
    assert spec is not None and spec.loader is not None, file
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises: it is shown, with its line
        del sys.modules[spec.name]
        raise TargetError(f"{file} does not import: {describe(error)}") from error
    return module


def _import_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise TargetError(f"no module named {error.name}{closest(error.name, _siblings(error.name))}") from error
        raise TargetError(f"{name} does not import: {describe(error)}") from error
    except (Exception, SystemExit) as error:  # whatever the user's module raises: it is shown, with its line
        raise TargetError(f"{name} does not import: {describe(error)}") from error


def _siblings(name: str) -> list[str]:
    """Modules that could have been meant by one that is missing: those beside it."""
    parent, _, _ = name.rpartition(".")
    paths = getattr(sys.modules.get(parent), "__path__", None)
    prefix = f"{parent}." if parent else ""
    return [prefix + module.name for module in pkgutil.iter_modules(paths if parent else None)]
