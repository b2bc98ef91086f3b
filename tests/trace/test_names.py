"""Names on every axis: from annotations and attributes, by origin and never by value."""

import pytest
import torch
import torch.nn.functional as F
from beartype import beartype
from jaxtyping import Bool, Float, Int, jaxtyped
from torch import Tensor, nn

import shapeflow as sf
from models.gpt import toy
from models.masks import causal_allowed
from tests.trace.following import outputs


@pytest.fixture(scope="module")
def gpt():
    return sf.trace(toy())


def shapes(trace, module, operator):
    """What each `operator` directly in `module` gives."""
    found = [node for node in trace.nodes if node.module == module and node.operator == operator]
    assert found, f"no {operator} in {module!r}"
    return [str(shape) for node in found for shape in node.outputs]


def read(trace, module, operator):
    """What the first `operator` in `module` reads."""
    name = next(node.name for node in trace.nodes if node.module == module and node.operator == operator)
    return [str(edge.shape) for edge in trace.edges if edge.target == name]


# The table of section 15, row by row


def test_row_ids(gpt):
    (ids,) = gpt.inputs
    assert (ids.name, str(ids.outputs[0]), ids.outputs[0].dtype) == ("ids", "B T", "int64")


def test_row_embedding(gpt):
    assert shapes(gpt, "tokens.table", "embedding") == ["B T d_model"]
    assert shapes(gpt, "positions.table", "embedding") == ["T d_model"]
    assert shapes(gpt, "", "add") == ["B T d_model"]


@pytest.mark.parametrize("block", ["blocks.0", "blocks.1"])
@pytest.mark.parametrize(
    ("row", "module", "operator", "expected"),
    [
        ("Q, K, V before the split", "attn", "chunk", ["B T d_model"] * 3),
        ("Q, K, V by head", "attn", "view", ["B T n_heads d_head"] * 3),
        ("weights", "attn", "softmax", ["B n_heads T T"]),
        ("scores, mixture", "attn", "matmul", ["B n_heads T T", "B n_heads T d_head"]),
        ("concatenation", "attn", "reshape", ["B T d_model"]),
        ("projection", "attn.out", "linear", ["B T d_model"]),
        ("FFN hidden", "ffn.up", "linear", ["B T d_ff"]),
        ("FFN activation", "ffn", "gelu", ["B T d_ff"]),
        ("FFN output", "ffn.down", "linear", ["B T d_model"]),
        ("residual sums", "", "add", ["B T d_model"] * 2),
        ("norms", "ln1", "layer_norm", ["B T d_model"]),
    ],
)
def test_rows_of_a_block(gpt, block, row, module, operator, expected):
    assert shapes(gpt, f"{block}.{module}".rstrip("."), operator) == expected, row


def test_row_heads(gpt):
    assert shapes(gpt, "blocks.0.attn", "transpose")[:3] == ["B n_heads T d_head"] * 3
    assert read(gpt, "blocks.0.attn", "matmul") == ["B n_heads T d_head", "B n_heads d_head T"]


def test_row_logits(gpt):
    assert shapes(gpt, "head", "linear") == ["B T vocab"]
    assert outputs(gpt) == ["B T vocab"]


def test_the_row_with_the_numbers_of_the_table(gpt):
    numbers = [tuple(map(int, str(edge.shape).split())) for edge in gpt.at(B=2, T=5).edges]
    for row in [(2, 5), (2, 5, 32), (2, 4, 5, 8), (2, 4, 5, 5), (2, 5, 128), (2, 5, 100)]:
        assert row in numbers


# Every axis of every edge


def test_every_fixed_axis_of_the_toy_has_a_name(gpt):
    bare = {
        f"{edge.source} -> {edge.target}: {edge.shape}"
        for edge in gpt.edges
        for dim in edge.shape.dims
        if dim.constant is not None and dim.constant > 1
    }
    assert not bare


def test_every_name_of_the_toy_is_one_of_the_models_own(gpt):
    on_edges = {symbol.name for edge in gpt.edges for dim in edge.shape.dims for symbol in dim.symbols}
    assert on_edges == {"B", "T", "d_model", "n_heads", "d_head", "d_ff", "vocab"}


def test_the_trace_tells_its_names(gpt):
    assert gpt.free == ("B", "T")
    assert gpt.pinned == {"d_model": 32, "n_heads": 4, "d_head": 8, "d_ff": 128, "vocab": 100}
    assert set(gpt.dims) == {*gpt.free, *gpt.pinned}
    assert all(definition is None for definition in gpt.dims.values())
    assert {name: gpt.sizes[name] for name in gpt.pinned} == gpt.pinned


def test_names_survive_a_model_in_which_every_width_is_the_same():
    trace = sf.trace(toy(vocab=16, d_model=16, n_heads=4, d_ff=16, max_len=16))
    assert shapes(trace, "blocks.0.ffn.up", "linear") == ["B T d_ff"]
    assert shapes(trace, "blocks.0.attn.out", "linear") == ["B T d_model"]
    assert shapes(trace, "blocks.0.attn", "view") == ["B T n_heads d_head"] * 3
    assert outputs(trace) == ["B T vocab"]


# By origin, never by value


class Projected(nn.Module):
    """`d_head` is 64, and 64 are the rows of an embedding that has nothing to do with it."""

    def __init__(self):
        super().__init__()
        self.d_model, self.n_heads, self.d_head = 128, 2, 64
        self.rows = nn.Linear(128, 64)

    def split(self, x) -> Float[Tensor, "B T n_heads d_head"]:
        b, t, _ = x.shape
        return x.view(b, t, self.n_heads, self.d_head)

    def forward(self, x: Float[Tensor, "B T d_model"]):
        return x.view(*x.shape[:2], self.n_heads, self.d_head), self.rows(x), x.view(*x.shape[:2], 2, 64)


def test_a_number_that_happens_to_equal_an_attribute_stays_a_number():
    """`split` is never called: its annotation tells which attributes are dims, and they bring their names along."""
    assert outputs(sf.trace(Projected())) == ["B T n_heads d_head", "B T 64", "B T 2 64"]


def test_without_annotations_numbers_stay_numbers():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.d_model = 8
            self.lin = nn.Linear(8, 8)

        def forward(self, x):
            return self.lin(x).view(x.shape[0], -1, self.d_model)

    assert outputs(sf.trace(Plain(), "B T 8")) == ["B T 8"]


def test_an_attribute_that_is_no_dim_of_the_annotations_reads_as_a_number():
    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.d_model, self.groups = 8, 2
            self.kinds = []

        def forward(self, x: Float[Tensor, "B d_model"]):
            self.kinds.append((type(self.groups), type(self.d_model)))
            return x.view(-1, self.groups, self.d_model // self.groups)

    model = Grouped()
    kinds = model.kinds
    trace = sf.trace(model)
    assert outputs(trace) in (["B 2 d_model//2"], ["B 2 (d_model//2)"])
    assert kinds == []
    assert (model.d_model, type(model.d_model)) == (8, int)


def test_formulas_of_attributes_flow():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.d_model = 8

        def forward(self, x: Float[Tensor, "B d_model"]):
            return x.repeat(1, 3), x.new_zeros(2 * self.d_model), x.new_zeros(self.d_model // 2 + 1)

    assert outputs(sf.trace(Wide())) == ["B 3*d_model", "2*d_model", "(d_model//2 + 1)"]


def test_comparisons_of_names_with_a_value_record_nothing():
    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.d_model, self.n_heads = 8, 2

        def forward(self, x: Float[Tensor, "B d_model"]):
            if self.d_model % self.n_heads or x.shape[1] != self.d_model or x.shape[-1] > 100:
                raise ValueError("never")
            return x.view(x.shape[0], self.n_heads, -1)

    trace = sf.trace(Checked())
    assert not trace.conditions
    assert str(trace.domain) == "B >= 2"


# Where two names meet


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.d_model = 8
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Float[Tensor, "B T d_model"]):
        return x + self.inner(x), self.inner(x) + x, self.inner(x) + torch.ones(8)


def test_a_residual_sum_takes_the_declared_name():
    trace = sf.trace(Residual())
    assert outputs(trace) == ["B T d_model", "B T d_model", "B T 8"]
    assert [str(edge.shape) for edge in trace.edges if edge.source == "linear" and edge.target == "add"] == [
        "B T d_model"
    ]


def test_a_name_declared_on_the_way_out_reaches_back_through_what_keeps_axes():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 6)

        def forward(self, x) -> Float[Tensor, "B d_ff"]:
            return F.gelu(self.up(x))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.down = Inner(), nn.Linear(6, 4)

        def forward(self, x):
            return self.down(self.inner(x).relu())

    trace = sf.trace(Outer(), "B 4")
    assert shapes(trace, "inner.up", "linear") == ["B d_ff"]
    assert shapes(trace, "", "relu") == ["B d_ff"]
    assert outputs(trace) == ["B 4"]


def test_an_inner_module_uses_its_own_words():
    class Half(nn.Module):
        def forward(self, x: Float[Tensor, "N width"]) -> Float[Tensor, "N half"]:
            return x[:, : x.shape[1] // 2]

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.halved = Half()

        def forward(self, x: Float[Tensor, "B d_model"]):
            return self.halved(x).sum(0), x

    trace = sf.trace(Outer(), "B d_model=8")
    assert outputs(trace) == ["half", "B d_model"]


# Where names come from


@pytest.mark.parametrize(
    ("spec", "output"),
    [
        ("B 3 H=224 W=224", "B 3*H*W"),
        ("B C=3 H=224 W=224", "B C*H*W"),
        ("B 3 224 224", "B 150528"),
        ("B 3 H W", "B 3*H*W"),
        ("2*B 3 4 T", "2*B 12*T"),
    ],
)
def test_specs_given_by_the_user(spec, output):
    assert outputs(sf.trace(lambda x: x.flatten(1), spec)) == [output]


def test_pinned_sizes_are_no_free_ones():
    trace = sf.trace(nn.Conv2d(3, 8, 7, stride=2, padding=3), "B 3 H=224 W=224")
    assert outputs(trace) == ["B 8 ((H - 1)//2 + 1) ((W - 1)//2 + 1)"]
    assert trace.free == ("B",)
    assert trace.pinned == {"H": 224, "W": 224}
    assert [str(edge.shape) for edge in trace.at(B=2).outputs] == ["2 8 112 112"]


def test_a_spec_wins_over_the_annotation():
    def forward(x: Float[Tensor, "B T d"]):
        return x * 2

    assert outputs(sf.trace(forward)) == ["B T d"]
    assert outputs(sf.trace(forward, "N L d=8")) == ["N L d"]
    assert outputs(sf.trace(forward, "N L 8")) == ["N L d"]


def test_a_name_in_a_spec_that_is_an_attribute_of_the_model_has_its_value():
    trace = sf.trace(Residual(), "B T d_model")
    assert trace.free == ("B", "T")
    assert trace.pinned == {"d_model": 8}


def test_an_annotated_function_is_a_target():
    def attend(q: Float[Tensor, "B T d"], k: Float[Tensor, "B S d"]) -> Float[Tensor, "B T S"]:
        return (q @ k.mT).softmax(-1)

    trace = sf.trace(attend)
    assert trace.name == "attend"
    assert [str(node.outputs[0]) for node in trace.inputs] == ["B T d", "B S d"]
    assert outputs(trace) == ["B T S"]
    assert trace.free == ("B", "T", "d", "S")


def test_a_jaxtyped_function_with_integers_is_a_target():
    """beartype looks whether `t_q` is an `int`, and a symbolic size passes for one."""

    @jaxtyped(typechecker=beartype)
    def masked(x: Float[Tensor, "B T"], y: Int[Tensor, " S"]) -> Float[Tensor, "B T T"]:
        return x[..., None] * causal_allowed(x.shape[1], x.shape[1])

    assert outputs(sf.trace(masked)) == ["B T T"]


def test_a_jaxtyping_check_that_fails_is_the_models_own_error():
    @jaxtyped(typechecker=beartype)
    def wrong(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return x.sum(1)

    with pytest.raises(sf.TraceError, match="wrong"):
        sf.trace(wrong)


def test_tensors_take_the_names_of_the_annotation():
    def forward(x: Float[Tensor, "B d"]):
        return x * 2

    trace = sf.trace(forward, torch.ones(5, 8))
    assert outputs(trace) == ["B d"]
    assert trace.pinned == {"B": 5, "d": 8}


def test_names_of_the_zoo_of_ranks():
    def forward(x: Float[Tensor, "*batch d"], y: Float[Tensor, "... 3"]):
        return x + 1, y + 1

    assert outputs(sf.trace(forward, "B T d=4", "N 2 3")) == ["B T d", "N 2 3"]


# Names that were lost


@jaxtyped(typechecker=beartype)
def square(t: int) -> Bool[Tensor, "{t} {t}"]:
    return torch.ones(t, t, dtype=torch.bool)


@jaxtyped(typechecker=beartype)
def oblong(t: int) -> Bool[Tensor, "{t} {t}+1"]:
    return torch.ones(t, t, dtype=torch.bool)


def test_braces_in_an_annotation_read_a_symbolic_argument():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.d_head = 6

        @jaxtyped(typechecker=beartype)
        def half(self, x: Float[Tensor, "B T d_head"]) -> Float[Tensor, "B T {self.d_head}//2"]:
            return x[..., : self.d_head // 2]

        @jaxtyped(typechecker=beartype)
        def forward(self, x: Float[Tensor, "B T d_head"]) -> Float[Tensor, "B T _"]:
            return self.half(x) * square(x.shape[1])[0, :, None]

    assert shapes(sf.trace(Masked()), "", "ones") == ["T T"]


def test_braces_that_do_not_fit_are_still_refused():
    with pytest.raises(sf.TraceError, match=r"Expected type: Bool.*t}\+1"):
        sf.trace(lambda x: x * oblong(x.shape[1])[0], "B T")


def test_unflatten_takes_the_names_that_the_code_writes():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_heads, self.d_head = 5, 6

        def forward(self, x: Float[Tensor, "B T d_q"]) -> Float[Tensor, "B T n_heads d_head"]:
            return x.unflatten(-1, (self.n_heads, self.d_head)).relu()

    assert shapes(sf.trace(Heads(), "B T d_q=30"), "", "unflatten") == ["B T n_heads d_head"]


def test_chunks_of_an_even_axis_are_halves():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.d_head = 6

        def forward(self, x: Float[Tensor, "B T d_head"]):
            a, b = x.chunk(2, dim=-1)
            return torch.cat([-b, a], dim=-1)

    trace = sf.trace(Turned())
    assert shapes(trace, "", "chunk") == ["B T d_head//2", "B T d_head//2"]
    assert outputs(trace) == ["B T d_head"]
    assert outputs(sf.trace(lambda x: x.chunk(2, -1), "B 7")) == ["B 4", "B 3"]


def test_a_free_name_is_not_given_to_an_axis_of_size_one():
    class Positions(nn.Module):
        def forward(self, ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
            return ids + self.inner(torch.arange(ids.shape[1])[None])

        def inner(self, p: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
            return p + 1

    trace = sf.trace(Positions())
    assert shapes(trace, "", "getitem") == ["1 T"]
    assert trace.pinned == {}
