import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from shapeflow.cost import params
from shapeflow.cost.table import plain

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
        "module  kind        parameters  trainable  buffers  note",
        "(all)   Sequential          33          0        0",
        "  0     Embedding           33          0        0",
        "  1     Linear              33          0        0  weight is 0.weight",
        "",
        "33 parameters: 0 trainable, 33 frozen; 0 numbers in buffers",
    ]
    assert len(plain(params(model), depth=0).splitlines()) == 4
