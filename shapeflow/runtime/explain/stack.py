"""The frames between whoever called and what raised, and the modules that they run in.

>>> stack = stack_of(error)
>>> stack.place.path, stack.user.line
('blocks.1.attn', 41)
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torch import nn

from shapeflow.trace.result import Location
from shapeflow.trace.source import is_tool, location

RUNNERS = ("_pytest", "pluggy", "xdist", "unittest", "importlib", "threading", "concurrent")
"""Packages that call the user's code."""
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule")
"""Modules around a model whose names in front of a path say nothing of the model."""


@dataclass(frozen=True, slots=True)
class Step:
    """A frame on the way to the error. `module` is what its first argument is, where that is one.

    `above` marks frames outside of the block that explains: they are still running, the error has not reached them.
    """

    frame: FrameType
    line: int
    instruction: int
    above: bool = False

    @property
    def code(self) -> CodeType:
        return self.frame.f_code

    @property
    def user(self) -> bool:
        """Whether it is the user's own code."""
        name = self.frame.f_globals.get("__name__") or ""
        if self.code.co_name == "__torch_function__" or name.partition(".")[0] in RUNNERS:
            return False
        return not self.code.co_filename.startswith("<frozen") and not is_tool(self.code, name)

    @property
    def ours(self) -> bool:
        """Whether it is code of `shapeflow.testing`, which is given modules and is none."""
        return (self.frame.f_globals.get("__name__") or "").startswith("shapeflow.testing")

    @property
    def installed(self) -> bool:
        """Whether it is a library's code."""
        return "site-packages" in self.code.co_filename

    @property
    def module(self) -> nn.Module | None:
        """The module whose method this is."""
        code = self.code
        if not code.co_argcount or self.ours:
            return None
        first = self.frame.f_locals.get(code.co_varnames[0])
        return first if issubclass(type(first), nn.Module) else None  # a proxy may do anything when it is asked

    @property
    def raises(self) -> bool:
        """Whether it stands at a `raise` or `assert`, not at an operator that failed."""
        return dis.opname[self.code.co_code[self.instruction]] in ("RAISE_VARARGS", "RERAISE")

    @property
    def location(self) -> Location:
        found = location((self.code, self.line))
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a model: the outermost module, the innermost one, and the path from one to the other."""

    root: nn.Module | None = None
    module: nn.Module | None = None
    path: str = ""

    def __str__(self) -> str:
        """`blocks.1.attn (Attention of GPT)`, or `GPT` itself."""
        if self.root is None or self.module is None:
            return ""
        root, kind = type(self.root).__name__, type(self.module).__name__
        return f"{self.path} ({kind} of {root})" if self.path else root


@dataclass(frozen=True, slots=True)
class Stack:
    """All steps, outermost first."""

    steps: tuple[Step, ...]

    @property
    def own(self) -> tuple[Step, ...]:
        """The steps that the error went through."""
        return tuple(step for step in self.steps if not step.above)

    @property
    def user(self) -> Step | None:
        """The innermost step of the user's code."""
        return next((step for step in reversed(self.own) if step.user), None)

    @property
    def inside(self) -> tuple[Step, ...]:
        """The steps below the user's: torch's, or those of a check."""
        user = self.user
        return self.own if user is None else self.own[self.own.index(user) + 1 :]

    @property
    def raises(self) -> bool:
        """Whether the error comes from a `raise` or `assert`, not from an operator."""
        return bool(self.own) and self.own[-1].raises

    @property
    def ours(self) -> bool:
        """Whether the error is one of an assertion of `shapeflow.testing`."""
        return self.raises and self.own[-1].ours

    @property
    def modules(self) -> list[nn.Module]:
        """The modules, outermost first, each call once."""
        found: list[nn.Module] = []
        for step in self.steps:
            module = step.module
            if module is not None and not (found and found[-1] is module):
                found.append(module)
        return [module for module in found if type(module).__name__ not in WRAPPERS]

    @property
    def place(self) -> Place:
        chain = self.modules
        return Place(chain[0], chain[-1], path_along(chain)) if chain else Place()


def stack_of(error: BaseException) -> Stack:
    """The steps of an error, from the outermost caller on."""
    own = tuple(_own(error))
    return Stack((*reversed(list(_callers(own[0].frame))), *own)) if own else Stack(())


def _own(error: BaseException) -> Iterator[Step]:
    trace = error.__traceback__
    while trace is not None:
        yield Step(trace.tb_frame, trace.tb_lineno, trace.tb_lasti)
        trace = trace.tb_next


def _callers(frame: FrameType) -> Iterator[Step]:
    """Who called a frame, innermost first."""
    caller = frame.f_back
    while caller is not None:
        yield Step(caller, caller.f_lineno, caller.f_lasti, above=True)
        caller = caller.f_back


def path_along(chain: list[nn.Module]) -> str:
    """The path of the last module from the first: by identity, step by step, as one module may stand in two places."""
    path, around = "", chain[0]
    for module in chain[1:]:
        if module is chain[0]:
            path, around = "", module  # called anew
            continue
        below = _path_in(around, module)
        if below is None:
            path, below = "", _path_in(chain[0], module)
        path = ".".join(part for part in (path, below or f"<{type(module).__name__}>") if part)
        around = module
    return path


def _path_in(root: nn.Module, module: nn.Module) -> str | None:
    """The path of a module below another; modules that a plain list or dictionary holds have one too."""
    found = next((path for path, each in root.named_modules(remove_duplicate=False) if each is module), None)
    if found is not None:
        return found
    for path, each in root.named_modules():
        for name, held in vars(each).items():
            if not name.startswith("_") and (key := _key_in(held, module)) is not None:
                return ".".join(part for part in (path, f"{name}[{key!r}]") if part)
    return None


def _key_in(held: Any, module: nn.Module) -> Any:
    if isinstance(held, list | tuple):
        held = dict(enumerate(held))
    return next((key for key, each in held.items() if each is module), None) if isinstance(held, dict) else None
