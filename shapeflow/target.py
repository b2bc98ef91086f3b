"""Turns a target into a model or a function to trace.

    load("models/gpt.py:toy")                                  an instance, or a factory that needs no arguments
    load("models.gpt:GPT", arguments={"d_model": 32})          a class
    load("torchvision:resnet50").model                         models of torchvision, timm, transformers by name

What is built here is built on the meta device, where weights take no memory, and put in evaluation mode.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import nn

from shapeflow import zoo
from shapeflow.dims.annotation import signature_of, specs_in
from shapeflow.errors import InputError, TargetError
from shapeflow.importer import closest, describe, import_module
from shapeflow.torch_private import real_module
from shapeflow.trace.construct import Recipe
from shapeflow.undrawn import Undrawn

Traceable: TypeAlias = nn.Module | Recipe | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What a target text names; `notes` say what a reader should know about how it was made."""

    text: str
    value: Traceable
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> nn.Module:
        """The model; a `TargetError` when the target is a function."""
        if not isinstance(self.value, nn.Module):
            raise TargetError(f"{self.text} is a function to trace, no model")
        return self.value

    @property
    def signature(self) -> inspect.Signature:
        """Of the function or the model's `forward`; without parameters where it cannot be known."""
        inner = self.value.built().module if isinstance(self.value, Recipe) else real_module(self.value)
        return _signature(inner.forward if isinstance(inner, nn.Module) else inner) or inspect.Signature()


def load(text: str, *, arguments: Mapping[str, object] | None = None, has_inputs: bool = False) -> Target:
    """The model or the function that `text` names.

    `arguments` go to a class or a factory. A plain function is traced, rather than called for a model, when
    its annotations are tensors' or when there are inputs for the arguments that it needs.
    """
    arguments = arguments or {}
    found = _find(text)
    if isinstance(found, nn.Module):
        if arguments:
            raise TargetError(f"{text} is a model already: --with is for a class or a function that makes one")
        return Target(text, found)
    maker = zoo.builder_of(found) or found
    if not callable(maker) or (isinstance(maker, type) and not issubclass(maker, nn.Module)):
        raise TargetError(f"{text} is {_kind(maker)}: it has to be an nn.Module, a class of one, or a function")
    if not isinstance(maker, type) and _is_traced(maker, arguments, has_inputs=has_inputs):
        if arguments:
            example = f"{next(iter(arguments))}:=2"
            raise TargetError(f"{text} is a function to trace: its arguments are inputs, as in {example}")
        return Target(text, maker)
    return _build(text, maker, arguments)


def maker_of(text: str) -> Callable[..., Any]:
    """The class or the factory that `text` names, uncalled: for `construct`. Raises TargetError for anything else."""
    found = _find(text)
    maker = zoo.builder_of(found) or found
    if isinstance(found, nn.Module) or not callable(maker):
        raise TargetError(
            f"{text} is {_kind(found)}: names for arguments need a class or a function that makes a model"
        )
    return maker


def _kind(found: object) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}"
    if isinstance(found, ModuleType):
        return f"the module {found.__name__}"
    return f"an object of type {type(found).__name__}"


def _find(text: str) -> object:
    where, colon, name = text.rpartition(":")
    if not colon or not name or not where:
        raise _no_name(where or name)
    found = zoo.find(where, name)
    if found is not None:
        return found
    found, path = import_module(where), where
    for part in name.split("."):
        if not hasattr(found, part):
            raise _missing(found, part, path)
        found, path = getattr(found, part), f"{path}:{part}" if path == where else f"{path}.{part}"
    return found


def _no_name(where: str) -> TargetError:
    form = "a target is path/to/file.py:name or package.module:name"
    if not where.endswith(".py"):
        path = Path(where)
        if path.is_file():
            return TargetError(f"{where} is no Python file: {form}")
        if path.suffix or "/" in where:
            return TargetError(f"no such file or folder: {where}; {form}")
        return TargetError(f"no colon in the target {where!r}: {form}")
    choices = [f"{where}:{name}" for name in _candidates(import_module(where))]
    return TargetError(f"no name in the target {where!r}: {form}{_listing(choices)}")


def _missing(owner: object, name: str, path: str) -> TargetError:
    names = [each for each in dir(owner) if not each.startswith("_")]
    choices = [child for child, _ in owner.named_children()] if isinstance(owner, nn.Module) else []
    if isinstance(owner, ModuleType):
        choices = _candidates(owner)
    return TargetError(f"{path} has no {name}{closest(name, names)}{_listing(choices)}")


def _listing(choices: list[str]) -> str:
    more = ", ..." if len(choices) > 12 else ""
    return f"\nthere are: {', '.join(choices[:12])}{more}" if choices else ""


def _candidates(module: ModuleType) -> list[str]:
    """Names in a module that can be targets: models, and what makes one or takes tensors and was written there."""

    def fits(value: object) -> bool:
        if isinstance(value, nn.Module):
            return True
        is_own = getattr(value, "__module__", None) == module.__name__
        return is_own and (inspect.isfunction(value) or (isinstance(value, type) and issubclass(value, nn.Module)))

    return [name for name, value in vars(module).items() if not name.startswith("_") and fits(value)]


def _is_traced(function: Callable[..., Any], arguments: Mapping[str, object], *, has_inputs: bool) -> bool:
    """Whether to trace a function, or to call it for the model that it makes."""
    signature = _signature(function)
    if signature is None:  # a builtin: no factory that we could check
        return True
    if inspect.isclass(signature.return_annotation) and issubclass(signature.return_annotation, nn.Module):
        return False
    if any(_is_tensor(parameter.annotation) for parameter in signature.parameters.values()):
        return True
    return has_inputs and bool(_missing_arguments(signature, arguments))


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return signature_of(function)
    except InputError:  # an annotation that does not resolve: a factory does not need it, the tracer will say so
        return inspect.signature(function)
    except (TypeError, ValueError):  # inspect's answer for what is written in C
        return None


def _is_tensor(annotation: object) -> bool:
    if inspect.isclass(annotation) and issubclass(annotation, torch.Tensor):
        return True
    return specs_in(annotation) is not None or any(map(_is_tensor, typing.get_args(annotation)))


def _missing_arguments(signature: inspect.Signature, arguments: Mapping[str, object]) -> list[str]:
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in arguments
    ]


def _build(text: str, maker: Callable[..., Any], arguments: Mapping[str, object]) -> Target:
    _check_arguments(text, maker, arguments)
    notes: tuple[str, ...] = ()
    try:
        with Undrawn(), torch.device("meta"):
            model = maker(**arguments)
    except TargetError:  # from the zoo: already says what is wrong
        raise
    except Exception as error:  # any constructor may need real numbers; what is wrong on both devices is raised below
        notes = (f"built with real weights, as its constructor does not run on the meta device: {describe(error)}",)
        model = _build_for_real(text, maker, arguments)
    if not isinstance(model, nn.Module):
        raise TargetError(
            f"{text} returned {_kind(model)}, no nn.Module; a function to trace has inputs or annotations"
        )
    return Target(text, model.eval(), notes)


def _build_for_real(text: str, maker: Callable[..., Any], arguments: Mapping[str, object]) -> object:
    try:
        return maker(**arguments)
    except Exception as error:  # whatever the user's constructor raises: it is shown, with its line
        given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        raise TargetError(f"{text} could not be built with ({given}): {describe(error)}") from error


def _check_arguments(text: str, maker: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    signature = _signature(maker)
    if signature is None:
        return
    missing = _missing_arguments(signature, arguments)
    if missing:
        raise TargetError(
            f"{text} needs arguments: {', '.join(missing)}\n"
            f"give them with: --with {','.join(f'{name}=...' for name in missing)}\n"
            f"or {_instead(maker, missing[0])}"
        )
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    for name in arguments:
        if name not in signature.parameters and not takes_any:
            raise TargetError(f"{text} has no argument {name}{closest(name, signature.parameters)}")


def _instead(maker: Callable[..., Any], first: str) -> str:
    if isinstance(maker, (type, functools.partial)):
        return "name a function that needs none"
    return f'if it is a function on tensors, give its inputs: {first}="B T"'
