"""How the drawings write things: shapes, sizes, counts, places in the code, and the legend of dims.

>>> labels = Labels.of(graph, sizes={"B": 2, "T": 5})
>>> labels.shape(edge.shape), labels.numbers(edge.shape)
('B T d_model', '2 5 32')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from pathlib import Path

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.errors import ShapeflowError
from shapeflow.graph import Block, edges, inputs_of, nodes
from shapeflow.trace.result import Location, Node, Scope, Shape


@dataclass(frozen=True, slots=True)
class Labels:
    """The words for one graph: `dtype` is what its tensors are unless marked, `sizes` are shown where given."""

    dtype: str
    sizes: Mapping[str, int]
    _known: dict[Shape, str] = field(default_factory=dict, compare=False, repr=False)  # shapes recur, printing is slow

    @classmethod
    def of(cls, graph: nx.MultiDiGraph, sizes: Mapping[str, int] | None = None) -> Labels:
        return cls(_common_dtype(graph), _with_aliases(graph, sizes) if sizes else {})

    def shape(self, shape: Shape) -> str:
        """`B T d_model`; with the dtype when it is not the common one, as in a spec: `B T:int64`."""
        text = self._known.get(shape)
        if text is None:
            mark = "" if shape.dtype == self.dtype else f":{shape.dtype}"
            text = self._known[shape] = (str(shape) or "scalar") + mark
        return text

    def shapes(self, shapes: Iterable[Shape]) -> str:
        return _several(map(self.shape, shapes))

    def numbers(self, shape: Shape) -> str:
        """`2 5 32`; a size that the given ones do not tell is `?`."""
        return " ".join(map(self.number, shape.dims))

    def number(self, dim: Expr) -> str:
        try:
            return str(dim.at(**self.sizes))
        except ShapeflowError:
            return "?"


def counted(number: int, noun: str) -> str:
    """`1 operator`, `12,608 parameters`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def parameters_of(graph: nx.MultiDiGraph, path: str) -> int:
    """How many numbers the module at `path` learns; a plain function has no modules and learns none."""
    module = graph.graph["modules"].get(path)
    return module.parameters if module else 0


def title_of(graph: nx.MultiDiGraph, scopes: tuple[Scope, ...], around: str = "") -> str:
    """A module call by its path from the module `around`: `attn`, `layer, call 2`, `blocks.0 to blocks.11, x12`."""
    start = f"{around}." if around else ""
    path, call = scopes[-1].path, scopes[-1].call
    copies = graph.graph["repeats"].get(scopes)
    if copies:
        last = copies[-1].path
        return (
            path.removeprefix(start) + (f" to {last.removeprefix(start)}" if last != path else "") + f", x{len(copies)}"
        )
    return path.removeprefix(start) + (f", call {call + 1}" if call else "")


def reads_of(node: Node) -> str:
    """The parameters that an operator reads, named from its module where they belong to it."""
    return ", ".join(name.removeprefix(f"{node.module}.") for name in node.parameters)


def place(location: Location | None) -> str:
    """`models/gpt.py:31`, from the working directory or from the folder that the package is installed in."""
    return f"{short_file(location.file)}:{location.line}" if location else ""


def short_file(file: str) -> str:
    path = Path(file)
    with suppress(ValueError):
        return path.relative_to(Path.cwd()).as_posix()
    for folder in ("site-packages", "dist-packages"):
        if folder in path.parts:
            return Path(*path.parts[path.parts.index(folder) + 1 :]).as_posix()
    return Path(*path.parts[-2:]).as_posix() if path.is_absolute() else path.as_posix()


def legend(graph: nx.MultiDiGraph, labels: Labels) -> list[tuple[str, list[str]]]:
    """What the names mean, what goes in and what comes out: (title, entries)."""
    inputs = [(node.name, shape) for node in nodes(graph) if node.kind == "input" for shape in node.outputs]
    outputs = [edge.shape for node in nodes(graph) if node.kind == "output" for edge in inputs_of(graph, node.name)]
    entries = [
        ("free", [_value(name, labels) for name in graph.graph["free"]]),
        ("fixed", [f"{name} = {size}" for name, size in graph.graph["pinned"].items()]),
        ("made inside", _made_inside(graph, labels)),
        ("where", [f"{name} = {expr}" for name, expr in graph.graph["dims"].items() if expr is not None]),
        ("inputs", [f"{name}: {_with_numbers(shape, labels)}" for name, shape in inputs]),
        ("outputs", [_several(_with_numbers(shape, labels) for shape in outputs)] if outputs else []),
    ]
    return [(title, words) for title, words in entries if words]


def size_of(graph: nx.MultiDiGraph) -> str:
    """`36,096 parameters, 84 operators`; what a folded block stands for is counted."""
    repeats = {scopes: len(copies) for scopes, copies in graph.graph["repeats"].items()}
    operators = sum(_operators(node) * prod(_times(node, repeats)) for node in nodes(graph))
    return f"{counted(parameters_of(graph, ''), 'parameter')}, {counted(operators, 'operator')}"


def _operators(node: Node | Block) -> int:
    return node.operators if isinstance(node, Block) else int(node.kind == "operator")


def _times(node: Node | Block, repeats: dict[tuple[Scope, ...], int]) -> Iterator[int]:
    return (repeats.get(node.scopes[:i], 1) for i in range(1, len(node.scopes) + 1))


def _value(name: str, labels: Labels) -> str:
    return f"{name} = {labels.sizes[name]}" if name in labels.sizes else name


def _with_numbers(shape: Shape, labels: Labels) -> str:
    return labels.shape(shape) + (f" = {labels.numbers(shape)}" if labels.sizes and shape.dims else "")


def _made_inside(graph: nx.MultiDiGraph, labels: Labels) -> list[str]:
    """Sizes that depend on values: neither an input's, nor fixed, nor an alias."""
    known = {*graph.graph["free"], *graph.graph["pinned"]}
    return [_value(name, labels) for name, expr in graph.graph["dims"].items() if expr is None and name not in known]


def _several(words: Iterable[str]) -> str:
    """Joined by commas; three and more equal neighbours are counted instead: `3 x (B T d_model)`."""
    runs = [(word, len(list(run))) for word, run in groupby(words)]
    return ", ".join(f"{n} x ({word})" if n > 2 else ", ".join([word] * n) for word, n in runs)


def _common_dtype(graph: nx.MultiDiGraph) -> str:
    dtypes = Counter(edge.shape.dtype for edge in edges(graph) if "float" in edge.shape.dtype)
    return dtypes.most_common(1)[0][0] if dtypes else "float32"


def _with_aliases(graph: nx.MultiDiGraph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes with those of named sub-expressions (`H1 = (H - 1)//2 + 1`), as far as they are known."""
    known = dict(sizes)
    for name, definition in graph.graph["dims"].items():
        if definition is not None and name not in known:
            with suppress(ShapeflowError):
                known[name] = definition.at(**known)
    return known
