"""Imports packages with every function and class enforced: the import hook behind `sf.enforce`.

Each module is compiled with a decorator on all that it defines, at the bottom of a function's decorators, where the
annotations still are, and on top of a class', behind `@dataclass`. Nothing is written into `__pycache__`.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source
from types import CodeType, ModuleType
from typing import Any

from shapeflow.errors import EnforceError
from shapeflow.runtime.plan import Options, Plan
from shapeflow.runtime.resolve import complaint
from shapeflow.runtime.switch import covers, is_off_for_good
from shapeflow.runtime.typed import decorator_of, settled

DECORATOR = "__shapeflow_typed__"
_LEFT_ALONE = ("no_type_check", "overload", "jit", "script", "script_method", "script_if_tracing")
"""Decorators that read a function's source, or say that it is not to be checked."""


class EnforceWarning(UserWarning):
    """An annotation that is not checked, as its names exist for type checkers only."""


@dataclass(eq=False)
class Finder(MetaPathFinder):
    """Gives the modules of some packages a loader that enforces them, whoever finds them."""

    packages: tuple[str, ...]
    options: Options
    loaded: set[str] = field(default_factory=set)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not any(covers(package, name) for package in self.packages) or is_off_for_good(name):
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = None if isinstance(finder, Finder) or find is None else find(name, path, target)
            if spec is not None:
                if isinstance(spec.loader, SourceFileLoader):
                    spec.loader = Loader(spec.loader.name, spec.loader.path, self)
                return spec
        return None


class Loader(SourceFileLoader):
    """A loader of source files that compiles them with our decorator."""

    def __init__(self, name: str, path: str, finder: Finder) -> None:
        super().__init__(name, path)
        self.finder = finder

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        tree = ast.parse(decode_source(data), path)
        _decorate(tree)
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def exec_module(self, module: ModuleType) -> None:
        late: list[Any] = []
        vars(module)[DECORATOR] = decorator_of(self.finder.options, late)
        super().exec_module(module)
        self.finder.loaded.add(module.__name__)
        _first_in_line(self.finder)
        for wrapper in late:
            _settle(wrapper, self.get_source(module.__name__) or "")


def _first_in_line(finder: Finder) -> None:
    """A package that installs a hook for its own modules, as jaxtyping's, has put it before ours."""
    if finder in sys.meta_path and sys.meta_path[0] is not finder:
        sys.meta_path.remove(finder)
        sys.meta_path.insert(0, finder)


def _settle(wrapper: Any, source: str) -> None:
    """At the end of its module, a function's annotations name what exists, or are reported."""
    plan: Plan = wrapper.__shapeflow_plan__
    if not plan.unread:
        return  # called while the module ran
    only_checked = _for_type_checkers(source)
    for each in plan.unread.values():
        if each.missing in only_checked:
            why = f"it is not checked: {each.missing} is imported for type checkers only"
            warnings.warn(EnforceWarning(complaint(wrapper.__wrapped__, each, why)), stacklevel=2)
    settled(wrapper, skip=only_checked)


def _for_type_checkers(source: str) -> frozenset[str]:
    """The names that a module imports under `if TYPE_CHECKING`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            for each in (inner for statement in node.body for inner in ast.walk(statement)):
                if isinstance(each, ast.Import | ast.ImportFrom):
                    found |= {alias.asname or alias.name.partition(".")[0] for alias in each.names}
    return frozenset(found)


def _decorate(tree: ast.Module) -> None:
    """Put our decorator on every function and class, but for those whose own decorators read their source."""
    for node in _definitions(tree):
        ours = ast.copy_location(ast.Name(DECORATOR, ast.Load()), node)
        at = 0 if isinstance(node, ast.ClassDef) else len(node.decorator_list)
        node.decorator_list.insert(at, ours)


def _definitions(tree: ast.AST) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_last_name(each) in _LEFT_ALONE for each in node.decorator_list):
                continue
            found.append(node)
        found += _definitions(node)
    return found


def _last_name(node: ast.expr) -> str:
    """`jit` of `@triton.jit(...)`."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def install(packages: tuple[str, ...], options: Options) -> Finder:
    """Enforce packages from their next import on. Raises EnforceError where one was imported already."""
    ours = [finder for finder in sys.meta_path if isinstance(finder, Finder)]
    for package in packages:
        module = sys.modules.get(package)
        if module is not None and not any(package in finder.loaded for finder in ours) and not is_off_for_good(package):
            raise EnforceError(_imported_already(package, module))
    finder = Finder(packages, options)
    sys.meta_path.insert(0, finder)
    return finder


def uninstall(finder: Finder) -> None:
    """Enforce what is imported from now on no more; what was imported stays enforced."""
    if finder in sys.meta_path:
        sys.meta_path.remove(finder)


def _imported_already(package: str, module: ModuleType) -> str:
    where = getattr(module, "__file__", None)
    return (
        f"{package} is imported already{f' (from {where})' if where else ''}, so its functions run without checks: "
        f'call sf.enforce("{package}") before the first import of it, as the first lines of the program or of '
        f"conftest.py do, or put @sf.typed on single functions and classes"
    )
