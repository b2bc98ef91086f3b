"""The loud cases of `tests/cases/shape_bugs`: the note names the line that is at fault and the dim that is wrong."""

import re
from pathlib import Path

import pytest
import torch

import shapeflow as sf
from shapeflow.importer import import_module

CASES = {path.stem[:2]: path for path in sorted((Path(__file__).parents[1] / "cases" / "shape_bugs").glob("*.py"))}
DIMS = {
    "01": r"axis 1 of x.flatten\(1\) is 490.*gets 490 = 10\*7\*7",
    "02": r"axis 3 of x is 7, .*gets 7, the last axis",
    "05": r"axis 1 of x is 1, stem.weight is for 3 channels",
    "06": r"axis 2 of up is 34, axis 2 of skip is H = 35.*halving an odd H rounds down",
    "07": r"axis 2 of y is 8, axis 2 of self.short\(x\) is 16.*'conv2' makes 8 of 16 \(stride=2\)",
    "10": r"axis 1 of x is T = 33, .* is 20.*table 'pe' has 20 rows, x has T = 33",
    "12": r"4 \* \(30//4 = 7\) = 28, not 30: self.heads does not divide 30",
    "13": r"axis 2 of mem is 48, axis 1 of k.weight is 32",
    "15": r"axis 1 of x is T = 7, bn is for 24",
    "16": r"axis 1 of target is T = 6: axis 1 of logits is taken for the classes",
    "17": r"axis 2 of z is N = 18, axis 1 of map.weight is 24",
    "21": r"axis 2 of y is 31, axis 2 of x is 32.*'up' makes 31 of 16 \(output_padding=0\)",
}
FIXES = {
    "01": "nn.Linear(10 * 7 * 7, 5)",
    "02": "self.head(x.flatten(1))",
    "05": "nn.Conv2d(1, 16, 3, padding=1)",
    "06": "resize up to skip.shape[-2:]",
    "07": "nn.Conv2d(16, 16, 3, stride=1, padding=1)",
    "10": "size 'pe' for the longest T you accept",
    "12": "heads=5 (30 % 5 == 0)",
    "13": "nn.Linear(48, 32)",
    "15": "self.bn(x.transpose(1, 2)).transpose(1, 2)",
    "16": "F.cross_entropy(logits.transpose(1, 2), target)",
    "17": "self.map(z.transpose(1, 2))",
    "21": "output_padding=1",
}


def loud():
    for number, path in CASES.items():
        case = import_module(str(path))
        if case.META["runtime"].startswith("raises"):
            yield number, case


def inputs_of(case, spec):
    for each in spec.values():
        sizes = {**each["sizes"], **getattr(case, "BREAK_SIZES", {})}
        shape = [sizes.get(dim, dim) for dim in each["shape"]]
        whole = each["dtype"] == "int64"
        yield torch.randint(0, each.get("high", 2), shape) if whole else torch.randn(shape)


LOUD = dict(loud())


def test_the_tables_hold_all_loud_cases():
    assert LOUD.keys() == DIMS.keys() == FIXES.keys()


@pytest.mark.parametrize("number", LOUD)
def test_the_note_names_line_dim_and_fix(number):
    case = LOUD[number]
    model, spec = case.make()
    with pytest.raises(Exception) as caught, sf.explain():
        model(*inputs_of(case, spec))
    (note,) = caught.value.__notes__
    assert case.META["line"] in note
    assert re.search(DIMS[number], note, flags=re.DOTALL)
    assert f"fix: {FIXES[number]}" in note or FIXES[number] in note.partition("fix: ")[2]
    assert "fault of shapeflow's own" not in note


@pytest.mark.parametrize("number", LOUD)
def test_what_is_mended_has_no_note(number):
    case = LOUD[number]
    model, spec = case.make_fixed()
    with sf.explain():
        model(*inputs_of(case, spec))
