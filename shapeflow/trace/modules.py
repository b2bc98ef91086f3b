"""Which module runs: the stack of module calls around each operator, and the names that modules bring.

>>> with stack.watching():
...     model(ids)          # each nn.Module call pushes a Scope("blocks.0.attn", "MultiHeadSelfAttention", 0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from shapeflow.dims.env import DimEnv
from shapeflow.dims.expr import Expr
from shapeflow.torch_private import class_of
from shapeflow.trace.boundaries import Boundaries
from shapeflow.trace.names import Names, dim_names, forward_specs
from shapeflow.trace.rescue import NOTHING, Rescue
from shapeflow.trace.result import ModuleInfo, Scope
from shapeflow.trace.traced import size_key


class ModuleStack:
    """`scopes` are the calls around the running code, outermost first; `fx_stack` is the same as torch.fx keeps it."""

    def __init__(self, root: nn.Module | None) -> None:
        self.paths: dict[int, str] = {}
        self.foreign: dict[str, nn.Module] = {}
        self.calls: Counter[str] = Counter()
        self.scopes: tuple[Scope, ...] = ()
        self.fx_stack: dict[str, tuple[str, type]] = {}
        self.boundaries: Boundaries | None = None
        self.rescue: Rescue | None = None
        self.failing: tuple[Scope, ...] | None = None
        if root is not None:
            self.follow(root)

    def follow(self, root: nn.Module) -> None:
        """Take the paths from this module on."""
        self.paths = {id(module): path for path, module in root.named_modules()}
        self.fx_stack = {"": ("", type(root))}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See every module call until the end of the block."""
        original = nn.Module.__call__

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            outer = self.scopes, self.fx_stack
            self._enter(module)
            leave = self._boundary(module, args, kwargs)
            try:
                result = original(module, *args, **kwargs)
                if leave is not None:
                    leave(result)
                return result
            except BaseException as error:  # whatever it is, the message names the module; it goes on as it came
                self._keep_failing_scopes()
                result = self._rescued(original, module, args, kwargs, error)
                if result is NOTHING:
                    raise
                return result
            finally:
                self.scopes, self.fx_stack = outer

        self.failing = None
        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]

    def _rescued(self, run: Any, module: nn.Module, args: Any, kwargs: Any, error: BaseException) -> Any:
        """What to go on with behind a module that raised, if anybody is there to say; the root itself has failed."""
        if self.rescue is None or not self.scopes or not isinstance(error, Exception):
            return NOTHING
        return self.rescue(run, module, args, kwargs, error)

    def _keep_failing_scopes(self) -> None:
        """An exception unwinds the stack: the innermost one is kept, for the message."""
        if self.failing is None:
            self.failing = self.scopes

    def _enter(self, module: nn.Module) -> None:
        path = self.paths.get(id(module))
        if path is None:
            path = self._adopt(module)
        number = self.calls[path]
        self.calls[path] = number + 1
        if path:
            self.scopes = (*self.scopes, Scope(path, class_of(module).__name__, number))
            self.fx_stack = {**self.fx_stack, path: (path, class_of(module))}

    def _adopt(self, module: nn.Module) -> str:
        """A path for a module that the model does not register (kept in a plain list, or made in forward)."""
        parent = self.scopes[-1].path + "." if self.scopes else ""
        path = f"{parent}{type(module).__name__}"
        taken = set(self.paths.values())
        path = path if path not in taken else f"{path}_{len(self.foreign)}"
        for below, inner in module.named_modules(prefix=path):
            self.paths.setdefault(id(inner), below)
        self.foreign[path] = module
        return self.paths[id(module)]

    # Names

    def _boundary(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        """Show the arguments of a module with an annotated forward to `boundaries`; and who is to see the result."""
        boundaries = self.boundaries
        if boundaries is None:
            return None
        specs = forward_specs(type(module))
        if isinstance(specs, str):
            boundaries.names.unreadable.setdefault(type(module).__qualname__, specs)
            return None
        if specs is None:
            return None
        owner = type(module).__qualname__
        call = boundaries.enter(owner, specs, args, kwargs, module)
        return lambda result: boundaries.leave(owner, specs, result, call, module)


def pin_attributes(modules: Iterable[nn.Module], env: DimEnv, names: Names) -> None:
    """In modules with annotated methods, an integer attribute that bears a dim's name reads as a symbol of that name.

    `view(b, t, self.n_heads, self.d_head)` then carries the names by origin. The caller puts the attributes back.
    One that is made of symbols already, `d_model // n_heads`, is only noted.
    """
    for module in modules:
        for name in sorted(dim_names(type(module)) & vars(module).keys()):
            value = vars(module)[name]
            if isinstance(value, torch.SymInt):
                names.note_formula(name, size_key(value))
            if type(value) is int and value > 0:
                names.values.setdefault(name, value)
                vars(module)[name] = env.symint(Expr.symbol(name, value))


def module_infos(root: nn.Module | None, stack: ModuleStack) -> dict[str, ModuleInfo]:
    """Every module that the root registers, and those that ran without being registered."""
    trees = [] if root is None else [("", root)]
    found: dict[str, ModuleInfo] = {}
    for prefix, tree in [*trees, *stack.foreign.items()]:
        for path, module in tree.named_modules(prefix=prefix, remove_duplicate=False):
            unique = {id(each): each.numel() for each in module.parameters() if not nn.parameter.is_lazy(each)}
            called = stack.calls[stack.paths.get(id(module), path)]
            found[path] = ModuleInfo(path, class_of(module).__name__, size_key(sum(unique.values())), called)
    return found
