"""SF315: parameters that nothing reads, or that go into what is lost."""

import pytest
import torch
from torch import nn

from tests.check.rules.found import at_the_marked_line, found


class NormTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LayerNorm(8)
        self.second = nn.LayerNorm(8)  # here
        self.mix, self.mlp = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.mix(self.first(x))
        return x + self.mlp(self.first(x))


class Filled(NormTwice):
    """A constructor that fills what forward never reads."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(8))  # here
        nn.init.zeros_(self.gain)

    def forward(self, x):
        return self.mlp(self.mix(self.second(self.first(x))))


class Computed(NormTwice):
    def forward(self, x):
        h = self.mix(self.first(x))  # noqa: F841 that is the fault # here
        return self.mlp(self.second(x))


class Overwritten(NormTwice):
    def forward(self, x):
        y = self.mix(self.first(x))  # here
        y = self.mlp(self.second(x))
        return y


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([NormTwice() for _ in range(3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 2)})  # here

    def forward(self, x):
        for block in self.blocks:
            x = block.mix(block.first(x)) + block.mlp(block.second(x))
        return x


class Whole(nn.Module):
    """A module of its own class is told as a whole."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.spare = Kept()  # here

    def forward(self, x):
        return self.body(x)


@pytest.mark.parametrize(
    ("kind", "message", "fix"),
    [
        (NormTwice, "LayerNorm 'second' is made and never used: no output depends on it", "use self.second"),
        (Filled, "parameter 'gain' is made and never used: no output depends on it", "use self.gain"),
        (Computed, "'h' is computed with 'first' and never read: no output depends on its parameters", "read 'h'"),
        (Overwritten, "'y' is computed with 'first' and never read: no output depends on its parameters", "read 'y'"),
        (Whole, "Kept 'spare' is made and never used: no output depends on it", "use self.spare"),
        (Listed, "ModuleDict 'heads' is made and never used: no output depends on it", "use self.heads"),
    ],
)
def test_a_parameter_that_no_output_depends_on(kind, message, fix):
    problems = found("SF315", kind(), "B T 8")
    assert [problem.level for problem in problems] == ["warning"]
    (problem,) = problems
    assert at_the_marked_line(problem)
    assert problem.message == message and problem.fix == f"{fix}, or leave it out"


def test_all_blocks_of_a_class_are_told_once():
    problems = found("SF315", nn.Sequential(*(NormTwice() for _ in range(4))), "B T 8")
    assert [problem.module for problem in problems] == ["0.second"]


class Switched(NormTwice):
    """Another path may read it."""

    def forward(self, x, *, deep: bool = False):
        x = self.mix(self.first(x))
        return self.mlp(self.second(x)) if deep else self.mlp(x)


class Auxiliary(nn.Module):
    """A head for training, as Inception has it: one note."""

    def __init__(self):
        super().__init__()
        self.body, self.aux = nn.Linear(8, 8), Kept()

    def forward(self, x, *, train: bool = False):
        x = self.body(x)
        return (x, self.aux(x)) if train else x


class Kept(NormTwice):
    """Something outside may read it."""

    def forward(self, x):
        self.last = self.mix(self.first(x))
        return self.mlp(self.second(x))


@pytest.mark.parametrize(("kind", "modules"), [(Switched, ["second"]), (Auxiliary, ["aux"]), (Kept, ["first", "mix"])])
def test_what_other_code_may_read_is_a_note(kind, modules):
    problems = found("SF315", kind(), "B T 8")
    assert [problem.level for problem in problems] == ["note"] * len(problems)
    assert [problem.module for problem in problems] == modules


class Frozen(NormTwice):
    def __init__(self):
        super().__init__()
        self.second.requires_grad_(False)


class Tied(NormTwice):
    def __init__(self):
        super().__init__()
        self.second = self.first
        self.mix.weight = self.mlp.weight


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.layer = nn.Parameter(torch.zeros(8)), nn.Linear(8, 8)

    def forward(self, x):
        y = torch.zeros_like(x)
        y[:, 0] = self.start
        y[:, 1:] += self.layer(x[:, 1:])
        return y


class Moving(nn.Module):
    """A copy that follows the weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(self.weight, alpha=0.1)
        return x * self.mean


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer_0, self.layer_1 = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        for index in range(2):
            x = getattr(self, f"layer_{index}")(x)
        return x


@pytest.mark.parametrize("kind", [Frozen, Tied, Written, Moving, ByName])
def test_what_an_output_depends_on_is_no_finding(kind):
    assert found("SF315", kind(), "B T 8") == []
