"""Which module an operator belongs to, how often each was called, and at which grain modules of torch are recorded."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import shapeflow as sf
from shapeflow.trace.result import Scope
from tests.trace.following import Forward, assert_replays, operators, outputs, real


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.unused = nn.Linear(4, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x * 2


def scopes(trace):
    return [
        (node.operator, "/".join(scope.path for scope in node.scopes))
        for node in trace.nodes
        if node.kind == "operator"
    ]


def test_scopes_are_the_module_calls_outermost_first():
    trace = sf.trace(Stack(), "B 4")
    block = [("linear", "up"), ("relu", ""), ("linear", "down"), ("add", "")]
    expected = [
        (operator, f"blocks.{number}" + (f"/blocks.{number}.{path}" if path else ""))
        for number in range(2)
        for operator, path in block
    ]
    assert scopes(trace) == [*expected, ("mul", "")]
    first = trace.nodes[1]
    assert first.scopes == (Scope("blocks.0", "Block", 0), Scope("blocks.0.up", "Linear", 0))
    assert first.module == "blocks.0.up"
    assert first.parameters == ("blocks.0.up.weight", "blocks.0.up.bias")


def test_the_module_tree_with_parameters_and_calls():
    modules = sf.trace(Stack(), "B 4").modules
    assert {path: (info.kind, info.parameters, info.called) for path, info in modules.items()} == {
        "": ("Stack", 2 * 76 + 20, 1),
        "blocks": ("ModuleList", 2 * 76, 0),
        **{f"blocks.{n}": ("Block", 76, 1) for n in range(2)},
        **{f"blocks.{n}.up": ("Linear", 40, 1) for n in range(2)},
        **{f"blocks.{n}.down": ("Linear", 36, 1) for n in range(2)},
        "unused": ("Linear", 20, 0),
    }


def test_a_module_that_is_called_twice_counts_its_calls():
    trace = sf.trace(Forward(lambda self, x: self.lin(self.lin(x)), lin=nn.Linear(4, 4)), "B 4")
    calls = [node.scopes for node in trace.nodes if node.operator == "linear"]
    assert calls == [(Scope("lin", "Linear", 0),), (Scope("lin", "Linear", 1),)]
    assert trace.modules["lin"].called == 2
    assert trace.modules[""].parameters == 20


def test_a_module_with_two_names_goes_by_its_first():
    shared = nn.Linear(4, 4)
    trace = sf.trace(Forward(lambda self, x: self.b(self.a(x)), a=shared, b=shared), "B 4")
    assert [node.module for node in trace.nodes if node.operator == "linear"] == ["a", "a"]
    assert trace.modules["a"].called == 2
    assert trace.modules[""].parameters == 20


def test_the_root_may_call_itself():
    class Recursive(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x, depth=2):
            return self.lin(x) if depth == 0 else self(x, depth - 1) + 1

    assert operators(sf.trace(Recursive(), "B 4")) == ["linear", "add", "add"]


def test_modules_in_a_plain_list_run_under_a_path_of_their_own():
    model = Forward(lambda self, x: self.head(self.convs[1](self.convs[0](x))), head=nn.Linear(4, 2))
    model.convs = [nn.Linear(4, 4), nn.Linear(4, 4)]
    trace = sf.trace(model, "B 4")
    first, second, head = (node.module for node in trace.nodes if node.operator == "linear")
    assert len({first, second, head}) == 3
    assert head == "head"
    assert {trace.modules[path].kind for path in (first, second)} == {"Linear"}
    assert [trace.modules[path].parameters for path in (first, second)] == [20, 20]
    assert trace.modules[""].parameters == 10, "what is not registered is no parameter of the model"
    assert_replays(trace, model, real(5, 4))


def test_modules_that_a_function_calls_are_there_too():
    block = Block()
    trace = sf.trace(lambda x: block(x) + 1, "B 4")
    assert [path.rpartition(".")[2] for _, path in scopes(trace)] == ["up", "Block", "down", "Block", ""]
    assert_replays(trace, lambda x: block(x) + 1, real(5, 4))


def test_functional_parameters_belong_to_whoever_reads_them():
    """`MultiheadAttention` never calls its `out_proj`."""
    trace = sf.trace(nn.MultiheadAttention(8, 2, batch_first=True), *["B T 8"] * 3)
    read = [name for node in trace.nodes for name in node.parameters]
    assert {"in_proj_weight", "out_proj.weight", "out_proj.bias"} <= set(read)
    assert trace.modules["out_proj"].called == 0
    assert trace.modules[""].parameters == 288


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_is_the_operators_inside(training, need_weights):
    model = nn.MultiheadAttention(8, 2, batch_first=True).train(training)
    trace = sf.trace(model, *["B T 8"] * 3, need_weights=need_weights)
    assert "linear" in operators(trace)
    assert ("softmax" if need_weights else "scaled_dot_product_attention") in operators(trace)
    assert not any("multi_head_attention" in operator for operator in operators(trace))
    assert outputs(trace) == (["B T 8", "B T T"] if need_weights else ["B T 8"])
    assert not trace.conditions


@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_layer_does_not_take_the_fast_path(training):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).train(training)
    trace = sf.trace(layer, "B T 8")
    assert operators(trace).count("linear") == 4
    assert outputs(trace) == ["B T 8"]


def test_transformer():
    trace = sf.trace(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), "B S 8", "B T 8")
    assert outputs(trace) == ["B T 8"]
    assert not trace.conditions


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch warns of its slow kernel, in any forward
@pytest.mark.parametrize(
    ("module", "spec", "shapes"),
    [
        (nn.LSTM(3, 5), "T B 3", ["T B 5", "1 B 5", "1 B 5"]),
        (nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True), "B T 3", ["B T 10", "4 B 5", "4 B 5"]),
        (nn.LSTM(3, 5, proj_size=2), "T B 3", ["T B 2", "1 B 2", "1 B 5"]),
        (nn.LSTM(3, 5), "T 3", ["T 5", "1 5", "1 5"]),
        (nn.GRU(3, 5, 2), "T B 3", ["T B 5", "2 B 5"]),
        (nn.GRU(3, 5, batch_first=True, bidirectional=True), "B T 3", ["B T 10", "2 B 5"]),
        (nn.RNN(3, 5), "T B 3", ["T B 5", "1 B 5"]),
        (nn.RNN(3, 5, nonlinearity="relu", batch_first=True), "B T 3", ["B T 5", "1 B 5"]),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, nn.Module) else None,
)
def test_recurrent_layers_are_one_node(module, spec, shapes):
    trace = sf.trace(module.eval(), spec)
    assert outputs(trace) == shapes
    recurrent = [node for node in trace.nodes if node.operator.startswith(("lstm", "gru", "rnn"))]
    assert len(recurrent) == 1
    assert set(recurrent[0].parameters) == {name for name, _ in module.named_parameters()}
    assert len(operators(trace)) <= 8
    assert not trace.conditions
    shape = [size.at(B=2, T=9) for size in trace.inputs[0].outputs[0].dims]
    assert_replays(trace, module, real(*shape))


def test_a_packed_sequence_goes_through_an_lstm():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 5, batch_first=True)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
            return y

    assert outputs(sf.trace(Packed(), "B T 3", " B:int64")) == ["B T 5"]


def test_cells_are_operators_of_their_own():
    trace = sf.trace(nn.LSTMCell(3, 5), "B 3")
    assert outputs(trace) == ["B 5", "B 5"]


@pytest.mark.parametrize(
    ("wrap", "names"),
    [
        (
            parametrizations.weight_norm,
            {"parametrizations.weight.original0", "parametrizations.weight.original1", "bias"},
        ),
        (parametrizations.orthogonal, {"parametrizations.weight.original", "bias"}),
        (lambda lin: prune.l1_unstructured(lin, "weight", amount=4), {"weight_orig", "weight_mask", "bias"}),
    ],
    ids=["weight_norm", "orthogonal", "pruned"],
)
def test_parametrised_weights_lead_back_to_their_parameters(wrap, names):
    model = wrap(nn.Linear(4, 4)).eval()
    trace = sf.trace(model, "B 4")
    assert outputs(trace) == ["B 4"]
    assert {name for node in trace.nodes for name in node.parameters} >= names
    assert_replays(trace, model, real(5, 4))


def test_spectral_norm_in_train_mode_writes_to_buffers_of_its_own_and_leaves_them():
    model = parametrizations.spectral_norm(nn.Linear(4, 4)).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert outputs(sf.trace(model, "B 4")) == ["B 4"]
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name])


def test_lazy_modules_have_the_shapes_that_the_inputs_give():
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    trace = sf.trace(model, "B 3 8 8")
    assert outputs(trace) == ["B 10"]
    assert {name: str(shape) for name, shape in trace.parameters.items()} == {
        "0.weight": "4 3 3 3",
        "0.bias": "4",
        "3.weight": "10 144",
        "3.bias": "10",
    }
    assert trace.modules["3"].parameters == 1450


def test_locations_are_the_users_lines_not_torchs():
    trace = sf.trace(Stack(), "B 4")
    for node in trace.nodes:
        if node.kind == "operator":
            assert node.location.file.endswith("tests/trace/test_modules.py")
            assert node.operator != "relu" or node.location.code == "return x + self.down(F.relu(self.up(x)))"


def test_edges_tell_the_argument_and_the_output():
    trace = sf.trace(lambda x: torch.sub(x.chunk(2)[1], x.chunk(2)[0]), "2*B 4")
    into = [(edge.source, edge.output, edge.argument) for edge in trace.edges if edge.target == "sub"]
    assert into == [("chunk", 1, 0), ("chunk_1", 0, 1)]


def test_an_operator_that_reads_a_tensor_twice_has_two_edges():
    trace = sf.trace(lambda x: (y := x + 1) * y, "B")
    assert [(edge.source, edge.argument) for edge in trace.edges if edge.target == "mul"] == [("add", 0), ("add", 1)]


def test_a_reader_hangs_on_whoever_wrote_last():
    def forward(x):
        y = torch.zeros_like(x)
        y[:, :2].add_(x[:, :2])
        return y * 2

    trace = sf.trace(forward, "B 4")
    (edge,) = (edge for edge in trace.edges if edge.target == "mul")
    assert edge.source.startswith("add_")
    assert str(edge.shape) == "B 4"


def test_names_of_nodes_are_those_of_the_graph():
    trace = sf.trace(Stack(), "B 4")
    assert len({node.name for node in trace.nodes}) == len(trace.nodes)
    assert {node.name for node in trace.nodes} <= {node.name for node in trace.graph.nodes}
    assert all(edge.source in {n.name for n in trace.nodes} for edge in trace.edges)
