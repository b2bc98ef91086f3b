import importlib.util
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.ao.nn.quantized as nnq
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import shapeflow as sf
from models import transformer
from shapeflow.cost import params
from shapeflow.cost.formats import written
from shapeflow.cost.sheet import select
from shapeflow.errors import InputError

CASES = sorted((Path(__file__).parents[1] / "cases" / "modules").glob("*.py"))


def load_case(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    case = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(case)
    return case


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_modules_have_their_counts(path: Path) -> None:
    case = load_case(path)
    model, args, kwargs = case.make()
    if case.EXPECT.get("lazy"):
        assert len(params(model).lazy) == 4
        model(*args, **kwargs)
    report = params(model)
    assert report.total == case.EXPECT["params"]
    assert report.trainable == case.EXPECT["trainable"]
    assert report.frozen == report.total - report.trainable
    if "hidden_params" in case.EXPECT:
        assert sum(each.parameters for each in report.unregistered) == case.EXPECT["hidden_params"]
    if "param_bytes" in case.EXPECT:
        assert report.parameter_bytes == case.EXPECT["param_bytes"]
    if "buffers" in case.EXPECT:
        assert report.buffers == case.EXPECT["buffers"]


def test_all_cases_are_there() -> None:
    assert len(CASES) == 20


def rows_of(model: nn.Module) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {row.path: (row.parameters, row.shared) for row in params(model).rows}


def tied(device: str) -> nn.Module:
    model = nn.Sequential(nn.Embedding(11, 3, device=device), nn.Linear(3, 11, bias=False, device=device))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tied_weight_counts_once_and_is_shown_where_shared(device: str) -> None:
    assert rows_of(tied(device)) == {"": (33, ()), "0": (33, ()), "1": (33, ("weight is 0.weight",))}


def test_a_module_used_twice_counts_once_and_is_shown_as_the_first() -> None:
    block = nn.Sequential(nn.Linear(3, 3))
    model = nn.Sequential(block, nn.ReLU(), block)
    assert rows_of(model) == {
        "": (12, ()),
        "0": (12, ()),
        "0.0": (12, ()),
        "1": (0, ()),
        "2": (12, ("all of it is 0",)),  # and no rows for what is below it
    }


def module(**children) -> nn.Module:
    """A module that holds modules and parameters under these names."""
    result = nn.Module()
    for name, child in children.items():
        setattr(result, name, child)
    return result


def test_a_weight_of_three_names_counts_once_in_each_module_that_has_it() -> None:
    weight = nn.Parameter(torch.zeros(3, 3))
    model = module(
        ws=nn.ParameterList([weight, nn.Parameter(torch.zeros(2))]), up=nn.Linear(3, 3), down=nn.Linear(3, 3)
    )
    model.up.weight = model.down.weight = weight
    assert params(model).tied == (("ws.0", "up.weight", "down.weight"),)
    assert {path: count for path, (count, _) in rows_of(model).items()} == {"": 17, "ws": 11, "up": 12, "down": 12}
    assert [row.own for row in params(model).rows] == [0, 11, 12, 12]


def test_modules_used_again_at_several_depths() -> None:
    inner = nn.Linear(2, 2)
    block = nn.Sequential(inner, nn.Sequential(inner))
    model = module(a=block, b=nn.Sequential(block, inner), c=nn.Linear(1, 1))
    assert {path: count for path, (count, _) in rows_of(model).items()} == {
        "": 8,
        "a": 6,
        "a.0": 6,
        "a.1": 6,
        "a.1.0": 6,
        "b": 6,
        "b.0": 6,
        "b.1": 6,
        "c": 2,
    }


def test_a_weight_under_two_names_of_one_module() -> None:
    model = nn.Linear(3, 3)
    model.again = model.weight
    (row,) = params(model).rows
    assert (row.parameters, row.own, row.shared) == (12, 12, ("again is weight",))


def test_a_module_that_holds_itself() -> None:
    model = nn.Linear(2, 3)
    model._modules["me"] = model
    assert rows_of(model) == {"": (9, ()), "me": (9, ("all of it is the model",))}


def test_what_is_a_parameter_somewhere_is_no_buffer() -> None:
    weight = nn.Parameter(torch.zeros(5))
    model = module(cache=nn.Module(), layer=module(weight=weight))
    model.cache.register_buffer("weight", weight)
    report = params(model)
    assert (report.total, report.trainable, report.buffers) == (5, 5, 0)
    assert [row.parameters for row in report.rows] == [5, 5, 5]


def test_a_parametrisation_that_two_layers_share() -> None:
    scale = module(gain=nn.Parameter(torch.ones(1)))
    scale.forward = lambda weight: weight * scale.gain
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for layer in model:
        nn.utils.parametrize.register_parametrization(layer, "weight", scale)
    assert params(model).total == 2 * 12 + 1


def test_lazy_buffers_are_told() -> None:
    report = params(nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(2, 3)))
    assert report.total == 9
    assert report.lazy == ("0.weight", "0.bias", "0.running_mean", "0.running_var")


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile], ids=["DataParallel", "compile"])
def test_wrappers_do_not_show(wrap) -> None:
    inner = nn.Linear(5, 2)
    assert params(wrap(inner)) == params(inner)


def test_a_parameter_of_the_module_itself_and_a_buffer() -> None:
    model = nn.BatchNorm1d(7)
    report = params(model)
    assert (report.total, report.buffers, len(report.rows)) == (14, 15, 1)


def test_lazy_parameters_are_reported_and_not_counted() -> None:
    report = params(nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(4)))
    assert report.total == 9
    assert report.lazy == ("1.weight", "1.bias")
    assert "not counted, as they have no shape before a first forward: 1.weight, 1.bias" in str(report)


def test_a_model_of_70_billion_parameters_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = nn.ModuleList(nn.Linear(8192, 28672, bias=False) for _ in range(300))
    assert params(model).total == 300 * 8192 * 28672


def test_the_table() -> None:
    model = tied("cpu")
    model[0].weight.requires_grad_(False)
    assert str(params(model)).splitlines() == [
        "module  kind        parameters  trainable    share  note",
        "(all)   Sequential          33          0  100.0 %",
        "  0     Embedding           33          0  100.0 %",
        "  1     Linear              33          0  100.0 %  weight is 0.weight",
        "",
        "33 parameters: 0 trainable, 33 frozen; 0 numbers in buffers",
        "132 B of float32",
    ]
    assert len(written(select(params(model).sheet(), depth=0), "text").splitlines()) == 5


def test_columns_that_would_say_nothing_are_left_out() -> None:
    assert str(params(nn.Linear(2, 3))).splitlines()[0].split() == ["module", "kind", "parameters", "share"]
    assert str(params(nn.BatchNorm1d(2))).splitlines()[0].split() == [
        "module",
        "kind",
        "parameters",
        "share",
        "buffers",
    ]


MIXED = nn.Sequential(nn.Linear(8, 4).half(), nn.Linear(4, 2).bfloat16(), nn.BatchNorm1d(2))


def test_bytes_follow_the_dtypes() -> None:
    report = params(MIXED)
    assert report.bytes == {"float16": 72, "bfloat16": 20, "float32": 16}
    assert report.parameter_bytes == 108
    assert report.buffer_bytes == 2 * 2 * 4 + 8  # means and variances, and a count in int64
    assert "108 B: float16 72 B, bfloat16 20 B, float32 16 B; buffers 24 B" in str(report)


class Rescaled(torch.Tensor):
    """Weights in int8 and a scale for each row, as torchao keeps them."""

    def __new__(cls, numbers: torch.Tensor, scales: torch.Tensor) -> "Rescaled":
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=torch.bfloat16, requires_grad=False)

    def __init__(self, numbers: torch.Tensor, scales: torch.Tensor) -> None:
        self.numbers, self.scales = numbers, scales

    def __tensor_flatten__(self):
        return ["numbers", "scales"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        assert func is torch.ops.aten.detach.default  # nn.Parameter asks for it
        return cls(args[0].numbers, args[0].scales)


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        return torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])


@pytest.mark.parametrize(
    ("make", "count", "nbytes"),
    [
        (lambda: torch.zeros(3, dtype=torch.complex64), 3, 24),
        (lambda: torch.zeros(4, dtype=torch.float8_e4m3fn), 4, 4),
        (lambda: torch.zeros(7, dtype=torch.bool), 7, 7),
        (lambda: torch.zeros(0, 5), 0, 0),
        (lambda: torch.tensor(1.0), 1, 4),
        (lambda: torch.eye(50).to_sparse(), 2500, 50 * (2 * 8 + 4)),
        (lambda: torch.eye(50).to_sparse_csc(), 2500, 51 * 8 + 50 * (8 + 4)),
        (nested, 18, 72),
        (lambda: Rescaled(torch.zeros(4, 8, dtype=torch.int8), torch.zeros(4, 1)), 32, 32 + 16),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CS[CR] tensor support is in beta:UserWarning")
def test_tensors_of_every_kind_count_with_the_bytes_that_they_take(make, count: int, nbytes: int) -> None:
    report = params(module(weight=nn.Parameter(make(), requires_grad=False)))
    assert (report.total, report.trainable, report.parameter_bytes) == (count, 0, nbytes)
    model = nn.Module()
    model.register_buffer("table", make())
    assert (params(model).buffers, params(model).buffer_bytes) == (count, nbytes)


def test_a_scripted_model_counts_as_the_one_that_it_was_made_of() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises against TorchScript
        scripted, traced = torch.jit.script(model), torch.jit.trace(model.eval(), torch.zeros(2, 3))
    for each in (scripted, traced):
        assert params(each).rows == params(model).rows


def test_by_kind_by_role_and_by_parameter() -> None:
    report = params(MIXED)
    assert [line.cells[:3] for line in report.sheet("kind").lines] == [("Linear", 2, 46), ("BatchNorm1d", 1, 4)]
    assert [line.cells[:3] for line in report.sheet("role").lines] == [
        ("weight", 2, 40),
        ("bias", 2, 6),
        ("norm", 1, 4),
    ]
    lines = [line.cells[:3] for line in report.sheet("parameter").lines]
    assert lines[:2] == [("0.weight", "4 8", "float16"), ("0.bias", "4", "float16")]
    with pytest.raises(InputError, match=r"no table by kinds; did you mean kind\?: there are those by module, kind"):
        report.sheet("kinds")


def test_names_of_tied_parameters() -> None:
    assert params(tied("cpu")).tied == (("0.weight", "1.weight"),)
    (line,) = params(tied("cpu")).sheet("parameter").lines
    assert line.cells[-1] == "also 1.weight"


# Exclusions: section 15.1 of the chapter

BASE = transformer.TransformerConfig(vocab=11, d_model=512, n_heads=8, d_ff=2048, n_layers=1)


def test_the_counts_of_the_chapter_come_out() -> None:
    with torch.device("meta"):
        report = params(transformer.Transformer(BASE), only="weights")
    rows = {row.path: row.parameters for row in report.rows}
    assert rows["encoder.layers.0"] == 3_145_728
    assert rows["decoder.layers.0"] == 4_194_304
    assert rows["encoder.layers.0.attention"] == 1_048_576
    assert rows["encoder.layers.0.ffn"] == 2_097_152
    assert report.total == 3_145_728 + 4_194_304  # and no table of embeddings, though the head is tied to it


class Zoo(nn.Module):
    """Parameters of all roles, held in all ways."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, 7, 4))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.attention = nn.MultiheadAttention(4, 2)
        self.norm = weight_norm(nn.Linear(4, 4))  # the name of the attribute says nothing: it is no norm
        self.rms = nn.RMSNorm(4)
        self.rnn = nn.LSTM(4, 2)
        self.maps = nn.ParameterList([nn.Parameter(torch.zeros(4, 4))])
        self.named = nn.ParameterDict({"bias": nn.Parameter(torch.zeros(4))})
        self.table = nn.EmbeddingBag(5, 4)


def test_roles() -> None:
    roles: dict[str, list[str]] = {}
    for each in params(Zoo()).parameters:
        roles.setdefault(each.role, []).append(each.path)
    assert {role: sorted(paths) for role, paths in roles.items()} == {
        "embedding": ["cls_token", "pos_embed", "table.weight"],
        "weight": [
            "attention.in_proj_weight",
            "attention.out_proj.weight",
            "maps.0",
            "norm.parametrizations.weight.original0",
            "norm.parametrizations.weight.original1",
            "rnn.weight_hh_l0",
            "rnn.weight_ih_l0",
        ],
        "bias": [
            "attention.in_proj_bias",
            "attention.out_proj.bias",
            "named.bias",
            "norm.bias",
            "rnn.bias_hh_l0",
            "rnn.bias_ih_l0",
        ],
        "norm": ["rms.weight"],
    }


@pytest.mark.parametrize(
    ("only", "exclude", "total"),
    [
        ("biases", (), 12 + 4 + 4 + 4 + 8 + 8),
        (["norms", "embeddings"], (), 4 + 28 + 4 + 20),
        ((), ["*"], 0),
        ((), ["rnn", "table", "attention*", "norm", "maps", "named", "*_token"], 28 + 4),
        ((), ["EmbeddingBag", "LSTM"], 28 + 4 + (48 + 12 + 16 + 4) + (4 + 4 + 16) + 4 + 16 + 4),
        ("weights", ["*.original0"], 48 + 16 + 16 + 32 + 16 + 16),
    ],
)
def test_exclusions(only, exclude, total) -> None:
    assert params(Zoo(), only=only, exclude=exclude).total == total


def test_a_table_that_is_tied_to_the_head_is_an_embedding() -> None:
    model = nn.Sequential(nn.Linear(3, 11, bias=False), nn.Embedding(11, 3))
    model[1].weight = model[0].weight
    assert params(model, only="weights").total == 0


def rectified(x):
    return torch.relu(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: params(Zoo(), only="weight"),
            r"only 'weight'; did you mean weights\?: there are weights, biases",
        ),
        (lambda: params(Zoo(), exclude="rmn"), r"exclude 'rmn' matches no parameter, module or kind of layer; did you"),
        (
            lambda: params(nn.Linear),
            r"Linear is a class: give an instance, or names for its arguments",
        ),
        (lambda: params("model"), "a module or a trace has parameters, not str"),
        (lambda: params(sf.trace(rectified, "B")), "rectified is a function: only modules have parameters"),
    ],
)
def test_bad_input_is_told(call, message) -> None:
    with pytest.raises(InputError, match=message):
        call()


# What torch does not see, or not as a parameter


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = [nn.Conv2d(3, 3, 3)]
        self.towers = {"left": (nn.Linear(2, 2), nn.ReLU()), "gain": nn.Parameter(torch.zeros(5))}
        self.head = nn.Conv2d(3, 2, 1)
        self.alias = [self.head]  # registered as well: nothing is lost

    def forward(self, x):
        return self.head(self.convs[0](x))


def test_modules_in_plain_containers_are_told_and_not_counted() -> None:
    report = params(Hidden())
    assert report.total == 8
    assert [(each.path, each.kind, each.parameters) for each in report.unregistered] == [
        ("convs[0]", "Conv2d", 84),
        ("towers['left'][0]", "Linear", 6),
        ("towers['gain']", "Parameter", 5),
    ]
    assert "kept in a plain container that torch does not look into: convs[0]: 84 parameters of Conv2d" in str(report)


def test_packed_weights_of_quantised_layers_count_as_frozen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces another package for it
        layers = [nnq.Linear(4, 3), nn.ReLU(), nnq.Conv2d(3, 5, 2), nnq.Embedding(7, 2), nn.Linear(3, 2)]
    quantised = nn.Sequential(*layers)
    report = params(quantised)
    assert report.total == (12 + 3) + (60 + 5) + 14 + 8
    assert (report.trainable, report.frozen) == (8, 94)
    assert report.bytes == {"qint8": 72, "float32": 4 * (3 + 5 + 8), "quint8": 14}
    assert [row.kind for row in report.rows][:2] == ["Sequential", "QuantizedLinear"]
    assert not [row for row in report.rows if "packed" in row.path]


def test_dynamically_quantised_layers() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LSTM(3, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces another package for it
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM}, dtype=torch.qint8)
    assert params(quantised).total == params(model).total
    names = [each.path for each in params(quantised).parameters]
    assert names[:4] == ["0.weight", "0.bias", "1.weight_ih_l0", "1.weight_hh_l0"]


class Params4bit(nn.Parameter):
    """As bitsandbytes keeps weights of four bits: two in a byte."""

    quant_state = SimpleNamespace(shape=torch.Size([4, 8]))


def test_several_weights_in_a_byte_count_for_what_they_stand() -> None:
    model = nn.Linear(8, 4, bias=False)
    packed = Params4bit(torch.zeros(16, 1, dtype=torch.uint8), requires_grad=False)
    model.weight = packed
    report = params(model)
    assert (report.total, report.parameter_bytes) == (32, 16)


def test_parametrised_weights_count_what_is_stored() -> None:
    model = weight_norm(nn.Linear(4, 6))
    assert [each.path for each in params(model).parameters] == [
        "bias",
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    assert params(model).total == 6 + 6 + 24
    assert params(spectral_norm(nn.Linear(4, 6))).total == 6 + 24


# With a trace


class Partly(nn.Module):
    """`side` and all in it are not called; of `attention` the forward reads parameters without calling `out_proj`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.loop = nn.Linear(4, 4)
        self.side = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.by_hand = nn.Linear(4, 4)

    def forward(self, x):
        x, _ = self.attention(x, x, x)
        for _ in range(3):
            x = self.loop(x)
        return x @ self.by_hand.weight


@pytest.mark.parametrize("of", [lambda: params(sf.trace(Partly(), "B T 4")), lambda: params(Partly(), "B T 4")])
def test_what_the_forward_does_not_reach_is_told(of) -> None:
    report = of()
    assert report.total == params(Partly()).total
    assert report.unreached == ("side",)
    assert {row.path: row.reached for row in report.rows} == {
        "": True,
        "attention": True,
        "attention.out_proj": True,
        "loop": True,
        "side": False,
        "side.0": False,
        "side.1": False,
        "by_hand": True,
    }
    assert {row.path: row.calls for row in report.rows}["loop"] == 3
    assert "not reached by the traced forward: side" in str(report)
    assert params(Partly()).unreached == ()


def test_a_trace_counts_lazy_layers_and_leaves_the_model_lazy() -> None:
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    report = params(sf.trace(model, "B 3 8 8"))
    assert (report.total, report.lazy) == (1562, ())
    assert len(params(model).lazy) == 4


def test_a_report_keeps_its_numbers_when_the_model_changes() -> None:
    model = nn.Linear(2, 2)
    report = params(model)
    model.requires_grad_(False)
    model.bias = None
    assert (report.total, report.trainable) == (6, 6)


def test_in_a_notebook_it_is_a_table() -> None:
    assert params(nn.Linear(2, 2))._repr_html_().startswith("<table>")
