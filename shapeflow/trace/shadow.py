"""Sizes that pass for integers in the user's code.

`isinstance(x.shape[1], int)` is False for a symbolic size, and `len(x)` and `int(H / 2)` have to be numbers, so
beartype would refuse `causal_mask(x.shape[1])` and sizes would be fixed. While a trace runs, the modules whose code
it runs see an `isinstance`, `len`, `max`, `min`, `int` and `float` of ours; torch itself does not.

    >>> with shadowed([models.attention]):
    ...     models.attention.causal_allowed(T, T)        # annotated `t_q: int`
"""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import math
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch

SYMBOLIC = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}
"""For each symbolic type a plain value of the type that it stands for."""


def isinstance_of_sizes(value: Any, classes: Any) -> bool:
    """`isinstance`, with symbolic numbers counted as the numbers that they stand for."""
    classes = _plain_classes(classes)
    if builtins.isinstance(value, classes):
        return True
    plain = SYMBOLIC.get(type(value))
    return plain is not None and builtins.isinstance(plain, classes)


def len_of_sizes(value: Any) -> Any:
    """`len`, symbolic for a tensor."""
    if builtins.isinstance(value, torch.Tensor) and value.dim():
        return value.shape[0]
    return builtins.len(value)


def int_of_sizes(*args: Any) -> Any:
    """`int`, symbolic for sizes, for floats made of them, and for what a tensor holds."""
    value = args[0] if len(args) == 1 else None
    if builtins.isinstance(value, torch.SymInt):
        return value
    if builtins.isinstance(value, torch.SymFloat):
        return value.__trunc__()
    if builtins.isinstance(value, torch.Tensor):
        return int_of_sizes(value.item())
    return int(*args)


def float_of_sizes(*args: Any) -> Any:
    """`float`, symbolic for sizes and for floats made of them."""
    value = args[0] if len(args) == 1 else None
    if builtins.isinstance(value, torch.Tensor):
        return float_of_sizes(value.item())
    return torch.sym_float(value) if type(value) in SYMBOLIC else float(*args)


def _plain_classes(classes: Any) -> Any:
    if builtins.isinstance(classes, tuple):
        return tuple(_plain_classes(cls) for cls in classes)
    return int if classes is int_of_sizes else float if classes is float_of_sizes else classes


def _extreme(plain: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`max` or `min`, symbolic for two or more numbers of which one is a size."""

    def extreme(*args: Any, **options: Any) -> Any:
        kinds = set(map(type, args))
        if len(args) > 1 and not options and torch.SymInt in kinds and kinds <= {int, torch.SymInt}:
            return functools.reduce(symbolic, args)
        return plain(*args, **options)

    return extreme


SHADOWS = {
    "isinstance": isinstance_of_sizes,
    "len": len_of_sizes,
    "max": _extreme(max, torch.sym_max),
    "min": _extreme(min, torch.sym_min),
}
NUMBER_SHADOWS = {"int": int_of_sizes, "float": float_of_sizes}
"""Only for modules that call them and do nothing else with them: `dtype=int`, `type(n) is int` want the class."""

ROUNDINGS = {"floor": "__floor__", "ceil": "__ceil__", "trunc": "__trunc__"}
MATH = ("sqrt", "log", "log2", "exp", "pow", "sin", "cos", "tanh")
"""Functions of `math` that keep the formula of a float made of sizes."""


def _of_formula(name: str, *numbers: Any) -> torch.SymFloat:
    nodes: list[Any] = [number.node.sym_float() if type(number) in SYMBOLIC else None for number in numbers]
    known = next(node for node in nodes if node is not None)
    first, *others = [
        known.wrap_float(float(number)) if node is None else node for node, number in zip(nodes, numbers, strict=True)
    ]
    return torch.SymFloat(first.call(name, *others))


def _math_shadows() -> dict[str, Callable[..., Any]]:
    def keeping(name: str, symbolic: Callable[..., Any]) -> Callable[..., Any]:
        plain = getattr(math, name)
        return lambda *x: symbolic(*x) if any(type(number) in SYMBOLIC for number in x) else plain(*x)

    rounding = {name: keeping(name, lambda x, to=to: getattr(x, to)()) for name, to in ROUNDINGS.items()}
    formulas = {name: keeping(name, lambda *x, name=name: _of_formula(name, *x)) for name in MATH}
    whole_root = keeping("isqrt", lambda x: _of_formula("sqrt", x).__floor__())
    return {**rounding, **formulas, "isqrt": whole_root}


@contextmanager
def shadowed(modules: Iterable[ModuleType]) -> Iterator[None]:
    """Let the code of these modules take symbolic sizes for integers."""
    spaces = {id(space): space for module in modules for space in _name_spaces(module)}
    changed = []
    try:
        for space in spaces.values():
            for name, shadow in _shadows(space).items():
                if name not in space:
                    space[name] = shadow
                    changed.append((space, name))
        with _symbolic_math():
            yield
    finally:
        for space, name in changed:
            space.pop(name, None)


def _shadows(space: dict[str, Any]) -> dict[str, Any]:
    file = space.get("__file__")
    called = _only_called(file) if builtins.isinstance(file, str) else frozenset()
    return {**SHADOWS, **{name: shadow for name, shadow in NUMBER_SHADOWS.items() if name in called}}


@functools.lru_cache(maxsize=1024)
def _only_called(file: str) -> frozenset[str]:
    """Those of `int` and `float` that a file calls or hands to `isinstance`, and uses in no other way."""
    source = "".join(linecache.getlines(file))
    if not any(f"{name}(" in source for name in NUMBER_SHADOWS):
        return frozenset()
    try:
        tree = ast.parse(source)
    except SyntaxError:  # no Python source: a notebook, a template
        return frozenset()
    finder = _Uses()
    finder.visit(tree)
    return frozenset(NUMBER_SHADOWS) - finder.otherwise


class _Uses(ast.NodeVisitor):
    """Finds names that are used otherwise than called, in code that runs when a function does."""

    def __init__(self) -> None:
        self.otherwise: set[str] = set()

    def visit_Call(self, node: ast.Call) -> None:
        if builtins.isinstance(node.func, ast.Name) and node.func.id in (*NUMBER_SHADOWS, "isinstance"):
            if node.func.id == "isinstance":
                self.visit(node.args[0]) if node.args else None
            else:
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    self.visit(argument)
            return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.otherwise |= {node.id} & NUMBER_SHADOWS.keys()

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations were evaluated before the trace, or never."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in [*node.body, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)


def _name_spaces(module: ModuleType) -> Iterator[dict[str, Any]]:
    """The module's own names, and those of the checkers that wrap its functions (jaxtyping keeps them in closures)."""
    yield vars(module)
    seen: set[int] = set()
    for value in list(vars(module).values()):
        members = list(vars(value).values()) if builtins.isinstance(value, type) else [value]
        for member in members:
            if getattr(member, "__module__", None) == module.__name__:
                yield from _closed_over(member, seen)


def _closed_over(value: Any, seen: set[int]) -> Iterator[dict[str, Any]]:
    value = getattr(value, "__func__", value)
    if not builtins.isinstance(value, FunctionType) or id(value) in seen:
        return
    seen.add(id(value))
    if _is_checker(value):
        yield value.__globals__
    for cell in value.__closure__ or ():
        try:
            yield from _closed_over(cell.cell_contents, seen)
        except ValueError:  # a cell that is still empty
            continue


def _is_checker(function: FunctionType) -> bool:
    """Whether the function was written by beartype: its globals are its own, or those of the code that it checks."""
    return "__beartype_get_violation" in function.__code__.co_varnames or hasattr(function, "__beartype_wrapper")


def modules_of(classes: Iterable[type]) -> list[ModuleType]:
    """The modules that define these classes, and every module of the user's own: who knows which of them runs."""
    names = {cls.__module__ for root in classes for cls in root.__mro__}
    names = {name for name in names if name.partition(".")[0] not in FOREIGN}
    names |= {name for name, module in list(sys.modules.items()) if _is_own(name, module)}
    return [module for name in sorted(names) if builtins.isinstance(module := sys.modules.get(name), ModuleType)]


FOREIGN = frozenset({"torch", "builtins", "typing", "abc", "shapeflow"})
INSTALLED = (*{sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}, "site-packages", "dist-packages")


def _is_own(name: str, module: object) -> bool:
    """Whether a module is the user's own code: neither installed nor Python's."""
    if name.partition(".")[0] in FOREIGN:
        return False
    file = getattr(module, "__file__", None)
    return file is not None and not _is_installed(file)


@functools.cache  # thousands of modules are asked about at each run of a model
def _is_installed(file: str) -> bool:
    return any(part in file for part in INSTALLED)


@contextmanager
def _symbolic_math() -> Iterator[None]:
    """`math.sqrt(T)` keeps its formula instead of fixing T."""
    shadows = _math_shadows()
    originals = {name: getattr(math, name) for name in shadows}
    for name, shadow in shadows.items():
        setattr(math, name, shadow)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(math, name, original)
