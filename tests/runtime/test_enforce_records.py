"""Records that hold tensors, NamedTuples and TypedDicts, and the settings of a module that say what a dim is."""

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, List, NamedTuple, NotRequired, TypedDict, Unpack  # noqa: UP035  # old names are annotations too

import pytest
import torch
from jaxtyping import Float, Int, TypeCheckError
from torch import Tensor, nn

import shapeflow as sf

zeros = torch.zeros


@sf.typed
class Out(NamedTuple):
    """Checked when it is made."""

    logits: Float[Tensor, "B T"]
    scores: Float[Tensor, " B"]
    name: str = "out"


class Plain(NamedTuple):
    """Checked where it is passed alone."""

    logits: Float[Tensor, "B T"]
    scores: "Float[Tensor, ' B']"


class Tree(NamedTuple):
    value: Float[Tensor, " B"]
    below: "Tree | None" = None


class Words(TypedDict):
    ids: Int[Tensor, "B T"]
    inner: NotRequired["Words"]


@sf.typed
def passes(out: Plain, more: Float[Tensor, " T"] | None = None) -> Plain:
    return out


@sf.typed
def gives(x: Float[Tensor, "B T"], scores: Tensor) -> tuple[Plain, int]:
    return Plain(x, scores), 1


@sf.typed
def several(outs: list[Plain], trees: dict[str, Tree] | None = None) -> None: ...


@sf.typed
def options(**given: Unpack[Words]) -> None: ...


@sf.typed
def old(xs: List[Float[Tensor, "B d"]], numbers: List[int] = [1]) -> None: ...  # noqa: B006, UP006


GOOD = Plain(zeros(2, 3), zeros(2))
WRONG = Plain(zeros(2, 3), zeros(5))


@pytest.mark.parametrize(
    "run",
    [
        lambda: Out(zeros(2, 3), zeros(2)),
        lambda: passes(GOOD, zeros(3)),
        lambda: gives(zeros(2, 3), zeros(2)),
        lambda: several([GOOD, GOOD], {"a": Tree(zeros(2), Tree(zeros(2)))}),
        lambda: options(ids=zeros(2, 3).long(), inner={"ids": zeros(2, 3).long()}),
        lambda: old([zeros(2, 3)]),
        lambda: WRONG,  # nobody enforces it here
    ],
)
def test_records_that_hold_what_they_say(run: Callable[[], Any]) -> None:
    run()
    run()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: Out(zeros(2, 3), zeros(5)), r"'scores' of Out.__new__ .* axis 0 is 5, and B is 2 \(axis 0 of logits"),
        (lambda: Out(zeros(2, 3), scores=zeros(2), name=3), r"'name' of Out.__new__ is declared str, .* an int: 3"),
        (lambda: passes(WRONG), r"out.scores of passes .* axis 0 is 5, and B is 2 \(axis 0 of out.logits\)"),
        (lambda: passes(GOOD, zeros(2)), r"'more' of passes .* axis 0 is 2, and T is 3 \(axis 1 of out.logits\)"),
        (lambda: passes((zeros(2, 3), zeros(2))), r"'out' of passes is declared Plain, but it is a tuple of 2"),
        (lambda: gives(zeros(2, 3), zeros(5)), r"the result\[0\].scores of gives .* axis 0 is 5, and B is 2"),
        (lambda: several([GOOD, WRONG]), r"outs\[1\].scores of several .* axis 0 is 5, and B is 2"),
        (lambda: several([GOOD], {"a": Tree(zeros(5))}), r"trees\['a'\].value of several .* axis 0 is 5, and B is 2"),
        (lambda: options(ids=zeros(2, 3)), r"given\['ids'\] of options .* its dtype is float32"),
        (lambda: options(), r"'given' of options is declared Words, but it has no 'ids'"),
        (lambda: old([zeros(2, 3), zeros(3, 3)]), r"xs\[1\] of old .* axis 0 is 3, and B is 2"),
    ],
)
def test_a_field_that_does_not_fit(run: Callable[[], Any], message: str) -> None:
    for _ in range(2):
        with pytest.raises(TypeCheckError, match=message):
            run()


def test_one_wrong_field_is_found_though_the_same_call_passed_before() -> None:
    passes(GOOD)
    with pytest.raises(TypeCheckError):
        passes(GOOD._replace(scores=zeros(3)))


def test_a_named_tuple_stays_one() -> None:
    out = Out(zeros(2, 3), zeros(2))
    assert out._fields == ("logits", "scores", "name")
    assert out._replace(name="other").name == "other"
    assert Out._make(out) is not out
    for each in (copy.copy(out), pickle.loads(pickle.dumps(out))):
        assert type(each) is Out
        assert torch.equal(each.logits, out.logits)
    logits, scores, name = out
    assert (logits.shape, scores.shape, name) == ((2, 3), (2,), "out")
    compiled = torch.compile(lambda x: Out(x, x[:, 0]).scores * 2, backend="eager", fullgraph=True)
    assert compiled(zeros(2, 3)).shape == (2,)


class Config:
    """Settings as transformers has them."""

    def __init__(self, d_model: int) -> None:
        self.d_model = d_model


@dataclass
class Settings:
    d_model: int = 6


class Network(nn.Module):
    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)

    @sf.typed
    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return x


@pytest.mark.parametrize("held", [{"config": Config(6)}, {"cfg": Settings()}, {"config": {"d_model": 6}}])
def test_a_size_of_the_settings(held: dict[str, Any]) -> None:
    (name,) = held
    network = Network(**held)
    for _ in range(2):
        network(zeros(2, 3, 6))
        with pytest.raises(TypeCheckError, match=rf"axis 2 is 7, and d_model is 6 \({name}.d_model of this Network\)"):
            network(zeros(2, 3, 7))


def test_settings_may_change_and_an_attribute_of_the_module_comes_first() -> None:
    network = Network(config=Config(6))
    network(zeros(2, 3, 6))
    network.config.d_model = 7
    network(zeros(2, 3, 7))
    with pytest.raises(TypeCheckError, match="d_model is 7"):
        network(zeros(2, 3, 6))
    network.d_model = 8
    network(zeros(2, 3, 8))
    with pytest.raises(TypeCheckError, match=r"d_model is 8 \(an attribute of this Network\)"):
        network(zeros(2, 3, 7))


@pytest.mark.parametrize("held", [{}, {"config": None}, {"config": Config(True)}, {"config": "settings"}])
def test_settings_that_say_nothing(held: dict[str, Any]) -> None:
    network = Network(**held)
    network(zeros(2, 3, 6))
    network(zeros(2, 3, 7))


def test_the_note_of_explain_tells_the_settings_too() -> None:
    with pytest.raises(TypeCheckError) as caught, sf.explain():
        Network(config=Config(6))(zeros(2, 3, 7))
    assert "d_model = 6 (config.d_model of Network)" in caught.value.__notes__[0]


def test_what_a_generator_is_declared_to_be_is_not_beartypes() -> None:
    @sf.typed
    def rows(x: Float[Tensor, "B d"]) -> Iterator[Float[Tensor, " d"]]:
        yield from x

    assert len(list(rows(zeros(2, 3)))) == 2
