"""What is to be checked in a file: the modules, factories and annotated functions that are written there.

>>> [(each.name, each.kind, each.line) for each in targets_in("models/gpt.py")]
[('toy', 'factory', 20), ('GPT', 'class', 41), ...]

A class whose constructor needs arguments is taken from a model of the same file that holds one, or built of symbols
(`symbolic.py`), or with sizes that its constructor takes (`sizing.py`).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeAlias

from torch import nn

from shapeflow.check.sizing import Sized, filled, sized
from shapeflow.check.symbolic import symbolic
from shapeflow.dims.annotation import signature_of, specs_in
from shapeflow.errors import InputError, SpecError, TargetError
from shapeflow.importer import describe, import_module
from shapeflow.target import Target, load

Kind: TypeAlias = Literal["instance", "factory", "class", "function"]


@dataclass(frozen=True, slots=True)
class Found:
    """One target of a file. `needs` are the arguments that its constructor cannot do without."""

    file: str
    name: str
    kind: Kind
    value: object
    line: int
    needs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """How the command line names it."""
        return f"{self.file}:{self.name}"


def targets_in(file: str) -> list[Found]:
    """The targets of a file, in the order in which they stand. Raises TargetError when it does not import."""
    module = import_module(file)
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (SyntaxError, ValueError) as error:
        raise TargetError(f"{file} does not parse: {describe(error)}") from error
    lines = dict(_definitions(tree.body))
    found = (_found(file, module, name, line) for name, line in lines.items() if not name.startswith("_"))
    targets: dict[int, Found] = {}
    for each in sorted((each for each in found if each is not None), key=lambda each: each.line):
        targets.setdefault(id(each.value), each)  # a second name for the same is no second target
    return list(targets.values())


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Names that the file itself defines, with their lines; below `if` and `try` as well."""
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            yield statement.name, statement.lineno
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement.lineno) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.lineno
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            parts = ("body", "orelse", "handlers", "finalbody")
            inner = [each for part in parts for each in getattr(statement, part, [])]
            for each in inner:
                yield from _definitions(each.body if isinstance(each, ast.ExceptHandler) else [each])


def _found(file: str, module: ModuleType, name: str, line: int) -> Found | None:
    """The target that a name is, or None: what was deleted, constants, classes of other kinds, plain functions."""
    value = vars(module).get(name)
    if isinstance(value, nn.Module):
        return Found(file, name, "instance", value, line)
    if getattr(value, "__module__", None) != module.__name__:
        return None  # another name for something from elsewhere
    if isinstance(value, type):
        if not issubclass(value, nn.Module) or value.forward is nn.Module.forward or inspect.isabstract(value):
            return None
        return Found(file, name, "class", value, line, _needs(value))
    if not inspect.isfunction(inspect.unwrap(value) if callable(value) else value):
        return None
    kind = _kind_of_function(value)
    return None if kind is None else Found(file, name, kind, value, line)


def _kind_of_function(function: object) -> Kind | None:
    try:
        signature = signature_of(function)  # type: ignore[arg-type]  # a function, or a wrapper of one
        if any(specs_in(each.annotation) is not None for each in signature.parameters.values()):
            return "function"
    except SpecError:
        return "function"  # the check tells what is wrong with its annotation
    except InputError:
        return None  # an annotation that does not resolve
    result = signature.return_annotation
    is_maker = inspect.isclass(result) and issubclass(result, nn.Module)
    return "factory" if is_maker and not _required(signature) else None


def _needs(kind: type) -> tuple[str, ...]:
    try:
        return _required(inspect.signature(kind))
    except (TypeError, ValueError):  # inspect's answer for what is written in C
        return ()


def _required(signature: inspect.Signature) -> tuple[str, ...]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = signature.parameters.values()
    return tuple(each.name for each in parameters if each.default is each.empty and each.kind not in variadic)


@dataclass(frozen=True, slots=True)
class Way:
    """A target and, where it got arguments that nobody gave, which: `guess` is said to the reader.

    A `symbolic` one holds for all sizes; only the numbers beside the symbols are guessed. `owner` is the model of the
    same file that it is taken from. `values` are guessed for the arguments of a function that are no tensors.
    """

    target: Target
    guess: str = ""
    symbolic: bool = False
    owner: str = ""
    values: Mapping[str, object] = field(default_factory=dict)


def made(found: Found, owners: dict[str, nn.Module]) -> Iterator[Way]:
    """Ways to make a target, the best first: the next one is for when the model of the last does not run at all.

    `owners` are the models of the same file that are made already, by their names. Raises TargetError when there is
    no way.
    """
    if not found.needs:
        target = load(found.text)
        values = filled(target.signature) if found.kind == "function" else Sized({})
        yield Way(target, str(values), values=values.arguments)
        return
    inside = _inside(found, owners)
    if inside is not None:
        yield inside
        return
    yield from _guessed(found)


def _guessed(found: Found) -> Iterator[Way]:
    """Built of symbols, then with sizes that the constructor takes; when it takes none, what it said to the first."""
    assert isinstance(found.value, type)
    refused: TargetError | None = None
    taken = False
    for guess, each in enumerate(sized(found.value)):
        of_symbols = symbolic(found.value, each.arguments) if guess == 0 else None
        if of_symbols is not None:
            target = Target(found.text, of_symbols.recipe)
            yield Way(target, str(of_symbols) if of_symbols.numbers else "", symbolic=True)
        try:
            target = load(found.text, arguments=each.arguments)
        except TargetError as error:
            refused = refused or error
            continue
        taken = True
        yield Way(target, str(each))
    if refused is not None and not taken:
        raise refused


def _inside(found: Found, owners: dict[str, nn.Module]) -> Way | None:
    for name, owner in owners.items():
        for path, part in owner.named_modules():
            if type(part) is found.value:
                note = f"{found.name} is taken from {name}" + (f": {path}" if path else "")
                return Way(Target(found.text, part, (note,)), owner=name if path else "")
    return None
