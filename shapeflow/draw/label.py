"""How the drawings write things: shapes, sizes, counts, modules, places in the code.

>>> labels = Labels.of(graph, sizes={"B": 2, "T": 5})
>>> labels.shape(edge.shape), labels.numbers(edge.shape)
('B T d_model', '2 5 32')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path

import networkx as nx

from shapeflow.dims.expr import Expr
from shapeflow.errors import ShapeflowError
from shapeflow.graph import edges, nodes
from shapeflow.trace.result import Location, Node, Scope, Shape

# A sum as long as this (`(H - 1)//2 + 1`) that stands on this many tensors gets a name: shapes have to fit their line.
LONG, OFTEN = 12, 3
MANY = 6  # parameters of one operator, from which on they are counted


@dataclass(frozen=True, slots=True)
class Labels:
    """The words for one graph.

    `dtype` is what its tensors are unless marked, `names` stand for long sizes, `sizes` are shown where given.
    """

    dtype: str
    names: Mapping[Expr, str]
    sizes: Mapping[str, int]
    _known: dict[Shape, str] = field(default_factory=dict, compare=False, repr=False)  # shapes recur, printing is slow

    @classmethod
    def of(cls, graph: nx.MultiDiGraph, sizes: Mapping[str, int] | None = None) -> Labels:
        return cls(_common_dtype(graph), _short_names(graph), _with_aliases(graph, sizes) if sizes else {})

    def shape(self, shape: Shape) -> str:
        """`B T d_model`; with the dtype when it is not the common one, as in a spec: `B T:int64`; `[S(2) on tp]`."""
        text = self._known.get(shape)
        if text is None:
            mark = "" if shape.dtype == self.dtype else f":{shape.dtype}"
            spread = "" if shape.sharding is None else f" [{shape.sharding}]"
            text = self._known[shape] = (" ".join(map(self._dim, shape.dims)) or "scalar") + mark + spread
        return text

    def shapes(self, shapes: Iterable[Shape]) -> str:
        return several(map(self.shape, shapes))

    def numbers(self, shape: Shape) -> str:
        """`2 5 32`; a size that the given ones do not tell is `?`."""
        return " ".join(map(self._number, shape.dims))

    def _dim(self, dim: Expr) -> str:
        text = self.names.get(dim) or str(dim)
        return f"({text})" if " " in text else text

    def _number(self, dim: Expr) -> str:
        try:
            return str(dim.at(**self.sizes))
        except ShapeflowError:
            return "?"


def counted(number: int | Expr, noun: str) -> str:
    """`1 operator`, `12,608 parameters`, `4*d_model^2 parameters`."""
    text = f"{number:,}" if isinstance(number, int) else str(number)
    return f"{text} {noun}" + ("" if number == 1 else "s")


def several(words: Iterable[str]) -> str:
    """Joined by commas; three and more equal neighbours are counted instead: `3 x (B T d_model)`."""
    runs = [(word, len(list(run))) for word, run in groupby(words)]
    return ", ".join(f"{n} x ({word})" if n > 2 else ", ".join([word] * n) for word, n in runs)


def parameters_of(graph: nx.MultiDiGraph, path: str) -> int:
    """How many numbers the module at `path` learns; a plain function has no modules and learns none."""
    module = graph.graph["modules"].get(path)
    return module.parameters if module else 0


def copies_of(graph: nx.MultiDiGraph, scopes: tuple[Scope, ...]) -> int:
    """How many equal module calls this one stands for; 0 when it stands for itself alone."""
    return len(graph.graph["repeats"].get(scopes, ()))


def title_of(graph: nx.MultiDiGraph, scopes: tuple[Scope, ...], around: str = "") -> str:
    """A module call by its path from the module `around`: `attn`, `layer, call 2`, `blocks.0 to blocks.11`."""
    start = f"{around}." if around else ""
    path, call = scopes[-1].path, scopes[-1].call
    copies = graph.graph["repeats"].get(scopes)
    if not copies:
        return path.removeprefix(start) + (f", call {call + 1}" if call else "")
    groups = graph.graph.get("groups", {})
    first = groups[copies[0]][0].path if copies[0] in groups else path
    last = groups[copies[-1]][-1].path if copies[-1] in groups else copies[-1].path
    return first.removeprefix(start) + (f" to {last.removeprefix(start)}" if last != first else "")


def heading_of(graph: nx.MultiDiGraph, scopes: tuple[Scope, ...]) -> str:
    """`blocks.0 to blocks.11, x12`: the title of a module call in a text."""
    copies = copies_of(graph, scopes)
    return title_of(graph, scopes) + (f", x{copies}" if copies else "")


def tied_of(node: Node) -> str:
    """The parameter of another module that a module's only operator reads: the embedding's, in a tied head."""
    return ", ".join(name for name in node.parameters if node.module and not name.startswith(f"{node.module}."))


def reads_of(node: Node) -> str:
    """The parameters that an operator reads, named from its module where they belong to it; an LSTM's are counted."""
    names = [name.removeprefix(f"{node.module}.") for name in node.parameters]
    if len(names) <= MANY:
        return ", ".join(names)
    return f"{names[0]}, ..., {names[-1]} ({len(names)} in all)"


def place(location: Location | None) -> str:
    """`models/gpt.py:31`, from the working directory or from the folder that the package is installed in."""
    return f"{_short_file(location.file)}:{location.line}" if location else ""


def _short_file(file: str) -> str:
    path = Path(file)
    with suppress(ValueError):
        return path.relative_to(Path.cwd()).as_posix()
    for folder in ("site-packages", "dist-packages"):
        if folder in path.parts:
            return Path(*path.parts[path.parts.index(folder) + 1 :]).as_posix()
    return Path(*path.parts[-2:]).as_posix() if path.is_absolute() else path.as_posix()


def _common_dtype(graph: nx.MultiDiGraph) -> str:
    dtypes = Counter(edge.shape.dtype for edge in edges(graph) if "float" in edge.shape.dtype)
    return dtypes.most_common(1)[0][0] if dtypes else "float32"


def _short_names(graph: nx.MultiDiGraph) -> dict[Expr, str]:
    """Names for long sizes that recur, from the symbol that each begins with: `H1`, `H2`, ..."""
    uses = Counter(dim for node in nodes(graph) for shape in node.outputs for dim in shape.dims)
    long = [dim for dim, n in uses.items() if n >= OFTEN and " " in (text := str(dim)) and len(text) >= LONG]
    taken = {*graph.graph["dims"], *(symbol.name for dim in uses for symbol in dim.symbols)}
    names: dict[Expr, str] = {}
    for dim in long:
        base = min((symbol.name for symbol in dim.symbols), key=str(dim).index)
        names[dim] = next(name for i in count(1) if (name := f"{base}{i}") not in taken)
        taken.add(names[dim])
    return names


def _with_aliases(graph: nx.MultiDiGraph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes with those of the trace's own named sub-expressions, as far as they are known."""
    known = dict(sizes)
    for name, definition in graph.graph["dims"].items():
        if definition is not None and name not in known:
            with suppress(ShapeflowError):
                known[name] = definition.at(**known)
    return known
