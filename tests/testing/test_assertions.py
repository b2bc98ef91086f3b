"""The assertions of `shapeflow.testing`: each on a model that passes, one that fails, and one that shows nothing."""

import copy

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

import shapeflow as sf
from shapeflow.testing import (
    ShapeTrace,
    assert_batch_independent,
    assert_causal,
    assert_gradients_reach_all_parameters,
    assert_matches,
    assert_permutation_equivariant,
    assert_shapes,
)


class Attention(nn.Module):
    """`see` is the number of later positions that each position sees; None sees all."""

    def __init__(self, see=0, d_model=16, leaky=()):
        super().__init__()
        self.d_model, self.see, self.leaky = d_model, see, leaky
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / 4
        if self.see is not None:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + self.see)
            for i, j in self.leaky:
                mask[i, j] = False
            scores = scores.masked_fill(mask, -torch.inf)
        return self.dropout(scores.softmax(-1) @ v)


class Gpt(nn.Module):
    def __init__(self, vocab=11, d_model=8):
        super().__init__()
        self.vocab = vocab
        self.tok, self.attn, self.head = nn.Embedding(vocab, d_model), Attention(0, d_model), nn.Linear(d_model, vocab)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T vocab"]:
        return self.head(self.attn(self.tok(ids)))


def zeroed(model):
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def lambda_of(function):
    return function


class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pe", torch.zeros(13, 4))

    def forward(self, x):
        return x + self.pe[: x.shape[1]]


class Two(nn.Module):
    """No size suits both of its layers."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x) + self.b(x)


class OnlyOneSample(nn.Module):
    """Right for every size but a batch of one."""

    def forward(self, x):
        return x.squeeze()


@pytest.mark.parametrize(
    ("model", "shapes", "sizes"),
    [
        (Attention(), "B T d_model -> B T d_model", {}),
        (Gpt(), "B T:int64 -> B T vocab", {}),
        (Gpt(), "B T:int64 -> B T vocab:float32", {"vocab": 11}),
        (nn.Linear(3, 4), "B d -> B k", {"d": 3}),
        (nn.Linear(3, 4), "B d=3 -> B 4", {}),
        (nn.LSTM(3, 4, batch_first=True), "B T 3 -> B T h, 1 B h, 1 B h", {}),
        (nn.Flatten(), "B C H W -> B C*H*W", {}),
        (nn.Conv2d(3, 5, 3, stride=2), "B 3 H>=3 W>=3 -> B 5 (H-1)//2 (W-1)//2", {}),
        (nn.BatchNorm1d(5), "B 5 -> B 5", {}),
        (lambda a, b: torch.cat([a, b], 1), "B T, B S -> B T+S", {}),
        (lambda x: {"sum": x.sum(), "x": x}, "B T -> , B T", {}),
        (nn.Identity(), "*batch d -> *batch d", {}),
        (nn.Linear(32, 100), "B T d_model -> B T vocab", {}),
        (nn.Conv2d(3, 8, 3, padding=1), "B C H W -> B D H W", {}),
        (Bounded(), "B T<=13 4 -> B T 4", {}),
        (nn.Linear(3, 4).double(), "B 3 -> B 4:float64", {}),
    ],
)
def test_shapes_that_hold(model, shapes, sizes):
    assert_shapes(model, shapes, **sizes)


@pytest.mark.parametrize(
    ("model", "shapes", "sizes", "message"),
    [
        (Attention(), "B T d_model -> B d_model T", {}, r"axis 1 of output is 5, d_model is 16, an attribute of Att"),
        (Gpt(), "B T:int64 -> B T d_model", {}, r"axis 2 of output is 11, d_model is 8, an attribute of Gpt"),
        (Gpt(), "B T:int64 -> B T vocab", {"vocab": 7}, r"axis 2 of output is 11, vocab is 7, as it was given"),
        (Gpt(), "B T:int64 -> B T vocab:int64", {}, r"output is float32, not int64"),
        (Two(), "B d -> B e", {}, r"Two raises at B = 3, d = 5: RuntimeError: .*mat1 .*\n  B, d may be any"),
        (nn.Linear(3, 4), "B 3 -> B 5", {}, r"Linear is not 'B 3 -> B 5' at B = 3:\n  axis 1 of output is 4, not 5"),
        (
            nn.LSTM(3, 4),
            "T B 3 -> T B h",
            {},
            r"3 tensors come out, 1 are written: output\[0\] 3 5 4, output\[1\]\[0\]",
        ),
        (nn.Flatten(), "B C H W -> B C*H", {}, r"axis 1 of output is 385, C\*H is 35"),
        (nn.Identity(), "B T -> B", {}, r"output has 2 axes, 3 5, not those of 'B'"),
        (lambda x: x.mT, "B T 3 -> B k 3", {}, r"axis 1 of output is 3, .*|axis 2 of output is 5, not 3"),
        (lambda x: x[:, 0], "B T -> k", {}, r"axis 0 of output is 5, k is 3, as at B = 3, T = 5"),
        (OnlyOneSample(), "B T 3 -> B T 3", {}, r"at B = 1, T = 5:\n  output has 2 axes, 5 3, not those of 'B T 3'"),
        (Bounded(), "B T 4 -> B T 4", {}, r"^(?!.*B = 3).*"),
        (Bounded(), "B T<=17 4 -> B T 4", {}, r"Bounded raises at B = 3, T = 17: RuntimeError: .*\(17\).*\(13\)"),
    ],
)
def test_shapes_that_do_not_hold(model, shapes, sizes, message):
    if isinstance(model, Bounded) and "<=" not in shapes:
        return assert_shapes(model, shapes)  # no size that is tried is longer than the table: bounds have to be said
    with pytest.raises(AssertionError, match=message):
        assert_shapes(model, shapes, **sizes)


@pytest.mark.parametrize(
    ("shapes", "sizes", "message"),
    [
        ("B 3", {}, "an arrow and the shapes of the outputs are missing"),
        ("B 3 -> ...", {}, r"'...' takes any sizes: name an axis of the output, or nothing can fail"),
        ("B 3 -> B 4", {"d": 3}, "no input has an axis d; there are: B"),
        ("B 3, B -> B 4", {}, "takes .input.: too many"),
        ("B 3 -> B 2*k", {}, "k of .* stands in no input, so that its size is not known"),
        ("(B 3 -> B 4", {}, "never closed"),
    ],
)
def test_shapes_that_say_nothing(shapes, sizes, message):
    with pytest.raises(sf.ShapeflowError, match=message):
        assert_shapes(nn.Linear(3, 4), shapes, **sizes)


CAUSAL = [
    (Attention(), ["B T d_model"]),
    (Gpt(), ["B T:int64"]),
    (Gpt(), []),
    (Gpt().train(), ["B T:int64"]),
    (lambda x: x.cumsum(1), ["B T d"]),
    (nn.GRU(3, 4, batch_first=True), ["B T 3"]),
    (Attention(), [torch.randn(2, 9, 16)]),
]


@pytest.mark.parametrize(("model", "inputs"), CAUSAL)
def test_causal_models(model, inputs):
    assert_causal(model, *inputs)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (
            Attention(None),
            ["B T d_model"],
            r"(?s)along axis 1, of 5 positions:\n  input 1 changes output 0 .*the future: 0-3",
        ),
        (Attention(1), ["B T d_model"], r"  input 3 changes output 2 \(by up to [\d.]+\)\n  input 4 changes output 3 "),
        (
            Attention(leaky=[(1, 4)]),
            ["B T d_model"],
            r"positions:\n  input 4 changes output 1 .*\n  outputs .*future: 1$",
        ),
        (lambda x: x.flip(1).cumsum(1).flip(1), ["B T d"], r"see the future: 0-3"),
        (lambda x: x - x.mean(1, keepdim=True), ["B T d"], r"see the future: 0-3"),
        (zeroed(Attention()), ["B T d_model"], r"nothing is shown of Attention: no output changes, whichever"),
    ],
)
def test_models_that_are_not_causal(model, inputs, message):
    with pytest.raises(AssertionError, match=message):
        assert_causal(model, *inputs)


def test_a_leak_that_is_tiny_is_found():
    with pytest.raises(AssertionError, match="see the future: 0-3"):
        assert_causal(lambda x: x.cumsum(1) + 1e-4 * x.mean(1, keepdim=True), "B T d")


def test_long_sequences_are_looked_at_in_parts():
    with pytest.raises(AssertionError, match=r"and so do \d+ more"):
        assert_causal(lambda x: x.sum(1, keepdim=True).expand_as(x), "B T d", sizes={"T": 300, "B": 1, "d": 2})


@pytest.mark.parametrize(
    ("model", "inputs", "options", "message"),
    [
        (lambda x: F.dropout(x), ["B T d"], {}, "gives other numbers for the same inputs"),
        (lambda x: x.sum(), ["B T d"], {}, r"no output of <lambda> has 5 positions on axis 1, as .*: output \(\)"),
        (Attention(), ["B T d_model"], {"sizes": {"T": 1}}, "axis 1 has 1 position: causality shows with two or more"),
        (nn.Identity(), ["T"], {}, "input has 1 axes, so there is no axis 1: say which with axis="),
        (lambda x: x, [], {}, "needs x: give one as"),
        (Gpt(), ["B S:int64"], {"sizes": {"T": 3}}, "no input has an axis T; there are: B, S"),
    ],
)
def test_what_cannot_be_looked_at(model, inputs, options, message):
    with pytest.raises(sf.InputError, match=message):
        assert_causal(model, *inputs, **options)


def test_the_axis_may_be_another():
    assert_causal(lambda x: x.cumsum(0), "T B d", axis=0)
    with pytest.raises(AssertionError, match="of 3 positions"):
        assert_causal(lambda x: x.flip(0), "T B d", axis=0)


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


@pytest.mark.parametrize("model", [Attention(None), nn.BatchNorm1d(5), Gpt(), nn.Linear(5, 3)])
def test_samples_that_do_not_mix(model):
    specs = {"BatchNorm1d": ["B 5"], "Linear": ["B 5"]}.get(type(model).__name__, [])
    assert_batch_independent(model, *specs)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Mixing(), {}, r"Mixing mixes the samples of axis 0:\n  input 0 changes output 1-2 \(by"),
        (nn.BatchNorm1d(5), {"training": True}, r"mixes the samples of axis 0"),
        (lambda x: torch.cat([x[:1], x[:1], x[2:]]), {}, r"input 0 changes output 1 "),
        (lambda x: x * len(x), {}, r"sample 0-2 of 3 gets another output alone than in the batch"),
        (lambda x: x * 0, {}, "nothing is shown of <lambda>"),
    ],
)
def test_samples_that_mix(model, options, message):
    with pytest.raises(AssertionError, match=message):
        assert_batch_independent(model, "B 5", **options)


def test_orders():
    assert_permutation_equivariant(Attention(None))
    assert_permutation_equivariant(lambda x, mask: x * mask[..., None], "B T d", "B T")
    with pytest.raises(
        AssertionError, match=r"not equivariant to permutations of axis 1, of 5 .*\n  reversed, output 0-4 is"
    ):
        assert_permutation_equivariant(Attention())
    with pytest.raises(AssertionError, match=r"shifted by one, output 1, 4"):
        assert_permutation_equivariant(lambda x: x * torch.tensor([1.0, 2, 2, 2, 1])[:, None], "B T 3")
    with pytest.raises(AssertionError, match="its outputs are alike at all positions of axis 1"):
        assert_permutation_equivariant(lambda x: x.mean(1, keepdim=True).expand_as(x), "B T 3")


class Partly(nn.Module):
    def __init__(self):
        super().__init__()
        self.unused, self.cut, self.zero = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.bad, self.good = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return self.cut(x).detach() + self.zero(x) * 0 + self.bad.sqrt() + self.good


def test_gradients():
    model = Gpt()
    model.head.weight.grad = kept = torch.ones_like(model.head.weight)
    assert_gradients_reach_all_parameters(model)
    assert model.head.weight.grad is kept
    assert model.tok.weight.grad is None
    with pytest.raises(AssertionError) as caught:
        assert_gradients_reach_all_parameters(Partly(), "B 3")
    assert str(caught.value).splitlines() == [
        "gradients do not reach all parameters of Partly:",
        "  unused.weight: no gradient, the output does not depend on it",
        "  unused.bias: no gradient, the output does not depend on it",
        "  cut.weight: no gradient, the output does not depend on it",
        "  cut.bias: no gradient, the output does not depend on it",
        "  zero.weight: a gradient of zeros",
        "  zero.bias: a gradient of zeros",
        "  bad: a gradient that is not finite",
    ]
    assert_gradients_reach_all_parameters(Partly(), "B 3", ignore=["unused.*", "cut.*", "zero.*", "bad"])


def test_gradients_of_what_is_frozen_are_not_asked():
    model = Partly()
    for path, parameter in model.named_parameters():
        parameter.requires_grad_(path == "good")
    assert_gradients_reach_all_parameters(model, "B 3")
    model.good.requires_grad_(False)
    with pytest.raises(AssertionError, match="nothing is shown of Partly: it has no parameter that is trained"):
        assert_gradients_reach_all_parameters(model, "B 3")
    with pytest.raises(sf.InputError, match="ignore='bog' fits no parameter"):
        assert_gradients_reach_all_parameters(Partly(), "B 3", ignore="bog")
    with pytest.raises(AssertionError, match="no output of Frozen has a gradient"):

        class Frozen(nn.Linear):
            def forward(self, input):
                return super().forward(input).detach()

        assert_gradients_reach_all_parameters(Frozen(3, 3), "B 3")


def test_matches():
    model = Attention()
    twin = copy.deepcopy(model)
    assert_matches(model, twin)
    assert_matches(model, lambda x: model(x) * (1 + 1e-7), "B T d_model")
    assert_matches(nn.Softmax(-1), lambda x: (x - x.logsumexp(-1, keepdim=True)).exp(), "B T d")
    assert_matches(nn.Dropout(0.5), nn.Dropout(0.5), "B T", training=True)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            Attention(),
            r"(?s)Attention does not match Attention at B = 3, T = 5.*of 240 values.*reference.load_state_dict",
        ),
        (lambda x: F.pad(MODEL(x)[:, 1:], (0, 0, 1, 0)), r"(?s)48 of 240 values differ, most at .*only on axis 1: 0$"),
        (lambda x: MODEL(x)[..., None], r"output is 3 5 16, the reference's is 3 5 16 1"),
        (lambda x: MODEL(x).double(), r"output is torch.float32, the reference's is torch.float64"),
        (lambda x: (MODEL(x), x), r"1 tensors, the reference gives 2"),
        (lambda x: MODEL(x) + (len(x) == 1), r"at B = 1, T = 5, d_model = 16"),
        (lambda x: torch.zeros_like(x), r"nothing is shown: the output of <lambda> does not depend on its inputs"),
        (lambda x: x * torch.nan, r"nothing is shown: no output of <lambda> has a finite value"),
    ],
)
def test_what_does_not_match(reference, message):
    with pytest.raises(AssertionError, match=message):
        assert_matches(MODEL, reference, "B T d_model")


MODEL = Attention()


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)).train()
    model[0].eval()
    before, state = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    assert_shapes(model, "B 5 -> B 5")
    with pytest.raises(AssertionError):
        assert_batch_independent(nn.Sequential(model[0], model[1]), "B 5", training=True)
    assert_gradients_reach_all_parameters(nn.Sequential(*model[:2]), "B 5", sizes={"B": 7})
    assert [each.training for each in model] == [False, True, True]
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.is_grad_enabled()


class Masked(nn.Module):
    def forward(self, x, *, mask):
        return (x * mask[..., None]).cumsum(1)


def test_inputs_by_name_and_sizes_that_the_model_fixes():
    assert_causal(Masked(), "B T 3", named={"mask": "B T"})
    with pytest.raises(sf.InputError, match="there is no input 'musk'; did you mean 'mask'"):
        assert_causal(Masked(), "B T 3", named={"musk": "B T"})
    assert_causal(nn.GRU(3, 4, batch_first=True), "B T d")
    assert_batch_independent(nn.Linear(3, 4), "B d")
    assert_permutation_equivariant(nn.Linear(3, 4), "B T d")
    assert_gradients_reach_all_parameters(nn.Linear(3, 4), "B d")
    assert_matches(nn.Linear(3, 4), copy.deepcopy(nn.Linear(3, 4)).requires_grad_(False), "B d", tolerance=10.0)


class Drops(nn.Module):
    """Dropout, and a norm that mixes samples where it is asked for."""

    def __init__(self, mixing):
        super().__init__()
        self.inner, self.drop = nn.Linear(6, 6), nn.Dropout(0.3)
        self.norm = nn.BatchNorm1d(6) if mixing else nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.drop(self.inner(x)))


def test_dropout_mixes_no_samples_and_hides_no_norm_that_does():
    assert_batch_independent(Drops(False), "B 6", training=True)
    with pytest.raises(AssertionError, match=r"Drops mixes the samples of axis 0:\n  input 0 changes output 1-2"):
        assert_batch_independent(Drops(True), "B 6", training=True)
    model = Drops(False).train()
    state = torch.random.get_rng_state()
    assert_batch_independent(model, "B 6", training=True)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_snapshot_of_a_test_with_a_long_name_has_a_file_of_its_own(tmp_path):
    names = [f"test_net[{'layer-' * 80}{end}]" for end in "ab"]
    traces = [ShapeTrace(tmp_path, name, update=True) for name in names]
    for trace, model in zip(traces, (nn.Linear(3, 4), nn.Linear(3, 5)), strict=True):
        trace.assert_unchanged(model, "B 3")
    assert len(list(tmp_path.iterdir())) == 2
    for name, model in zip(names, (nn.Linear(3, 4), nn.Linear(3, 5)), strict=True):
        ShapeTrace(tmp_path, name).assert_unchanged(model, "B 3")
