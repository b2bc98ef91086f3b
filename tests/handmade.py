"""Traces built by hand: the tests of graphs and drawings need no model and no torch.

model = Model("Tiny", d_model=32)
x = model.input("x", "B T d_model")
with model.module("proj", "Linear", parameters=1056):
    y = model.op("linear", x, out="B T d_model", reads=("proj.weight", "proj.bias"))
model.output(y)
graph = build(model.trace())
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shapeflow.dims.expr import Expr, Symbol
from shapeflow.dims.spec import parse_spec
from shapeflow.trace.result import Condition, Edge, Location, ModuleInfo, Node, Scope, Shape


@dataclass(frozen=True, slots=True)
class Tensor:
    """One result of one node."""

    source: str
    output: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class HandTrace:
    """What `shapeflow.graph.build` reads of a trace."""

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[Edge, ...]
    edges: tuple[Edge, ...]
    modules: dict[str, ModuleInfo]
    parameters: dict[str, Shape]
    dims: dict[str, Expr | None]
    sizes: dict[str, int]
    pinned: dict[str, int]
    free: tuple[str, ...]
    fresh: dict[str, str]
    domain: str
    conditions: tuple[Condition, ...]
    assumptions: tuple[Condition, ...]
    output_names: tuple[str, ...]


class Model:
    """Collects nodes in the order in which a model would run them; `pinned` are names with a known value."""

    def __init__(self, name: str, **pinned: int) -> None:
        self.name, self.pinned = name, pinned
        self.free: tuple[str, ...] = ("B", "T")
        self.output_names: tuple[str, ...] = ()
        self.dims: dict[str, Expr | None] = dict.fromkeys(("B", "T", *pinned))
        self.domain = "B >= 1, T >= 1"
        self.fresh: dict[str, str] = {}
        self.conditions: list[Condition] = []
        self.assumptions: list[Condition] = []
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.modules: dict[str, ModuleInfo] = {}
        self.parameters: dict[str, Shape] = {}
        self._scopes: tuple[Scope, ...] = ()
        self._names: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()

    def shape(self, text: str) -> Shape:
        spec = parse_spec(text)
        pinned = {Symbol(name, None): Expr.symbol(name, value) for name, value in self.pinned.items()}
        return Shape(tuple(dim.expr.replace(pinned) for dim in spec.dims if dim.expr), spec.dtype)

    def input(self, name: str, text: str) -> Tensor:
        name, shape = self._fresh(name), self.shape(text)
        self.nodes.append(Node(name, "input", outputs=(shape,)))
        return Tensor(name, 0, shape)

    @contextmanager
    def module(self, path: str, kind: str, *, parameters: int = 0) -> Iterator[None]:
        around, call = self._scopes, self._calls[path]
        self._calls[path] += 1
        self._scopes = (*around, Scope(path, kind, call))
        self.modules[path] = ModuleInfo(path, kind, parameters, call + 1)
        yield
        self._scopes = around

    def op(self, operator: str, *inputs: Tensor, out: str | tuple[str, ...], reads=(), line: int = 0) -> Tensor:
        """Run an operator; of several results the first is returned, the others are had by `also`."""
        shapes = tuple(map(self.shape, (out,) if isinstance(out, str) else out))
        name = self._fresh(operator)
        location = Location("models/tiny.py", line, f"x = {operator}(x)") if line else None
        self.nodes.append(Node(name, "operator", operator, self._scopes, shapes, tuple(reads), location))
        self._read(name, inputs)
        return Tensor(name, 0, shapes[0])

    def also(self, tensor: Tensor, output: int) -> Tensor:
        node = next(node for node in self.nodes if node.name == tensor.source)
        return Tensor(tensor.source, output, node.outputs[output])

    def constant(self, name: str, text: str) -> Tensor:
        name, shape = self._fresh(name), self.shape(text)
        self.nodes.append(Node(name, "constant", scopes=self._scopes, outputs=(shape,)))
        return Tensor(name, 0, shape)

    def output(self, *tensors: Tensor) -> None:
        self.nodes.append(Node("output", "output"))
        self._read("output", tensors)

    def trace(self) -> HandTrace:
        top = [path for path in self.modules if not any(path.startswith(f"{other}.") for other in self.modules)]
        own = sum(self.modules[path].parameters for path in top)
        modules = {"": ModuleInfo("", self.name, own, 1), **self.modules}
        return HandTrace(
            name=self.name,
            nodes=tuple(self.nodes),
            outputs=tuple(edge for edge in self.edges if edge.target == "output"),
            edges=tuple(self.edges),
            modules=modules,
            parameters=self.parameters,
            dims=self.dims,
            sizes={},
            pinned=self.pinned,
            free=self.free,
            fresh=self.fresh,
            domain=self.domain,
            conditions=tuple(self.conditions),
            assumptions=tuple(self.assumptions),
            output_names=self.output_names or self._output_names(),
        )

    def _output_names(self) -> tuple[str, ...]:
        outputs = sum(edge.target == "output" for edge in self.edges)
        return ("",) if outputs == 1 else tuple(f"[{i}]" for i in range(outputs))

    def _fresh(self, name: str) -> str:
        used = self._names[name]
        self._names[name] += 1
        return f"{name}_{used}" if used else name

    def _read(self, target: str, tensors: tuple[Tensor, ...]) -> None:
        self.edges += [Edge(t.source, target, t.output, i, t.shape) for i, t in enumerate(tensors)]


def toy(layers: int = 2) -> Model:
    """A decoder-only model of blocks with attention in one head; a mask from outside feeds every block."""
    model = Model("GPT", d_model=32, d_ff=128, vocab=100)
    ids = model.input("ids", "B T:int64")
    with model.module("embed", "Embedding", parameters=3200):
        x = model.op("embedding", ids, out="B T d_model", reads=("embed.weight",))
    mask = model.op("tril", model.op("ones", out="T T:bool"), out="T T:bool")
    for i in range(layers):
        x = block(model, f"blocks.{i}", x, mask)
    with model.module("head", "Linear", parameters=3300):
        logits = model.op("linear", x, out="B T vocab", reads=("head.weight", "head.bias"))
    model.output(logits)
    return model


def block(model: Model, path: str, x: Tensor, mask: Tensor, *, norm: str = "layer_norm") -> Tensor:
    with model.module(path, "DecoderBlock", parameters=12608):
        with model.module(f"{path}.ln", "LayerNorm", parameters=64):
            normed = model.op(norm, x, out="B T d_model", reads=(f"{path}.ln.weight", f"{path}.ln.bias"), line=31)
        with model.module(f"{path}.attn", "Attention", parameters=4096):
            with model.module(f"{path}.attn.qkv", "Linear", parameters=3072):
                qkv = model.op("linear", normed, out="B T 3*d_model", reads=(f"{path}.attn.qkv.weight",))
            q = model.op("chunk", qkv, out=("B T d_model",) * 3)
            k = model.op("transpose", model.also(q, 1), out="B d_model T")
            scores = model.op("matmul", q, k, out="B T T")
            weights = model.op("softmax", model.op("masked_fill", scores, mask, out="B T T"), out="B T T")
            mixture = model.op("matmul", weights, model.also(q, 2), out="B T d_model")
        x = model.op("add", x, mixture, out="B T d_model")
        with model.module(f"{path}.ffn", "FeedForward", parameters=8448):
            hidden = model.op("linear", x, out="B T d_ff", reads=(f"{path}.ffn.up.weight",))
            update = model.op("linear", model.op("gelu", hidden, out="B T d_ff"), out="B T d_model")
        return model.op("add", x, update, out="B T d_model")
