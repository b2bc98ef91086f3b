"""Enforced models under what torch does to them: compiling, checkpoints, replicas, autocast, copies, traces."""

import copy
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed
from jaxtyping import Float, TypeCheckError
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import shapeflow as sf


@dataclass
class Both:
    """Two tensors of one batch."""

    x: Float[Tensor, "B T d"]
    y: Float[Tensor, " B"]


class Attention(nn.Module):
    """Several methods with names in common, a helper that is a function, a list of layers."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "B T d_model"], scale: float = 1.0, rest: list[Float[Tensor, " B"]] | None = None
    ) -> Float[Tensor, "B T d_model"]:
        q, k, v = (self.split(each) for each in self.qkv(x).chunk(3, -1))
        out = self.merge(weights(q, k) @ v) * scale
        for layer in self.layers:
            out = layer(out)
        return self.out(out)

    def split(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B n_heads T d_head"]:
        b, t, _ = x.shape
        return x.view(b, t, self.n_heads, self.d_head).transpose(1, 2)

    def merge(self, x: Float[Tensor, "B n_heads T d_head"]) -> Float[Tensor, "B T d_model"]:
        return x.transpose(1, 2).flatten(2)

    def out(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        both = Both(x, x[:, 0, 0])
        return both.x + both.y[:, None, None]


def weights(q: Float[Tensor, "*n T d"], k: Float[Tensor, "*n S d"]) -> Float[Tensor, "*n T S"]:
    return (q @ k.mT).softmax(-1)


BARE = Attention.forward, weights, Both.__init__


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[nn.Module, nn.Module]]:
    """The same model bare and enforced."""
    torch.manual_seed(0)
    bare = Attention(6, 2)
    enforced = Enforced(6, 2)
    enforced.load_state_dict(bare.state_dict())
    yield bare, enforced


@sf.typed
class Enforced(Attention):
    """The methods of `Attention`, each enforced: a class of its own, so that pickle finds both."""

    __init__ = sf.typed(Attention.__init__)
    forward = sf.typed(Attention.forward)
    split = sf.typed(Attention.split)
    merge = sf.typed(Attention.merge)
    out = sf.typed(Attention.out)


class Breaking(nn.Module):
    """A model whose graph breaks, in a method and between."""

    def __init__(self) -> None:
        super().__init__()
        self.d = 4
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
        x = self.half(self.a(x))
        torch._dynamo.graph_break()
        return self.half(self.b(x))

    def half(self, x: Float[Tensor, "B d"]) -> Float[Tensor, "B d"]:
        x = x * 2
        torch._dynamo.graph_break()
        return x.relu()


@sf.typed
class EnforcedBreaking(Breaking):
    forward = sf.typed(Breaking.forward)
    half = sf.typed(Breaking.half)


X = torch.randn(2, 5, 6)
WRONG = torch.randn(2, 5, 7)


def counted(model: nn.Module, *inputs: Any) -> tuple[int, int, list[Tensor]]:
    """Graphs and breaks of a model that is compiled and called with each of the inputs, and what it gives."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    seen: list[Any] = []

    def backend(graph: Any, example: Any) -> Any:
        seen.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        results = [compiled(each) for each in inputs]
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return len(seen), breaks, results


def test_compiled_in_one_graph(pair: tuple[nn.Module, nn.Module]) -> None:
    bare, enforced = pair
    inputs = (X, torch.randn(2, 7, 6), torch.randn(3, 7, 6), X)
    graphs, breaks, expected = counted(bare, *inputs)
    assert counted(enforced, *inputs)[:2] == (graphs, breaks)
    assert breaks == 0
    for _ in range(2):  # once before and once after it ran eagerly and knows these shapes
        results = counted(enforced, *inputs)[2]
        assert all(torch.equal(one, other) for one, other in zip(results, expected, strict=True))
        enforced(X)
    fullgraph = torch.compile(enforced, backend="eager", fullgraph=True)
    assert torch.equal(fullgraph(X), enforced(X))


def test_breaks_of_a_model_stay_as_many() -> None:
    torch.manual_seed(0)
    bare, enforced = Breaking(), EnforcedBreaking()
    enforced.load_state_dict(bare.state_dict())
    rows = torch.randn(3, 4)
    graphs, breaks, (expected,) = counted(bare, rows)
    assert graphs > 2
    assert counted(enforced, rows)[:2] == (graphs, breaks)
    assert torch.equal(counted(enforced, rows)[2][0], expected)


def test_switching_recompiles_nothing(pair: tuple[nn.Module, nn.Module]) -> None:
    torch._dynamo.reset()
    seen: list[Any] = []
    compiled = torch.compile(pair[1], backend=lambda graph, _: seen.append(graph) or graph.forward)
    with torch.no_grad():
        compiled(X)
        pair[1](X)
        with sf.unenforced():
            compiled(X)
        compiled(X)
    assert len(seen) == 1


def test_a_compiled_function() -> None:
    enforced = sf.typed(weights)
    compiled = torch.compile(enforced, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X, X), weights(X, X))
    with pytest.raises(TypeCheckError):
        enforced(X, torch.zeros(3, 5, 6))


@pytest.mark.parametrize("strict", [False, True])
def test_exported(pair: tuple[nn.Module, nn.Module], strict: bool) -> None:
    bare, enforced = pair
    dynamic = ({0: torch.export.Dim("B"), 1: torch.export.Dim("T")},)
    programs = [torch.export.export(each, (X,), dynamic_shapes=dynamic, strict=strict) for each in (bare, enforced)]
    one, other = (len(each.graph_module.graph.nodes) for each in programs)
    assert one == other
    x = torch.randn(4, 9, 6)
    assert torch.equal(programs[1].module()(x), bare(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
def test_traced_by_jit(pair: tuple[nn.Module, nn.Module]) -> None:
    traced = torch.jit.trace(pair[1], (X,))
    assert torch.allclose(traced(X), pair[0](X))


def test_traced_with_names(pair: tuple[nn.Module, nn.Module]) -> None:
    pair[1](X)
    bare, enforced = (sf.trace(each, "B T 6") for each in pair)
    assert [str(edge.shape) for edge in enforced.outputs] == [str(edge.shape) for edge in bare.outputs]
    assert len(list(enforced.graph.nodes)) == len(list(bare.graph.nodes))
    x = torch.randn(4, 9, 6)
    assert torch.allclose(enforced.graph_module(x), pair[0](x), atol=1e-6)
    assert str(sf.check(pair[1]).domain) == str(sf.check(pair[0]).domain)


def test_a_contradiction_is_found_in_a_trace_too() -> None:
    @sf.typed
    def wrong(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return x[:, 1:]

    with pytest.raises(sf.TraceError, match=r"the result of wrong .* axis 1 is T - 1"):
        sf.trace(wrong)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoints(pair: tuple[nn.Module, nn.Module], reentrant: bool) -> None:
    gradients = []
    for model in pair:
        x = X.clone().requires_grad_()
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        gradients.append([x.grad, *(each.grad for each in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
    with pytest.raises(TypeCheckError, match="axis 2 is 7, and d_model is 6"):
        checkpoint(pair[1], WRONG.clone().requires_grad_(), use_reentrant=reentrant)


@pytest.fixture
def one_process() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_distributed_data_parallel(pair: tuple[nn.Module, nn.Module]) -> None:
    bare, enforced = pair
    parallel = DistributedDataParallel(enforced)
    parallel(X).sum().backward()
    bare(X).sum().backward()
    for one, other in zip(enforced.parameters(), bare.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    with pytest.raises(TypeCheckError, match="axis 2 is 7, and d_model is 6"):
        parallel(WRONG)


def test_data_parallel(pair: tuple[nn.Module, nn.Module]) -> None:
    bare, enforced = pair
    assert torch.equal(DataParallel(enforced)(X), bare(X))
    with pytest.raises(TypeCheckError, match="axis 2 is 7, and d_model is 6"):
        DataParallel(enforced)(WRONG)


def test_autocast(pair: tuple[nn.Module, nn.Module]) -> None:
    bare, enforced = pair
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(enforced(X), bare(X))
        with pytest.raises(TypeCheckError):
            enforced(WRONG)


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies(pair: tuple[nn.Module, nn.Module], how: Any) -> None:
    pair[1](X)
    other = how(pair[1])
    assert torch.equal(other(X), pair[0](X))
    with pytest.raises(TypeCheckError, match="axis 2 is 7, and d_model is 6"):
        other(WRONG)


enforced_function = sf.typed(weights)
enforced_function.__qualname__ = enforced_function.__name__ = "enforced_function"


def test_a_function_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(enforced_function)) is enforced_function
    assert copy.deepcopy(enforced_function) is enforced_function


def test_saved_and_loaded(pair: tuple[nn.Module, nn.Module], tmp_path: Any) -> None:
    torch.save(pair[1], tmp_path / "model.pt")
    other = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(other(X), pair[0](X))


def test_vmap_and_grad(pair: tuple[nn.Module, nn.Module]) -> None:
    bare, enforced = pair
    many = torch.randn(3, 2, 5, 6)
    assert torch.allclose(torch.vmap(enforced)(many), torch.vmap(bare)(many))
    loss = [torch.func.grad(lambda x, model=model: model(x).sum())(X) for model in pair]
    assert torch.equal(*loss)


def test_subclasses_of_tensor_and_meta(pair: tuple[nn.Module, nn.Module]) -> None:
    class Tagged(torch.Tensor): ...

    for x in (X.as_subclass(Tagged), X.as_subclass(Tagged)):
        assert torch.equal(pair[1](x).as_subclass(torch.Tensor), pair[0](X))
    with pytest.raises(TypeCheckError):
        pair[1](WRONG.as_subclass(Tagged))
    meta = copy.deepcopy(pair[1]).to("meta")
    assert meta(X.to("meta")).shape == (2, 5, 6)


def test_nothing_of_a_call_is_kept(pair: tuple[nn.Module, nn.Module]) -> None:
    import gc
    import weakref

    x = torch.randn(2, 5, 6)
    kept = weakref.ref(x)
    with torch.no_grad():
        pair[1](x)
        pair[1](x)
    del x
    gc.collect()
    assert kept() is None
