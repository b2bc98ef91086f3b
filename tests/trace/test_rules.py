"""Shape rules of our own, and what each was made for: the model families that torch's rules stopped."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import shapeflow as sf


def outputs(trace):
    return [str(edge.shape) for edge in trace.outputs]


def test_a_grouped_product_takes_float32_as_the_real_kernel_does():
    """Mixtral, Qwen3-MoE, DeepSeek-V3, gpt-oss: torch's meta rule wants bfloat16."""

    def forward(x, weight, ends):
        return F.grouped_mm(x, weight, offs=ends)

    assert outputs(sf.trace(forward, "N 16", "E 16 32", " E:int32")) == ["N 32"]


def test_a_name_made_of_an_unknown_index_finds_a_module():
    """Switch Transformers look up `expert_{i}` with an index out of `nonzero`."""

    class Experts(nn.ModuleDict):
        def forward(self, x, chosen):
            for index in chosen.nonzero():
                x = self[f"expert_{index[0]}"](x)
            return x

    experts = Experts({f"expert_{n}": nn.Linear(4, 4) for n in range(2)})
    trace = sf.trace(experts, "B 4", " E:bool")
    assert outputs(trace) == ["B 4"]
    assert trace.assumptions


def test_a_size_that_went_through_a_tensor_is_still_a_size():
    """Longformer: the number of windows is a torch.div of the length."""

    def forward(x):
        windows = torch.div(x.shape[1], 8, rounding_mode="trunc")
        return x[:, : 8 * (x.shape[1] // 8)].reshape(x.shape[0], windows, 8)

    assert outputs(sf.trace(forward, "B T")) == ["B T//8 8"]


def test_two_masks_of_one_shape_have_counts_of_their_own():
    """FCOS, RetinaNet: the memo handed the first mask's count to the second, and topk was out of range."""

    def forward(scores):
        kept = []
        for mask in (scores > 0, scores > 1):
            chosen, rows = scores[mask], torch.where(mask)[0]
            best, order = chosen.topk(min(10, rows.shape[0]))
            kept.append(best + rows[order])
        return kept

    trace = sf.trace(forward, " N")
    first, second = outputs(trace)
    assert first != second
    assert len(trace.fresh) == 2


def test_a_slice_by_the_corners_of_a_box_fits_a_map_of_the_box():
    """Mask R-CNN pastes a mask of the box's size into the image at the box."""

    def forward(image, box):
        height, width = box[3] - box[1] + 1, box[2] - box[0] + 1
        mask = image.new_ones((int(height), int(width)))
        image[0, box[1] : box[3] + 1, box[0] : box[2] + 1] = mask
        return image

    assert outputs(sf.trace(forward, "1 H W", " 4:int64")) == ["1 H W"]


def test_padding_to_a_multiple_and_windows_leave_no_condition():
    """Swin: `x + (-x) % 7` is 7 times a number, so it splits into windows of 7 whatever x is."""

    def forward(x):
        x = F.pad(x, (0, -x.shape[1] % 7))
        return x.view(x.shape[0], x.shape[1] // 7, 7)

    trace = sf.trace(forward, "B T")
    assert outputs(trace) == ["B ((T - 1)//7 + 1) 7"]
    assert not trace.conditions
    x = torch.randn(3, 15)
    assert torch.equal(trace.graph_module(x), forward(x))


@pytest.mark.parametrize(
    ("forward", "specs", "message"),
    [
        (lambda x, w: F.linear(x, w), ("B T 490", "5 10"), r"cannot be multiplied \(B\*Tx490 and 10x5\)"),
        (lambda b, x, w: torch.addmm(b, x, w), (" 5", "N 3", "4 5"), r"cannot be multiplied \(Nx3 and 4x5\)"),
        (lambda x: x.view(7, 11), ("B 3",), r"shape '\[7, 11\]' is invalid for input of size 3\*B"),
        (lambda x, w: F.conv2d(x, w), ("B 3 H W", "8 4 3 3"), r"to have 4 channels, but got 3 channels"),
    ],
)
def test_a_refusal_says_what_the_real_kernel_says_in_names(forward, specs, message):
    with pytest.raises(sf.TraceError, match=message):
        sf.trace(forward, *specs)


def test_a_product_under_autocast_has_autocasts_dtype():
    """Rules of our own stand back where torch does more than multiply."""

    def forward(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, w)

    (edge,) = sf.trace(forward, "B 4", "3 4").outputs
    assert (str(edge.shape), edge.shape.dtype) == ("B 3", "bfloat16")


@pytest.mark.parametrize("size", [3, 16])
def test_a_view_through_minus_one_replays(size):
    def forward(x):
        return x.reshape(-1, x.shape[2]).view(x.shape[0], -1)

    trace = sf.trace(forward, "B T 4")
    assert outputs(trace) == ["B 4*T"]
    x = torch.randn(2, size, 4)
    assert torch.equal(trace.graph_module(x), forward(x))


def test_a_view_that_fits_one_size_only_is_a_condition():
    trace = sf.trace(lambda x: x.view(x.shape[0], 40), "B T 5")
    assert [str(each) for each in trace.conditions] == ["T == 8"]
    assert re.search(r"T == 8", str(trace.domain))


def test_a_gradient_that_the_forward_takes_is_a_node():
    """Energy models return forces; the trace itself runs without autograd."""

    def forces(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad((x**2).sum(), x)
        return -gradient

    trace = sf.trace(forces, "B 3")
    assert outputs(trace) == ["B 3"]
    x = torch.randn(5, 3)
    assert torch.equal(trace.graph_module(x), forces(x))
