"""Comparing graphs: what is paired with what, and what is told of the pairs."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import shapeflow as sf
from models.gpt import toy as gpt
from shapeflow.graph import Block, build, collapse, diff
from shapeflow.trace.result import ModuleInfo
from tests.handmade import Model, block, toy


def told(difference):
    """What was added, removed and changed, as short texts."""
    return {
        "added": [_name(node) for node in difference.added],
        "removed": [_name(node) for node in difference.removed],
        "changed": [f"{_name(each.after)}: {', '.join(each.reasons)}" for each in difference.changed],
    }


def _name(node):
    return node.name if isinstance(node, Block) else node.operator or node.name


def nothing(**but):
    return {"added": [], "removed": [], "changed": []} | but


def sequence(*layers: nn.Module, spec: str = "B 8"):
    return sf.trace(nn.Sequential(*layers), spec)


class Layer(nn.Module):
    """A branch with a norm before it or after it, under a name that can be chosen."""

    def __init__(self, *, first: bool, name: str, norm: type[nn.Module]) -> None:
        super().__init__()
        self.norm = norm(8)
        setattr(self, name, nn.Linear(8, 8))
        self.first, self.name = first, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = getattr(self, self.name)
        return x + branch(self.norm(x)) if self.first else self.norm(x + branch(x))


def stack(layers: int = 3, *, first: bool = True, name: str = "mix", norm: type[nn.Module] = nn.LayerNorm):
    return sf.trace(nn.Sequential(*(Layer(first=first, name=name, norm=norm) for _ in range(layers))), "B T 8")


def test_no_difference() -> None:
    found = diff(build(toy(2).trace()), build(toy(2).trace()))
    assert not found
    assert told(found) == nothing()


class Mixer(nn.Module):
    """Operators with arguments that no shape tells."""

    def __init__(
        self, *, dim: int = -1, p: float = 0.1, eps: float = 1e-5, scale: float = 0.5, kernel: int = 3
    ) -> None:
        super().__init__()
        self.dim, self.scale = dim, scale
        self.norm, self.drop = nn.LayerNorm(8, eps=eps), nn.Dropout(p)
        self.pool = nn.AvgPool1d(kernel, 1, kernel // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        weights = (self.scale * y @ y.transpose(1, 2)).softmax(self.dim)
        return self.pool(self.drop(weights @ y))


class Shorter(Mixer):
    """The same, otherwise spelt."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        weights = torch.softmax(self.scale * y @ torch.transpose(y, -1, -2), dim=2)
        return self.pool(nn.functional.dropout(weights @ y, p=0.1, training=self.training))


def mixer(**options):
    return sf.trace(Mixer(**options), "B T 8")


ARGUMENTS = [
    ({"dim": 1}, "softmax", "dim -1 -> 1"),
    ({"p": 0.2}, "dropout", "p 0.1 -> 0.2"),
    ({"eps": 1e-6}, "layer_norm", "eps 1e-05 -> 1e-06"),
    ({"scale": 0.25}, "mul", "other 0.5 -> 0.25"),
    ({"kernel": 5}, "avg_pool1d", "kernel_size (3,) -> (5,), padding (1,) -> (2,)"),
]


@pytest.mark.parametrize(("options", "operator", "text"), ARGUMENTS, ids=[text for _, _, text in ARGUMENTS])
def test_arguments_that_no_shape_tells(options, operator: str, text: str) -> None:
    found = sf.diff(mixer(), mixer(**options))
    assert [each.removeprefix("r") for each in told(found)["changed"]] == [f"{operator}: arguments"]
    assert text in str(found)


def test_a_stride_is_told_with_the_shapes_that_it_changes() -> None:
    found = sf.diff(*(sf.trace(nn.Conv1d(8, 8, 3, stride=stride), "B 8 T") for stride in (1, 2)))
    assert told(found)["changed"][0] == "conv1d: shapes, arguments"
    assert "stride (1,) -> (2,)" in str(found)


def test_a_flag_that_was_off() -> None:
    def attend(x: torch.Tensor, causal: bool) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)

    found = sf.diff(*(sf.trace(lambda x, on=on: attend(x, on), "B T 8") for on in (False, True)))
    assert "is_causal False -> True" in str(found)


def test_the_same_arguments_otherwise_written_are_no_difference() -> None:
    mine, other = Mixer(), Shorter()
    other.drop = nn.Identity()
    changed = told(sf.diff(sf.trace(mine, "B T 8"), sf.trace(other, "B T 8")))["changed"]
    assert not [each for each in changed if "arguments" in each]


def test_sizes_that_the_shapes_tell_are_not_told_again() -> None:
    def heads(n: int):
        return sf.trace(lambda x: x.view(*x.shape[:2], n, -1).transpose(1, 2).reshape(x.shape[0], -1), "B T 24")

    assert told(sf.diff(heads(4), heads(6)))["changed"] == ["view: shapes", "transpose: shapes"]


def test_a_file_from_before_arguments_were_saved_is_no_difference(tmp_path: Path) -> None:
    mixer().save(tmp_path / "new.json")
    text = re.sub(r', "arguments": \{[^\n]*\}\}', "}", (tmp_path / "new.json").read_text())
    (tmp_path / "old.json").write_text(text)
    assert "arguments" not in text
    assert not sf.diff(tmp_path / "old.json", mixer(p=0.3))
    assert sf.diff(tmp_path / "new.json", mixer(p=0.3))


def test_two_traces_of_a_model_are_the_same() -> None:
    assert not sf.diff(sf.trace(gpt()), sf.trace(gpt()))


def test_a_block_more_is_one_thing_and_shifts_nothing() -> None:
    found = diff(build(toy(1).trace()), build(toy(2).trace()))
    assert told(found) == nothing(added=["@blocks.1"])
    assert (found.added[0].operators, found.added[0].parameters) == (13, 12608)
    back = diff(build(toy(2).trace()), build(toy(1).trace()))
    assert told(back) == nothing(removed=["@blocks.1"])


def test_parameters_of_a_block_more() -> None:
    found = sf.diff(sf.trace(gpt()), sf.trace(gpt(n_layers=3)))
    assert all(name.startswith("blocks.2.") for name in found.parameters_added)
    assert len(found.parameters_added) == 10
    assert (found.parameters_removed, found.parameters_changed, found.domain) == ((), (), None)


def small(*, gate="gelu", width="d_model", swap=False, drop=False):
    model = Model("Small", d_model=8, d_ff=16)
    x, y = model.input("x", "B T"), model.input("y", "B T")
    x = model.op("dropout", x, out="B T") if drop else x
    with model.module("up", "Linear"):
        h = model.op("linear", x, out=f"B {width}", reads=("up.weight",))
    model.parameters["up.weight"] = model.shape(f"{width} T")
    h = model.op(gate, h, out=f"B {width}")
    model.output(model.op("cat", *((y, h) if swap else (h, y)), out="B T"))
    return build(model.trace())


OPERATORS = [
    ({"gate": "relu"}, nothing(added=["relu"], removed=["gelu"])),
    ({"width": "d_ff"}, nothing(changed=["linear: shapes", "gelu: shapes"])),
    ({"swap": True}, nothing(changed=["cat: inputs"])),
    ({"drop": True}, nothing(added=["dropout"])),
]


@pytest.mark.parametrize(("change", "expected"), OPERATORS, ids=[str(change) for change, _ in OPERATORS])
def test_operators_that_are_other(change: dict, expected: dict) -> None:
    found = diff(small(), small(**change))
    assert told(found) == expected
    assert found.parameters_changed == (("up.weight",) if "width" in change else ())
    back = diff(small(**change), small())
    assert told(back) == expected | {"added": expected["removed"], "removed": expected["added"]}


LAYERS = [
    (
        "put in between",
        sequence(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
        sequence(nn.Linear(8, 16), nn.Dropout(), nn.ReLU(), nn.Linear(16, 4)),
        nothing(added=["@1"], changed=["@2: renamed", "@3: renamed"]),
    ),
    (
        "another class",
        sequence(nn.Linear(8, 16), nn.ReLU()),
        sequence(nn.Linear(8, 16), nn.GELU()),
        nothing(added=["gelu"], removed=["relu"], changed=["@1: class"]),
    ),
    (
        "wider",
        sequence(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
        sequence(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)),
        nothing(changed=["linear: shapes", "relu: shapes"]),
    ),
    (
        "no bias",
        sequence(nn.Linear(8, 4)),
        sequence(nn.Linear(8, 4, bias=False)),
        nothing(changed=["linear: parameters"]),
    ),
    ("another name", stack(), stack(name="attention"), nothing(changed=[f"@{i}.attention: renamed" for i in range(3)])),
    ("one more in front", stack(3), stack(4), nothing(added=["@3"])),
]


@pytest.mark.parametrize(
    ("before", "after", "expected"), [case[1:] for case in LAYERS], ids=[case[0] for case in LAYERS]
)
def test_modules_that_are_other(before, after, expected: dict) -> None:
    assert told(sf.diff(before, after)) == expected


def test_parameters_follow_a_module_with_another_name() -> None:
    found = sf.diff(stack(), stack(name="attention"))
    assert found
    assert (found.parameters_added, found.parameters_removed, found.parameters_changed) == ((), (), ())


def test_a_stack_with_unlike_blocks_is_matched_by_what_they_do() -> None:
    unlike = [nn.Linear(8, width) for width in (16, 8)]
    before = sequence(unlike[0], nn.Linear(16, 8))
    after = sequence(nn.Linear(8, 8), *[nn.Linear(8, 16), nn.Linear(16, 8)])
    assert told(sf.diff(before, after)) == nothing(added=["@0"], changed=["@1: renamed", "@2: renamed"])


def test_a_norm_that_runs_elsewhere_has_moved() -> None:
    found = sf.diff(stack(first=False), stack(first=True))
    moved = [each.after.name for each in found.changed if "moved" in each.reasons]
    assert moved == ["@0.norm", "@1.norm", "@2.norm"]
    assert (found.added, found.removed) == ((), ())
    assert (found.parameters_added, found.parameters_removed) == ((), ())


def test_a_block_that_went_to_another_stack_has_moved() -> None:
    def model(*, late: bool) -> Model:
        model = Model("Two")
        x = model.input("x", "B T")
        mask = model.op("tril", out="T T:bool")
        for path in ("encoder", "decoder"):
            with model.module(path, "Stack"):
                x = model.op("relu", x, out="B T")
                if late == (path == "decoder"):
                    x = block(model, f"{path}.extra", x, mask)
        model.output(x)
        return model

    found = diff(build(model(late=False).trace()), build(model(late=True).trace()))
    assert "@decoder.extra: moved" in told(found)["changed"]
    assert (found.added, found.removed) == ((), ())


def test_blocks_that_changed_places_have_moved() -> None:
    before = sequence(nn.Linear(8, 8), nn.Conv1d(1, 1, 3, padding=1), spec="1 8")
    after = sequence(nn.Conv1d(1, 1, 3, padding=1), nn.Linear(8, 8), spec="1 8")
    found = sf.diff(before, after)
    assert (found.added, found.removed) == ((), ())
    assert sorted(each.reasons for each in found.changed if isinstance(each.after, Block)) == [
        ("moved", "renamed"),
        ("renamed",),
    ]
    assert (found.parameters_added, found.parameters_removed, found.parameters_changed) == ((), (), ())


def test_a_size_is_the_same_under_its_name_and_as_a_number() -> None:
    def model(width: str):
        model = Model("Net", d=8)
        model.output(model.op("relu", model.input("x", f"B {width}"), out=f"B 2*{width}"))
        return build(model.trace())

    assert not diff(model("d"), model("8"))
    assert diff(model("d"), model("9"))


def test_other_names_for_the_same_free_sizes() -> None:
    def model(batch: str, spec: str):
        model = Model("Net")
        model.free = (batch, "T")
        model.domain = ""
        model.output(model.op("relu", model.input("x", spec), out=spec))
        return build(model.trace())

    assert not diff(model("B", "B T"), model("N", "N T"))
    assert diff(model("B", "B T"), model("B", "T B"))
    assert diff(model("B", "B T"), model("N", "N N"))


def test_another_value_of_a_named_size_is_told_as_that() -> None:
    found = sf.diff(sf.trace(gpt()), sf.trace(gpt(d_ff=256)))
    assert found.sizes == {"d_ff": (128, 256)}
    assert {each.reasons for each in found.changed} == {("sizes",)}
    assert found.parameters_changed[0] == "blocks.0.ffn.up.weight"


def test_the_domain() -> None:
    found = sf.diff(sf.trace(gpt()), sf.trace(gpt(max_len=128)))
    assert found.domain == ("B >= 2, 2 <= T <= 64", "B >= 2, 2 <= T <= 128")
    assert found.parameters_changed == ("positions.table.weight",)


def test_names_that_a_trace_made_do_not_count() -> None:
    def chosen(name: str):
        model = Model("Net")
        model.fresh = {name: "nonzero"}
        model.output(model.op("mul", model.op("nonzero", model.input("x", "B T"), out=f"{name} T"), out=f"{name} T"))
        return build(model.trace())

    assert not diff(chosen("n1"), chosen("k"))


def test_parameters_that_no_operator_reads() -> None:
    class Idle(nn.Module):
        def __init__(self, *, idle: bool) -> None:
            super().__init__()
            self.used = nn.Linear(3, 4)
            if idle:
                self.idle = nn.Linear(5, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    found = sf.diff(sf.trace(Idle(idle=False), "B 3"), sf.trace(Idle(idle=True), "B 3"))
    assert found
    assert found.parameters_added == ("idle.weight", "idle.bias")
    assert told(found) == nothing()


def test_inputs_and_dtypes() -> None:
    found = sf.diff(sf.trace(lambda x: x + 1, "B T"), sf.trace(lambda y: y.double() + 1, "B T"))
    assert told(found) == nothing(added=["double"], changed=["y: renamed", "add: shapes", "output: shapes"])


def test_a_module_that_is_called_once_more() -> None:
    class Twice(nn.Module):
        def __init__(self, times: int) -> None:
            super().__init__()
            self.layer, self.times = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), times

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.times):
                x = self.layer(x)
            return x

    found = sf.diff(sf.trace(Twice(2), "B 8"), sf.trace(Twice(3), "B 8"))
    assert told(found) == nothing(added=["@layer#3"])
    assert found.parameters_added == ()


def test_saved_traces_traces_and_graphs_mix(tmp_path: Path) -> None:
    trace = sf.trace(gpt())
    trace.save(tmp_path / "gpt.json")
    assert not sf.diff(tmp_path / "gpt.json", trace)
    assert not sf.diff(str(tmp_path / "gpt.json"), trace.to_networkx())
    assert told(sf.diff(tmp_path / "gpt.json", sf.trace(gpt(n_layers=1)))) == nothing(removed=["@blocks.1"])


def test_closed_modules_tell_which_changed_inside() -> None:
    before = collapse(build(toy(2).trace()), 1)
    model = toy(2)
    model.modules["blocks.1"] = ModuleInfo("blocks.1", "DecoderBlock", 99, 1)
    found = diff(before, collapse(build(model.trace()), 1))
    assert [(each.before.name, each.after.parameters) for each in found.changed] == [("@blocks.1", 99)]


def test_models_with_nothing_in_common() -> None:
    found = sf.diff(stack(2), sf.trace(gpt()))
    assert {_name(node) for node in found.removed} >= {"@0", "@1"}
    assert {_name(node) for node in found.added} >= {"@blocks.0", "@head"}


def test_long_models_without_modules() -> None:
    def long(change: int):
        model = Model("Long")
        x = model.input("x", "B T")
        for i in range(1200):
            x = model.op("tanh" if i == change else "relu", x, out="B T")
        model.output(x)
        return build(model.trace())

    assert told(diff(long(-1), long(600))) == nothing(added=["tanh"], removed=["relu"])
