"""The names of operators' parameters, in order: most of torch's are built in C and have no signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CONV = "input weight bias stride padding dilation groups"
_CONV_TRANSPOSE = "input weight bias stride padding output_padding groups dilation"
_LOSS = "input target weight size_average ignore_index reduce reduction"
_POOL = "input kernel_size stride padding dilation ceil_mode"

PARAMETERS: dict[str, tuple[str, ...]] = {
    name: tuple(text.split())
    for name, text in {
        "linear": "input weight bias",
        "bilinear": "input1 input2 weight bias",
        "conv1d": _CONV,
        "conv2d": _CONV,
        "conv3d": _CONV,
        "conv_transpose1d": _CONV_TRANSPOSE,
        "conv_transpose2d": _CONV_TRANSPOSE,
        "conv_transpose3d": _CONV_TRANSPOSE,
        "batch_norm": "input running_mean running_var weight bias training momentum eps",
        "instance_norm": "input running_mean running_var weight bias use_input_stats momentum eps",
        "layer_norm": "input normalized_shape weight bias eps",
        "rms_norm": "input normalized_shape weight eps",
        "group_norm": "input num_groups weight bias eps",
        "embedding": "input weight padding_idx",
        "cross_entropy": _LOSS,
        "nll_loss": _LOSS,
        "mse_loss": "input target",
        "l1_loss": "input target",
        "smooth_l1_loss": "input target",
        "huber_loss": "input target",
        "binary_cross_entropy": "input target weight",
        "binary_cross_entropy_with_logits": "input target weight",
        "kl_div": "input target",
        "cat": "tensors dim",
        "concat": "tensors dim",
        "concatenate": "tensors dim",
        "stack": "tensors dim",
        "hstack": "tensors",
        "vstack": "tensors",
        "view": "input size",
        "reshape": "input shape",
        "unflatten": "input dim sizes",
        "flatten": "input start_dim end_dim",
        "expand": "input size",
        "matmul": "input other",
        "rmatmul": "other input",
        "bmm": "input mat2",
        "mm": "input mat2",
        "mv": "input vec",
        "baddbmm": "add input mat2",
        "addmm": "add input mat2",
        "einsum": "equation operands",
        "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale",
        "gather": "input dim index",
        "index_select": "input dim index",
        "getitem": "input index",
        "select": "input dim index",
        "narrow": "input dim start length",
        "transpose": "input dim0 dim1",
        "permute": "input dims",
        "squeeze": "input dim",
        "unsqueeze": "input dim",
        "mean": "input dim keepdim",
        "sum": "input dim keepdim",
        "softmax": "input dim",
        "split": "input split_size dim",
        "chunk": "input chunks dim",
        "interpolate": "input size scale_factor mode",
        "upsample": "input size scale_factor mode",
        "max_pool1d": _POOL,
        "max_pool2d": _POOL,
        "max_pool3d": _POOL,
        "avg_pool1d": _POOL,
        "avg_pool2d": _POOL,
        "avg_pool3d": _POOL,
        "pad": "input pad mode value",
        "pixel_shuffle": "input upscale_factor",
    }.items()
}
SPREAD = {"view": "size", "reshape": "shape", "permute": "dims", "expand": "size"}
"""Methods that take their list item by item as well: `x.view(b, t, 8)`."""
ALIASES = {
    "rmatmul": "matmul",
    "boolean_dispatch": "max_pool2d",
    "_max_pool2d": "max_pool2d",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool1d_with_indices": "max_pool1d",
    "concat": "cat",
    "concatenate": "cat",
    "subtract": "sub",
    "multiply": "mul",
    "true_divide": "truediv",
}


def by_name(operator: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name; by position where the operator is not in the table."""
    names = PARAMETERS.get(operator, ())
    if operator in SPREAD and len(args) > 1 and not isinstance(args[1], list | tuple):
        args = (args[0], list(args[1:]))
    given = {names[index] if index < len(names) else str(index): value for index, value in enumerate(args)}
    return {**given, **{_renamed(name, names): value for name, value in kwargs.items()}}


def _renamed(name: str, names: tuple[str, ...]) -> str:
    return "input" if name == "self" and "input" in names else name
