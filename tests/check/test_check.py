"""The verdict: domains, conditions and their lines, branches, loops, tables, several faults of one run."""

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import shapeflow as sf


class Positions(nn.Module):
    """A table of positions that `reach` shifts."""

    def __init__(self, rows, shift=0):
        super().__init__()
        self.table = nn.Embedding(rows, 8)
        self.shift = shift

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "T 8"]:
        return self.table(torch.arange(ids.shape[1]) + self.shift)


class Indexed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(33, 8))

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "T 8"]:
        return self.table[torch.arange(ids.shape[1]) // 2]


class Branches(nn.Module):
    """A longer input goes through `b`."""

    def __init__(self, b):
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(b, 32)

    def forward(self, x: Float[Tensor, "B T 16"]) -> Float[Tensor, "B T 32"]:
        if x.shape[1] > 100:
            return self.b(x)
        return self.a(x)


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(16, 32)

    def forward(self, x: Float[Tensor, "B T 16"]) -> Float[Tensor, "B 32"]:
        h = x.new_zeros(x.shape[0], 32)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return h


class Third(nn.Module):
    def forward(self, x: Float[Tensor, "B T 16"]) -> Float[Tensor, "B 16"]:
        return x[:, 2] + x[:, -3]


class Patches(nn.Module):
    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Tensor:
        if x.shape[2] % 4 or x.shape[3] % 4:
            raise ValueError("H and W must be multiples of 4")
        return x.unfold(2, 4, 4).unfold(3, 4, 4)


class Pairs(nn.Module):
    """The batch has to be even."""

    def forward(self, x: Float[Tensor, "B 8"]) -> Float[Tensor, "B/2 16"]:
        return x.view(x.shape[0] // 2, 16)


class Stack(nn.Module):
    """Windows that take much of a short signal away."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 4, 10, 5), nn.Conv1d(4, 4, 3, 2), nn.Conv1d(4, 4, 3, 2))

    def forward(self, x: Float[Tensor, "B 1 T"]) -> Tensor:
        return self.layers(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(30, 32)

    def forward(self, x: Float[Tensor, "B T 16"]) -> Float[Tensor, "B T 32"]:
        x = self.a(x)
        return x + self.b(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(64, 8)

    def forward(self, x: Float[Tensor, "B T 32"]) -> Float[Tensor, "B T 8"]:
        return self.c(x)


class Faults(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.head = nn.Linear(10, 5)

    def forward(self, x: Float[Tensor, "B T 16"]) -> Float[Tensor, "B 5"]:
        return self.head(self.decoder(self.encoder(x)).mean(1))


def found(report, rule):
    return [problem for problem in report.problems if problem.rule == rule]


@pytest.mark.parametrize(
    "model, specs, domain",
    [
        (Positions(64), (), "B >= 1, 1 <= T <= 64"),
        (Positions(64, shift=2), (), "B >= 1, 1 <= T <= 62"),
        (Indexed(), (), "B >= 1, 1 <= T <= 66"),
        (Branches(16), (), "B >= 1, T >= 1"),
        (Branches(17), (), "B >= 1, 1 <= T <= 100"),
        (Third(), (), "B >= 1, T >= 3"),
        (Patches(), (), "B >= 1, H >= 4, W >= 4, H % 4 == 0, W % 4 == 0"),
        (Stack(), (), "B >= 1, T >= 40"),
        (nn.Linear(4, 2), ("B T<=9 4",), "B >= 1, 1 <= T <= 9"),
        (nn.Linear(4, 2), ("B T>=5 4",), "B >= 1, T >= 5"),
        (nn.Linear(4, 2), ("3 4",), ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_domains(model, specs, domain):
    report = sf.check(model, *specs)
    assert str(report.domain) == domain
    assert report.finished


def test_a_bound_that_the_spec_declares_is_no_finding():
    assert sf.check(Positions(64), "B T<=64:int64").problems == ()


def test_a_bound_that_it_does_not_is_told_once_with_its_line():
    (problem,) = sf.check(Positions(200)).problems
    assert (problem.rule, problem.level, problem.dims) == ("SF104", "note", ("T",))
    assert problem.message == "Embedding 'table' has 200 rows, and its indices reach T - 1"
    assert problem.code == "return self.table(torch.arange(ids.shape[1]) + self.shift)"
    assert problem.witness is not None and problem.witness["T"] == 201


def test_a_short_table_is_an_error():
    (problem,) = sf.check(Positions(20)).problems
    assert (problem.rule, problem.level) == ("SF102", "error")


def test_both_sides_of_a_branch_on_a_size_are_run():
    (problem,) = found(sf.check(Branches(16)), "SF105")
    assert problem.message == "the code goes two ways, by T <= 100: both run"
    assert problem.code == "if x.shape[1] > 100:"


def test_a_side_that_crashes_is_shown_by_a_size_on_it():
    report = sf.check(Branches(17))
    (problem,) = found(report, "SF102")
    assert problem.message == "Linear 'b' takes 17, gets 16: in_features is wrong"
    assert problem.witness is not None and problem.witness["T"] == 101
    assert problem.fix == "nn.Linear(16, 32)" or "b" in problem.fix


def test_a_loop_over_a_size_says_for_which_sizes_it_was_run():
    report = sf.check(Loop())
    (problem,) = found(report, "SF106")
    assert problem.message.startswith("a loop runs over T: checked for T = ")
    assert report.ok and report.runs < 20


def test_what_the_code_itself_refuses_is_a_note():
    report = sf.check(Patches())
    assert report.ok
    notes = found(report, "SF104")
    assert notes[0].message == "ValueError: H and W must be multiples of 4"


def test_a_condition_on_the_batch_is_a_problem_of_its_own():
    (problem,) = found(sf.check(Pairs()), "SF103")
    assert problem.level == "error" and problem.dims[0] == "B"


def test_every_fault_of_one_run_is_told():
    report = sf.check(Faults())
    assert [problem.module for problem in report.problems] == ["encoder.b", "decoder.c", "head"]
    assert {problem.rule for problem in report.problems} == {"SF101"}


def test_what_could_not_be_run_is_no_shape_error():
    class Missing(nn.Module):
        def forward(self, x):
            return x @ self.weigth

    report = sf.check(Missing(), "B 4")
    (problem,) = report.problems
    assert report.ok and report.domain is None
    assert (problem.rule, problem.level) == ("SF402", "note")
    assert "AttributeError" in problem.message


def test_a_limit_stops_with_what_was_found():
    report = sf.check(nn.Sequential(*(nn.Linear(8, 8) for _ in range(30))), "B T 8", limit=0.0)
    assert not report.finished
    (problem,) = found(report, "SF403")
    assert problem.message.startswith("stopped after 0 s")


def test_the_model_is_as_before():
    model = Faults()
    before = {name: id(each) for name, each in model.named_parameters()}
    sf.check(model)
    assert {name: id(each) for name, each in model.named_parameters()} == before
    assert not model.encoder.b._forward_hooks


def test_a_parameter_of_the_forward_may_be_called_target():
    class Loss(nn.Module):
        def forward(self, x, target):
            return x - target

    assert sf.check(Loss(), x="B 4", target="B 4").ok


class Windows(nn.Module):
    """The second window needs more of an image than the first, and a norm between them hides it."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.down = nn.Conv1d(3, 8, 4, 4), nn.LayerNorm(8), nn.Conv1d(8, 8, 2, 2)

    def forward(self, x):
        return self.down(self.norm(self.stem(x).mT).mT).mean(-1)


def test_an_input_that_is_too_short_for_a_later_window_is_no_fault():
    report = sf.check(Windows(), "B 3 T")
    assert report.ok and {problem.rule for problem in report.problems} == {"SF104"}
    assert str(report.domain) == "B >= 1, T >= 8"
