"""Which line built a submodule, however it was built, and the text of the call with one argument changed."""

import linecache
import textwrap
from collections import OrderedDict
from functools import partial

import pytest
import torch
from torch import nn

from shapeflow.check.cause.constructor import constructor_line, written_call


def conv3x3(inside, outside):
    return nn.Conv2d(inside, outside, 3)


class Block(nn.Module):
    def __init__(self, width, act=None, norm=nn.LayerNorm):
        super().__init__()
        self.norm = norm(width)
        self.act = act
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.inherited = nn.Linear(1, 2)


class Many(Base):
    def __init__(self, depth=2, big=True):
        super().__init__()
        self.head = nn.Linear(10, 5)
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.ReLU(),
            nn.Sequential(
                nn.Linear(
                    7,
                    8,
                ),
            ),
        )
        self.named = nn.Sequential(OrderedDict([("a", nn.Linear(2, 3)), ("b", nn.Linear(3, 4))]))
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(depth)])
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(Block(8, act=nn.PReLU(8)))
        self.table = nn.ModuleDict({"x": nn.Linear(1, 1), "y": nn.Linear(2, 2)})
        for i in range(depth):
            self.add_module(f"conv{i}", nn.Conv1d(4, 4, 3))
            setattr(self, f"deconv{i}", nn.ConvTranspose1d(4, 4, 3))
        self.made = conv3x3(3, 8)
        self.stage = self._stage(12, depth)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(9, 9)).double()
        self.choice = nn.Linear(11, 11) if big else nn.Identity()
        layers = [nn.Linear(20, 30), nn.GELU()]
        layers.append(nn.Linear(30, 40))
        layers += [nn.Linear(40, 50)]
        self.listed = nn.Sequential(*layers)
        self.mixed = nn.Sequential(nn.Flatten(), *layers, nn.Linear(50, 60))
        alias = nn.Linear(13, 13)
        self.alias = alias
        self.same = self.head
        self.register_buffer("pe", torch.zeros(1, 20, 16))
        self.weight = nn.Parameter(torch.zeros(3))
        if big:
            self.branch = nn.Linear(100, 1)
        else:
            self.branch = nn.Linear(200, 1)

    def _stage(self, width, depth):
        layers = []
        for _ in range(depth):
            layers.append(nn.BatchNorm1d(width))
        return nn.Sequential(*layers)

    def forward(self, x):
        return x


@pytest.fixture(scope="module")
def many():
    return Many()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("head", "self.head = nn.Linear(10, 5)"),
        ("inherited", "self.inherited = nn.Linear(1, 2)"),
        ("stem.0", "nn.Conv2d(3, 16, 3),"),
        ("stem", "self.stem = nn.Sequential("),
        ("stem.2.0", "nn.Linear("),
        ("named.b", 'self.named = nn.Sequential(OrderedDict([("a", nn.Linear(2, 3)), ("b", nn.Linear(3, 4))]))'),
        ("layers.1", "self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(depth)])"),
        ("blocks.1", "self.blocks.append(Block(8, act=nn.PReLU(8)))"),
        ("blocks.1.fc", "self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)"),
        ("blocks.0.norm", "self.norm = norm(width)"),
        ("blocks.0.act", "self.blocks.append(Block(8, act=nn.PReLU(8)))"),
        ("table.y", 'self.table = nn.ModuleDict({"x": nn.Linear(1, 1), "y": nn.Linear(2, 2)})'),
        ("conv1", 'self.add_module(f"conv{i}", nn.Conv1d(4, 4, 3))'),
        ("deconv0", 'setattr(self, f"deconv{i}", nn.ConvTranspose1d(4, 4, 3))'),
        ("made", "self.made = conv3x3(3, 8)"),
        ("stage.1", "layers.append(nn.BatchNorm1d(width))"),
        ("spectral", "self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(9, 9)).double()"),
        ("choice", "self.choice = nn.Linear(11, 11) if big else nn.Identity()"),
        ("listed.0", "layers = [nn.Linear(20, 30), nn.GELU()]"),
        ("listed.2", "layers.append(nn.Linear(30, 40))"),
        ("listed.3", "layers += [nn.Linear(40, 50)]"),
        ("mixed.1", "layers = [nn.Linear(20, 30), nn.GELU()]"),
        ("mixed.5", "self.mixed = nn.Sequential(nn.Flatten(), *layers, nn.Linear(50, 60))"),
        ("alias", "alias = nn.Linear(13, 13)"),
        ("same", "self.head = nn.Linear(10, 5)"),
        ("pe", 'self.register_buffer("pe", torch.zeros(1, 20, 16))'),
        ("weight", "self.weight = nn.Parameter(torch.zeros(3))"),
        ("branch", "self.branch = nn.Linear(100, 1)"),
    ],
)
def test_the_line_of_a_submodule(many, path, code):
    found = constructor_line(many, path)
    assert found is not None
    assert found.code == code
    assert found.file.endswith("test_cause_constructor.py")


def test_both_sides_of_a_branch_have_their_line():
    assert constructor_line(Many(big=False), "branch").code == "self.branch = nn.Linear(200, 1)"


def test_a_path_that_does_not_exist_or_was_set_from_outside_has_no_line():
    model = Many()
    model.added = nn.Linear(1, 1)
    assert constructor_line(model, "nothing") is None
    assert constructor_line(model, "added") is None


@pytest.mark.parametrize(
    ("path", "changes", "text"),
    [
        ("head", {}, "nn.Linear(10, 5)"),
        ("head", {"in_features": "10 * 7 * 7"}, "nn.Linear(10 * 7 * 7, 5)"),
        ("stem.0", {"in_channels": "1", "padding": "1"}, "nn.Conv2d(1, 16, 3, padding=1)"),
        ("blocks.0.out", {"in_features": "8"}, "nn.Linear(8, width)"),
        ("stem.2.0", {"out_features": "9"}, "nn.Linear(7, 9)"),
        ("spectral", {"in_features": "8"}, "nn.Linear(8, 9)"),
    ],
)
def test_the_call_with_other_arguments(many, path, changes, text):
    assert written_call(many, path).changed(**changes) == text


@pytest.mark.parametrize("path", ["made", "blocks.0.norm", "pe"])
def test_a_call_of_something_else_is_no_call_of_the_class(many, path):
    assert written_call(many, path) is None


def test_an_argument_is_read_as_it_is_written(many):
    call = written_call(many, "blocks.0.fc")
    assert (call.argument("out_features"), call.argument("bias")) == ("4 * width", None)


def test_keywords_in_a_dictionary_stay():
    class Net(nn.Module):
        def __init__(self, **more):
            super().__init__()
            self.fc = nn.Linear(3, out_features=4, **more)

    assert written_call(Net(), "fc").changed(out_features="5") == "nn.Linear(3, out_features=5, **more)"


SEQUENTIAL = """
from torch import nn
net = nn.Sequential(
    nn.Conv2d(3, 8, 3),
    nn.Flatten(),
    nn.Linear(8, 10),
)
"""


def test_a_model_without_a_class_is_found_by_its_name_in_the_file(tmp_path, monkeypatch):
    file = tmp_path / "bare.py"
    file.write_text(textwrap.dedent(SEQUENTIAL))
    monkeypatch.syspath_prepend(tmp_path)
    import bare

    found = constructor_line(bare.net, "2")
    assert (found.line, found.code) == (6, "nn.Linear(8, 10),")
    assert written_call(bare.net, "2").changed(in_features="1152") == "nn.Linear(1152, 10)"


def test_a_class_without_a_source_has_no_line():
    linecache.checkcache()
    space = {"nn": nn}
    exec(
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(1, 2)",
        space,
    )
    assert constructor_line(space["Net"](), "fc") is None


def test_a_class_that_is_handed_over_is_not_taken_for_the_one_it_makes():
    assert written_call(Block(4, norm=partial(nn.LayerNorm, eps=1e-6)), "norm") is None
