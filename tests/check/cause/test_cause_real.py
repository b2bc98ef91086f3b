"""The same causes from real tensors: nothing is recorded, sizes are plain numbers."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from shapeflow.check.cause import call_from, call_in_traceback, cause
from shapeflow.trace.result import Location
from tests.check.cause import crashing

LINE = Location("model.py", 7, "return self.head(x)")


class Watching(TorchFunctionMode):
    """Keeps the innermost operator that raised: what a reader of a traceback finds."""

    failed = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            if self.failed is None or self.failed[3] is not error:
                self.failed = (func, args, kwargs or {}, error)
            raise


def cause_of(target, *inputs):
    """The cause of a real run: by the operator where one raised, else by the module that refused its input."""
    root = target if isinstance(target, nn.Module) else None
    watching = Watching()
    with pytest.raises((RuntimeError, ValueError, IndexError, AssertionError)) as caught, watching:
        target(*inputs)
    error = caught.value
    if watching.failed is None or watching.failed[3] is not error:
        return cause(call_in_traceback(error, root))
    path, module = innermost(root, error)
    return cause(call_from(*watching.failed[:3], error, module=module, path=path, root=root, location=LINE))


def innermost(root, error):
    """The innermost module of the traceback."""
    paths = {id(module): path for path, module in root.named_modules()} if root is not None else {}
    found, trace = ("", root), error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        for value in list(frame.f_locals.values())[:1]:
            if id(value) in paths:
                found = paths[id(value)], value
    return found


def ids(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


@pytest.mark.parametrize(
    ("target", "inputs", "message", "fix"),
    [
        (
            crashing.LeNet(),
            [torch.randn(3, 1, 28, 28)],
            "Linear 'classifier.1' takes 400, gets 256 = 16*4*4: flatten is right, in_features is not",
            "nn.Linear(16 * 4 * 4, 120)",
        ),
        (
            crashing.FlatBatch(),
            [torch.randn(2, 3, 8, 8)],
            "Linear 'head' takes 192 = 3*8*8, gets 384: the flatten takes the batch along",
            ".flatten(1)",
        ),
        (
            crashing.ChannelsLast(),
            [torch.randn(2, 9, 11, 3)],
            "Conv2d 'stem' takes 3 channels on axis 1, gets 9: 2 9 11 3 has its channels last",
            "self.stem(images.permute(0, 3, 1, 2))",
        ),
        (
            crashing.OneD(),
            [torch.randn(2, 3, 9, 11)],
            "BatchNorm1d 'bn' does not take 4 axes: 2 16 7 9; BatchNorm2d does",
            "nn.BatchNorm2d(16)",
        ),
        (
            crashing.GruState(),
            [torch.randn(2, 5, 10)],
            "GRU 'rnn' takes a state of 1 5 32, gets 1 2 32: it reads axis 1 of 2 5 10 as the batch",
            "nn.GRU(10, 32, batch_first=True)",
        ),
        (
            crashing.Kdim(),
            [torch.randn(2, 5, 32), torch.randn(2, 7, 48)],
            "MultiheadAttention 'attn' takes 32 features in key, gets 48, the last axis of 2 7 48: kdim is missing",
            "nn.MultiheadAttention(32, 4, batch_first=True, kdim=48, vdim=48)",
        ),
        (
            crashing.Scores(),
            [torch.randn(2, 5, 16)],
            "self.q(x) is 2 5 16, self.k(x) is 2 5 16: 16 meets 5, a transpose of self.k(x) is missing",
            "self.q(x) @ self.k(x).transpose(-2, -1)",
        ),
        (
            crashing.Heads(),
            [torch.randn(2, 5, 48)],
            "reshape: 5 * (48//5 = 9) = 45, not 48: self.n_heads does not divide 48",
            "n_heads=6 (48 % 6 == 0), and assert d_model % n_heads == 0 in __init__",
        ),
        (
            crashing.MergedView(),
            [torch.randn(2, 4, 5, 8)],
            "view of x.transpose(1, 2) (2 5 4 8): its memory is in another order since it was transposed; "
            "a view cannot copy",
            "x.transpose(1, 2).reshape(b, t, h * d)",
        ),
        (
            crashing.WrongAxisOfCat(),
            [torch.randn(2, 5, 16), torch.randn(2, 5, 24)],
            "cat along axis 1: a is 2 5 16, b is 2 5 24: axis 2 differs (16 and 24), so it is the one to join",
            "torch.cat((a, b), dim=-1)",
        ),
        (
            crashing.Position(),
            [ids(2, 13)],
            "table 'pos' has 12 rows, self.emb(ids) has 13: the slice stops at the end of the table",
            "size 'pos' for the longest input you accept: 12 are too few",
        ),
        (
            crashing.Gate(),
            [torch.randn(2, 16, 5, 7)],
            "x is 2 16 5 7, s is 2 16: the axes of s stand 2 too far right",
            "s[:, :, None, None]",
        ),
        (
            nn.Embedding(10, 3),
            [torch.tensor([3, 12])],
            "Embedding has 10 rows, the greatest index is 12: num_embeddings is too small",
            "nn.Embedding(13, 3)",
        ),
        (
            nn.CrossEntropyLoss(),
            [torch.randn(2, 5, 40), ids(2, 5)],
            "cross_entropy takes classes on axis 1 and finds 5 there: input is 2 5 40, its 40 classes are last",
            "x.transpose(1, 2)",
        ),
        (
            lambda x: x[:, torch.tensor([1, 7])],
            [torch.randn(2, 5)],
            "x[:, torch.tensor([1, 7])]: axis 1 of 2 5 has 5 elements, the greatest index is 7",
            "",
        ),
        (
            lambda x: x.softmax(3),
            [torch.randn(2, 5)],
            "softmax on axis 3: x has 2 axes, 2 5",
            "an axis from 0 to 1, or negative",
        ),
        (
            lambda x: torch.linalg.solve(x, x),
            [torch.randn(2, 5)],
            "linalg_solve(2 5, 2 5): linalg.solve: A must be batches of square matrices, but they are 2 by 5 matrices",
            "",
        ),
    ],
)
def test_the_cause_of_a_real_run(target, inputs, message, fix):
    found = cause_of(target, *inputs)
    assert found.message == message
    assert found.fix == fix


def test_without_a_model_the_line_that_was_given_is_the_fault():
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    with pytest.raises(RuntimeError) as caught:
        torch.mm(a, b)
    found = cause(call_from(torch.mm, (a, b), {}, caught.value, location=LINE))
    assert found.message == "a is 2 3, b is 2 3: 3 meets 2, a transpose of b is missing"
    assert found.fix == "torch.mm(a, b.T)"
    assert found.location == LINE
    assert found.details[0] == "mm(2 3, 2 3)"
    assert found.details[1].endswith("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")


@pytest.mark.parametrize(
    ("target", "inputs", "message", "fix"),
    [
        (nn.Linear(3, 4), [torch.randn(2, 3).double()], "Linear is float32, input is float64", "x.float()"),
        (nn.Linear(3, 4).double(), [torch.randn(2, 3)], "Linear is float64, input is float32", "x.double()"),
        (nn.Conv2d(3, 4, 1), [torch.randn(2, 3, 5, 5).double()], "Conv2d is float32, input is float64", "x.float()"),
        (
            lambda a, b: a @ b,
            [torch.randn(2, 3), torch.randn(3, 4).double()],
            "b is float64, a is float32",
            "a.double() @ b",
        ),
        (
            lambda logits, target: F.cross_entropy(logits, target),
            [torch.randn(2, 3), ids(2).int()],
            "cross_entropy takes class numbers of int64, target is int32",
            "F.cross_entropy(logits, target.long())",
        ),
    ],
)
def test_dtypes_that_do_not_go_together(target, inputs, message, fix):
    found = cause_of(target, *inputs)
    assert (found.message, found.fix) == (message, fix)


@pytest.mark.parametrize(
    ("target", "inputs", "message", "fix"),
    [
        (
            lambda x: x.permute(0, 2, 1),
            [torch.randn(2, 3, 5, 7)],
            "permute gives an order of 3 axes, x has 4: 2 3 5 7",
            "name all axes from 0 to 3",
        ),
        (lambda x: x.permute(0, 1, 1), [torch.randn(2, 3, 5)], "permute of x (2 3 5) names an axis twice", ""),
        (
            lambda x: x.split([3, 5], dim=-1),
            [torch.randn(2, 11)],
            "split of x along axis 1: the sizes add up to 8, it is 11",
            "",
        ),
        (
            lambda x, y: x.__setitem__((slice(None), slice(1, None)), y),
            [torch.zeros(2, 5), torch.zeros(2, 5)],
            "the part that is written to has 4 where 2 5, which is written to it, has 5",
            "",
        ),
        (
            lambda x, y: x.add_(y),
            [torch.zeros(2, 1), torch.zeros(2, 5)],
            "x is 2 1, and does not grow in place to what it makes with 2 5",
            "x = x + y",
        ),
        (
            lambda a, b: F.binary_cross_entropy_with_logits(a, b),
            [torch.randn(7, 1), torch.rand(7)],
            "binary_cross_entropy_with_logits: a is 7 1, b is 7: the shapes have to be equal",
            "F.binary_cross_entropy_with_logits(a.squeeze(-1), b)",
        ),
        (
            lambda a, b: F.binary_cross_entropy(a, b),
            [torch.rand(7), torch.rand(7, 1)],
            "binary_cross_entropy: a is 7, b is 7 1: the shapes have to be equal",
            "F.binary_cross_entropy(a, b.squeeze(-1))",
        ),
        (
            lambda x: F.one_hot(x, 5),
            [torch.tensor([1, 5])],
            "one_hot makes 5 classes, the greatest number is 5",
            "num_classes=6",
        ),
        (
            lambda x: x.item(),
            [torch.zeros(3, 2)],
            "item() takes one element, x has 3 2",
            "x.mean().item(), or .tolist()",
        ),
        (
            lambda logits, target: F.cross_entropy(logits, target),
            [torch.randn(3, 7), torch.tensor([1, 7, 2])],
            "cross_entropy: logits (3 7) has the classes 0 to 6, the greatest class number in target is 7",
            "logits for 8 classes",
        ),
        (
            lambda logits, target: F.cross_entropy(logits, target),
            [torch.randn(3, 7), torch.tensor([1, -1, 2])],
            "cross_entropy: logits (3 7) has the classes 0 to 6, the least class number is -1",
            "ignore_index=-1",
        ),
        (
            nn.Embedding(50, 8),
            [torch.tensor([[1, -100]])],
            "Embedding has rows from 0 on, the least index is -100: a mark for what is left out?",
            "x.clamp(min=0)",
        ),
        (
            nn.GroupNorm(4, 16),
            [torch.randn(2, 6, 5)],
            "GroupNorm takes 16 channels on axis 1, gets 6 of 2 6 5: num_channels is wrong",
            "nn.GroupNorm(3, 6)",
        ),
    ],
)
def test_arguments_that_count(target, inputs, message, fix):
    found = cause_of(target, *inputs)
    assert (found.message, found.fix) == (message, fix)


def test_a_call_that_a_family_cannot_read_is_told_as_torch_does():
    error = RuntimeError("shape is invalid")
    found = cause(call_from(torch.Tensor.view, (torch.randn(2, 3), object(), "B"), {}, error))
    assert found.message == "view(2 3): shape is invalid"


def test_an_error_of_the_users_own_has_no_call():
    class Refuses(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    with pytest.raises(ValueError) as caught:
        Refuses()(torch.randn(1))
    assert call_in_traceback(caught.value, None) is None


def test_values_do_not_stay_alive_in_a_call():
    x = torch.randn(2, 3)
    with pytest.raises(RuntimeError) as caught:
        F.linear(x, torch.randn(4, 5))
    call = call_from(F.linear, (x, torch.randn(4, 5)), {}, caught.value)
    assert not any(isinstance(value, torch.Tensor) for value in call.arguments.values())
