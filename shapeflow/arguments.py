"""Command-line text to values: sizes, keyword arguments, and inputs with names, fields and plain Python values.

>>> parse_sizes(["B=2,T=5"])
{'B': 2, 'T': 5}
>>> parse_keywords(["d_model=32, norm='rms'"])
{'d_model': 32, 'norm': 'rms'}
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Mapping

from shapeflow.errors import InputError, SpecError

_FIELD_PATH = re.compile(r"[^\W\d]\w*(\.[\w-]+)*")
_JSON_NAMES = {"true": True, "false": False, "null": None}


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """`B=2,T=5`, in one text or in several; a `SpecError` points at what is no size."""
    sizes: dict[str, int] = {}
    for text in texts:
        position = 0
        for part in text.split(","):
            name, _, number = (side.strip() for side in part.partition("="))
            if not name.isidentifier() or not re.fullmatch("[0-9]+", number):
                raise SpecError(text, position, f"{part.strip()!r} is not a name and its size", "B=2,T=5")
            if sizes.setdefault(name, int(number)) != int(number):
                raise SpecError(text, position, f"{name} is given two sizes, {sizes[name]} and {number}")
            position += len(part) + 1
    return sizes


def parse_keywords(texts: Iterable[str]) -> dict[str, object]:
    """`d_model=32, widths=[1, 2]`, in one text or in several: values are Python literals (or JSON's `true`)."""
    keywords: dict[str, object] = {}
    for text in texts:
        for name, node in _keyword_nodes(text):
            if name in keywords:
                raise SpecError(text, 0, f"{name} is given twice")
            keywords[name] = _literal(node, text, offset=len("f("))
    return keywords


def _keyword_nodes(text: str) -> list[tuple[str, ast.expr]]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError as error:
        position = min(max((error.offset or 1) - 1 - len("f("), 0), len(text))
        raise SpecError(text, position, f"arguments do not parse: {error.msg}", "d_model=32,norm='rms'") from error
    if not isinstance(call, ast.Call) or call.args or not all(keyword.arg for keyword in call.keywords):
        raise SpecError(text, 0, "arguments are given by name", "d_model=32,norm='rms'")
    return [(keyword.arg or "", keyword.value) for keyword in call.keywords]


def parse_literal(text: str) -> object:
    """A Python literal (`2`, `"mean"`, `(1, 2)`), or JSON's `true`, `false`, `null`."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise SpecError(
            text, max((error.offset or 1) - 1, 0), f"no Python literal: {error.msg}", '2 or "mean"'
        ) from error
    return _literal(node, text, offset=0)


def _literal(node: ast.expr, text: str, *, offset: int) -> object:
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        source = ast.unparse(node)
        hint = f"'{source}' (in quotes that the shell leaves alone)" if isinstance(node, ast.Name) else '2 or "mean"'
        raise SpecError(text, node.col_offset - offset, f"{source} is no Python literal", hint) from error


def parse_inputs(texts: Iterable[str], signature: inspect.Signature) -> tuple[list[object], dict[str, object]]:
    """Positional and named inputs of a call.

    `B T:int64` is positional, `ids=B T:int64` named, `batch.ids=B T:int64` a field of `batch`, and
    `scale:=2` a plain value. Fields become the dataclass or the named tuple that the parameter is annotated
    with, a tuple where they are `0`, `1`, ..., and a dictionary otherwise.
    """
    positional: list[object] = []
    tree: dict[str, object] = {}
    for text in texts:
        path, value = _split(text, signature.parameters)
        if path:
            _insert(tree, path, value)
        else:
            positional.append(value)
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return positional, {name: _assemble(value, hints.get(name), name) for name, value in tree.items()}


def _split(text: str, parameters: Mapping[str, object]) -> tuple[str, object]:
    path, walrus, value = text.partition(":=")
    if walrus and (not path or _FIELD_PATH.fullmatch(path)):
        return path, parse_literal(value)
    path, equals, spec = text.partition("=")
    if equals and _FIELD_PATH.fullmatch(path) and not _is_pinned_axis(path, spec, parameters):
        return path, spec
    return "", text


def _is_pinned_axis(name: str, spec: str, parameters: Mapping[str, object]) -> bool:
    """`H=224 W=224` is a positional spec, unless the model has an input called `H`."""
    return bool(re.match(r"[0-9]+(\s|:|$)", spec)) and name not in parameters


def _insert(tree: dict[str, object], path: str, value: object) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        branch = tree.setdefault(parent, {})
        if not isinstance(branch, dict):
            raise InputError(f"{parent} is given as a whole and by its field: {path}")
        tree = branch
    if last in tree:
        raise InputError(f"{path} is given twice")
    tree[last] = value


def _assemble(value: object, annotation: object, path: str) -> object:
    if not isinstance(value, dict):
        return value
    fields = _field_types(annotation)
    built = {name: _assemble(item, fields.get(name), f"{path}.{name}") for name, item in value.items()}
    if all(name.isdigit() for name in built):
        return _as_tuple(built, path)
    unknown = [name for name in built if fields and name not in fields]
    if unknown:
        raise InputError(f"{path} has no field {unknown[0]}; its fields are {', '.join(fields)}")
    if fields and isinstance(annotation, type) and not typing.is_typeddict(annotation):
        return _as_record(annotation, built, path)
    return built


def _field_types(annotation: object) -> dict[str, object]:
    """Name -> annotation of a dataclass', a named tuple's or a typed dictionary's fields; empty for other types."""
    is_record = (
        dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields") or typing.is_typeddict(annotation)
    )
    try:
        return typing.get_type_hints(annotation) if is_record else {}
    except NameError as error:
        raise InputError(f"a field of {annotation} has an annotation that does not resolve: {error}") from error


def _as_tuple(items: dict[str, object], path: str) -> tuple[object, ...]:
    missing = [index for index in range(len(items)) if str(index) not in items]
    if missing:
        raise InputError(f"{path} lacks its item {path}.{missing[0]}")
    return tuple(items[str(index)] for index in range(len(items)))


def _as_record(kind: type, fields: dict[str, object], path: str) -> object:
    try:
        inspect.signature(kind).bind(**fields)
    except TypeError as error:
        raise InputError(f"{path} is a {kind.__name__}: {error}") from error
    return kind(**fields)
