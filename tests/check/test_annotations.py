"""Annotations against what flows through them: every line of a message."""

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor, nn

import shapeflow as sf


class Head(nn.Module):
    def __init__(self, d_model=16, n_heads=4):
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.wide = nn.Linear(d_model, 3 * d_model)

    def split(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B n_heads T d_head"]:
        return x.unflatten(-1, (self.n_heads, -1))  # a transpose is missing

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        self.split(x)
        return self.wide(x)


class Longer(nn.Module):
    def forward(self, x: Float[Tensor, "B T 8"]) -> Float[Tensor, "B T 8"]:
        return torch.cat((x, x[:, :1]), 1)


class Ranks(nn.Module):
    def forward(self, x: Float[Tensor, "B T 8"]) -> Float[Tensor, "B 8"]:
        return x


class Formula(nn.Module):
    def forward(self, x: Float[Tensor, "B T 8"]) -> Float[Tensor, "B T-1 8"]:
        return x[:, 1:]


class Two(nn.Module):
    def forward(self, x: Float[Tensor, "B T 8"], y: Float[Tensor, "B S 8"]) -> Float[Tensor, "B T S"]:
        return y @ x.transpose(1, 2)


class Batches(nn.Module):
    def forward(self, x: Float[Tensor, "*batch 8"]) -> Float[Tensor, "*batch 8"]:
        return x.flatten(0, -2)


def messages(report):
    return [(problem.rule, problem.message, problem.code) for problem in report.problems if problem.rule >= "SF2"]


@pytest.mark.parametrize(
    "model, specs, expected",
    [
        (
            Head(),
            (),
            [
                (
                    "SF202",
                    "the result of Head.split is declared B n_heads T d_head, but axis 1 is T, "
                    "and n_heads is 4 in this Head",
                    "return x.unflatten(-1, (self.n_heads, -1))  # a transpose is missing",
                ),
                (
                    "SF202",
                    "the result of Head is declared B T d_model, but axis 2 is 48, and d_model is 16 in this Head",
                    "return self.wide(x)",
                ),
            ],
        ),
        (
            Longer(),
            (),
            [
                (
                    "SF201",
                    "the result of Longer is declared B T 8, but axis 1 is T + 1, and T is T already (x, axis 1)",
                    "return torch.cat((x, x[:, :1]), 1)",
                )
            ],
        ),
        (Ranks(), (), [("SF204", "the result of Ranks is declared B 8, but has 3 axes: B T 8", "return x")]),
        (Formula(), (), []),
        (
            Two(),
            (),
            [
                (
                    "SF201",
                    "the result of Two is declared B T S, but axis 1 is S, and T is T already (x, axis 1)",
                    "return y @ x.transpose(1, 2)",
                )
            ],
        ),
        (
            Batches(),
            ("B T 8",),
            [
                (
                    "SF201",
                    "the result of Batches is declared *batch 8, but *batch is B*T here and B T before",
                    "return x.flatten(0, -2)",
                )
            ],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_messages(model, specs, expected):
    assert messages(sf.check(model, *specs)) == expected


def test_a_witness_is_the_sizes_of_the_run():
    (problem,) = [each for each in sf.check(Longer()).problems if each.rule == "SF201"]
    assert problem.witness is not None and set(problem.witness) == {"B", "T"}
    assert problem.dims == ("T",)
    assert problem.details == ("its shape is B (T + 1) 8",)


def test_an_annotation_that_cannot_be_read_is_told():
    class Odd(nn.Module):
        def forward(self, x: Float[Tensor, "B T 8"]) -> Float[Tensor, "B T<=9 8"]:
            return x

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd = Odd()

        def forward(self, x: Float[Tensor, "B T 8"]) -> Float[Tensor, "B T 8"]:
            return self.odd(x)

    (problem,) = [each for each in sf.check(Outer()).problems if each.rule == "SF203"]
    assert problem.level == "warning"
    assert "cannot be read: jaxtyping takes a bound for a size" in problem.message


class Braces(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.d = d
        self.map = nn.Linear(d, d)

    @jaxtyped(typechecker=beartype)
    def forward(self, x: Float[Tensor, "B T {self.d}"]) -> Float[Tensor, "B {x.shape[1]} {self.d}"]:
        return self.map(x)


def test_braces_in_annotations_are_followed() -> None:
    report = sf.check(Braces(5))
    assert report.problems == () and str(report.domain) == "B >= 1, T >= 1"


class Unkept(nn.Module):
    """Its constructor's argument is the name of a dim, and no attribute keeps it."""

    def __init__(self, d_in: int) -> None:
        super().__init__()
        self.map = nn.Linear(d_in, 7)

    def forward(self, x: Float[Tensor, "B d_in"]) -> Float[Tensor, "B d_out"]:
        return self.map(x)


def test_an_argument_that_the_module_did_not_keep_is_no_error() -> None:
    report = sf.check(Unkept(5))
    assert report.ok and str(report.domain) == "B >= 1, d_in == 5"
    assert [(each.rule, each.level) for each in report.problems] == [("SF104", "note")]
