"""The given crashing cases: the line at fault, the dim and the fix, and each message line by line."""

import pytest

from shapeflow.check.cause import call_in, cause, prove
from shapeflow.trace.tracer import Search, prepared
from tests.check.cause.crashing import attempt, load, runs

AT = {"15": {"T": 7}, "16": {"T": 6}, "17": {"N": 18}}
"""Sizes for what runs at one size alone."""
CAUSES = {
    "01": (
        "Linear 'head' takes 10, gets 490 = 10*7*7: flatten is right, in_features is not",
        "nn.Linear(10 * 7 * 7, 5)",
        ("490", "10"),
        [
            "raised at tests/cases/shape_bugs/01_linear_in_features.py:23: return self.head(x.flatten(1))",
            "linear(B 490, head.weight: 5 10, head.bias: 5)",
        ],
    ),
    "02": (
        "Linear 'head' takes 392 = 8*7*7, gets 7, the last axis of B 8 7 7: a flatten is missing",
        "self.head(x.flatten(1))",
        ("7", "392"),
        ["linear(B 8 7 7, head.weight: 10 392, head.bias: 10)"],
    ),
    "05": (
        "Conv2d 'stem' takes 3 channels, gets 1, axis 1 of B 1 H W: in_channels is wrong",
        "nn.Conv2d(1, 16, 3, padding=1)",
        ("1", "3"),
        [
            "raised at tests/cases/shape_bugs/05_conv_channels.py:19: return self.head(self.stem(x).mean((2, 3)))",
            "conv2d(x: B 1 H W, stem.weight: 16 3 3 3, stem.bias: 16)",
        ],
    ),
    "06": (
        "cat along axis 1: up is B 8 2*(H//2) 2*(W//2), skip is B 8 H W: "
        "halving an odd H rounds down, and doubling does not bring the row back",
        "resize up to skip.shape[-2:] (F.interpolate(..., size=skip.shape[-2:])), or pad the input to a multiple",
        ("H",),
        ["cat(B 8 2*(H//2) 2*(W//2), B 8 H W)"],
    ),
    "07": (
        "y is B 16 8 8, self.short(x) is B 16 16 16: Conv2d 'conv2' makes 8 of 16 (stride=2)",
        "nn.Conv2d(16, 16, 3, stride=1, padding=1)",
        ("8", "16"),
        [
            "raised at tests/cases/shape_bugs/07_residual_stride_twice.py:21: return torch.relu(y + self.short(x))",
            "add(B 16 8 8, B 16 16 16)",
        ],
    ),
    "10": (
        "table 'pe' has 20 rows, x has T = 33: the slice stops at the end of the table",
        "size 'pe' for the longest T you accept, and declare T<=20 or what it becomes",
        ("T",),
        ["add(x: B T 16, 1 20 16)"],
    ),
    "12": (
        "view: 4 * (30//4 = 7) = 28, not 30: self.heads does not divide 30",
        "heads=5 (30 % 5 == 0), and assert width % heads == 0 in __init__",
        ("30", "28"),
        ["view(B T 90)"],
    ),
    "13": (
        "Linear 'k' takes 32, gets 48: in_features is wrong, in 'v' too",
        "nn.Linear(48, 32)",
        ("48", "32"),
        [
            "raised at tests/cases/shape_bugs/13_cross_attention_width.py:20: "
            "a = torch.softmax(self.q(x) @ self.k(mem).transpose(1, 2) / 32**0.5, -1)",
            "linear(mem: B S 48, k.weight: 32 32, k.bias: 32)",
        ],
    ),
    "15": (
        "BatchNorm1d 'bn' takes 24 channels on axis 1, gets T: B T 24 has them last, a transpose is missing",
        "self.bn(x.transpose(1, 2)).transpose(1, 2)",
        ("T", "24"),
        ["batch_norm(B T 24, bn.running_mean: 24, bn.running_var: 24, bn.weight: 24, bn.bias: 24)"],
    ),
    "16": (
        "cross_entropy takes classes on axis 1 and finds T there: logits is B T 40, its 40 classes are last",
        "F.cross_entropy(logits.transpose(1, 2), target)",
        ("T", "40"),
        ["cross_entropy(B T 40, target: B T)"],
    ),
    "17": (
        "Linear 'map' takes 24, gets N, the last axis of B 24 N: axis 1 has the 24, a transpose is missing",
        "self.map(z.transpose(1, 2))",
        ("N", "24"),
        ["linear(z: B 24 N, map.weight: 10 24, map.bias: 10)"],
    ),
    "21": (
        "y is B 3 31 31, x is B 3 32 32: ConvTranspose2d 'up' makes 31 of 16 (output_padding=0)",
        "nn.ConvTranspose2d(8, 3, 3, stride=2, padding=1, output_padding=1)",
        ("31", "32"),
        [
            "raised at tests/cases/shape_bugs/21_autoencoder_off_by_one.py:20: return ((y - x) ** 2).mean((1, 2, 3))",
            "sub(B 3 31 31, x: B 3 32 32)",
        ],
    ),
}


def failed(case):
    """The run that raises: at free sizes, at one that is not the only right one, or at the case's own."""
    module, specs = load(case)
    model, _ = module.make()
    sizes = getattr(module, "BREAK_SIZES", None)
    if sizes is None:
        return module, attempt(model, hints=AT.get(case), **specs)
    subject, bound = prepared(model, (), specs, sizes)
    return module, Search(subject, bound, sizes, None).at(sizes, pinned=True)


@pytest.mark.parametrize("case", CAUSES)
def test_the_cause_of_a_case(case):
    module, stopped = failed(case)
    found = cause(call_in(stopped))
    message, fix, dims, details = CAUSES[case]
    assert found.message == message
    assert found.fix == fix
    assert found.dims == dims
    assert found.location.code.removesuffix("  # BUG") == module.META["line"]
    assert list(found.details[:-1]) == details
    assert found.details[-1] in str(stopped.error)


@pytest.mark.parametrize("case", ["15", "16", "17"])
def test_a_number_that_is_pinned_says_which(case):
    """At the sizes of a witness the same lines, with the number behind the name."""
    module, specs = load(case)
    subject, bound = prepared(module.make()[0], (), specs, {})
    found = cause(call_in(Search(subject, bound, {}, None).at(AT[case], pinned=True)))
    ((name, size),) = AT[case].items()
    assert found.message == CAUSES[case][0].replace(f"gets {name}", f"gets {name}={size}")
    assert found.fix == CAUSES[case][1]


@pytest.mark.parametrize(
    ("case", "path", "changes"),
    [
        ("01", "head", (("in_features", 490),)),
        ("05", "stem", (("in_channels", 1),)),
        ("07", "conv2", (("stride", 1),)),
        ("13", "k", (("in_features", 48),)),
        ("21", "up", (("output_padding", 1),)),
    ],
)
def test_the_repair_of_a_case_is_proved(case, path, changes):
    module, specs = load(case)
    model, _ = module.make()
    found = cause(call_in(attempt(model, **specs)))
    right = prove(found.candidates, lambda: runs(model, **specs))
    assert (right.path, right.changes) == (path, changes)
    assert found.proved(right).fix == CAUSES[case][1]
    assert not runs(model, **specs)
