"""How many floating-point operations an operator of ATen takes: two for a multiply-add, as `torch.utils.flop_counter`.

torch's own registry, completed for the operators that it leaves out: the attention kernel of the CPU, products of
grouped matrices, products with vectors. What only moves, compares or maps numbers counts as none; what is in neither
table is unknown, and is listed by `Cost.unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from shapeflow.torch_private import aten_name

aten = torch.ops.aten

FREE = frozenset(
    """
    view _unsafe_view reshape _reshape_alias expand expand_as permute transpose t T mT squeeze unsqueeze flatten
    unflatten movedim moveaxis swapaxes swapdims getitem setitem select slice narrow unbind split split_with_sizes
    chunk tensor_split hsplit vsplit dsplit as_strided diagonal alias detach view_as view_as_real view_as_complex
    real imag data unfold contiguous clone copy to type type_as float double half bfloat16 int long bool byte short
    cpu cuda lift lift_fresh lift_fresh_copy requires_grad _to_copy _conj conj resolve_conj resolve_neg
    cat concat concatenate stack hstack vstack dstack column_stack repeat repeat_interleave tile roll flip fliplr
    flipud rot90 pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im fold
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like new_empty new_zeros new_ones
    new_full new_tensor arange linspace logspace eye tensor as_tensor scalar_tensor from_numpy tril_indices
    triu_indices meshgrid cartesian_prod block_diag diag diag_embed tril triu broadcast_to broadcast_tensors
    rand randn randint rand_like randn_like randint_like randperm bernoulli uniform normal exponential multinomial
    index index_select index_put index_add index_copy index_fill gather scatter scatter_add scatter_reduce take
    take_along_dim masked_fill masked_select masked_scatter where nonzero argwhere unique unique_consecutive embedding
    embedding_bag _embedding_bag one_hot bucketize searchsorted histc bincount fill zero resize set
    unsafe_chunk unsafe_split
    add sub subtract mul multiply div divide true_divide floor_divide remainder fmod neg negative pow float_power square
    sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 arctan2 sinh cosh
    tanh asinh acosh atanh sinc erf erfc erfinv lgamma digamma sigmoid logit abs absolute sign sgn ceil floor round
    trunc frac clamp clip clamp_min clamp_max minimum maximum fmin fmax lerp addcmul addcdiv hypot logaddexp
    logaddexp2 radd rsub rmul rdiv rtruediv truediv floordiv rfloordiv rmod mod rpow iadd isub imul idiv itruediv
    ifloordiv ipow polar complex angle nan_to_num xlogy heaviside ldexp
    eq ne lt le gt ge equal greater greater_equal less less_equal not_equal isclose allclose isnan isinf isfinite
    isposinf isneginf isin logical_and logical_or logical_not logical_xor and or xor invert bitwise_and bitwise_or
    bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift lshift rshift any all
    sum mean prod std var std_mean var_mean amax amin aminmax max min argmax argmin median mode quantile nansum
    nanmean logsumexp norm vector_norm linalg_vector_norm count_nonzero cumsum cumprod cummax cummin logcumsumexp diff
    sort argsort topk kthvalue msort
    softmax log_softmax _softmax _log_softmax softmin gumbel_softmax _safe_softmax relu relu6 rrelu leaky_relu prelu
    _prelu_kernel elu selu celu gelu silu mish hardtanh hardswish hardsigmoid hardshrink softshrink tanhshrink softplus
    softsign logsigmoid log_sigmoid_forward threshold glu swish
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout native_dropout
    layer_norm native_layer_norm rms_norm _fused_rms_norm group_norm native_group_norm batch_norm native_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_impl_index cudnn_batch_norm
    _batch_norm_with_update _batch_norm_no_update
    instance_norm local_response_norm normalize renorm
    max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    boolean_dispatch avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d lp_pool1d
    lp_pool2d lp_pool3d max_unpool1d max_unpool2d max_unpool3d fractional_max_pool2d fractional_max_pool3d
    interpolate upsample upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d
    upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa grid_sample grid_sampler grid_sampler_2d grid_sampler_3d affine_grid
    cross_entropy nll_loss nll_loss_forward nll_loss2d_forward mse_loss l1_loss smooth_l1_loss huber_loss bce_loss
    binary_cross_entropy binary_cross_entropy_with_logits kl_div cosine_similarity cosine_embedding_loss
    margin_ranking_loss triplet_margin_loss hinge_embedding_loss soft_margin_loss multi_margin_loss gaussian_nll_loss
    poisson_nll_loss multilabel_margin_loss nll_loss_nd ctc_loss
    pack_padded_sequence _pack_padded_sequence pad_packed_sequence _pad_packed_sequence item local_scalar_dense
    size numel is_nonzero device _assert_async _assert_scalar sym_size sym_numel _is_all_true nms
    """.split()
)
"""Operators that count as none, by name: torch's counter has no formula for them, nor for what they decompose into."""


def attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
    """Scores, and the mixture of the values."""
    return flop_registry[aten._scaled_dot_product_flash_attention](query, key, value)


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
    """Two products for each of the two in the forward, as the counter finds with the plain kernel.

    The kernel of the CPU computes the scores once more, which the counter has no formula for.
    """
    return 2 * attention(query, key, value)


def _grouped(a: Any, b: Any, offsets: Any = None, *rest: Any, **named: Any) -> Any:
    """`torch._grouped_mm`: rows (or columns) that belong to one of several matrices each."""
    rows, inner = a.shape[-2:]
    if a.dim() == 3 and b.dim() == 3:
        return 2 * a.shape[0] * rows * inner * b.shape[-1]
    return 2 * rows * inner * b.shape[-1]  # every row, column or term of the sum is of one group


def _matrix_vector(a: Any, x: Any, *rest: Any, **named: Any) -> Any:
    return 2 * a.shape[0] * a.shape[1]


def _trilinear(a: Any, b: Any, c: Any, *rest: Any, **named: Any) -> Any:
    """`nn.Bilinear` by its definition: `x1 W` for every output, then with `x2`."""
    return 2 * a.shape[0] * prod(b.shape) + 2 * a.shape[0] * b.shape[0] * c.shape[-1]


RULES: dict[Any, Callable[..., Any]] = {
    **flop_registry,
    aten._scaled_dot_product_flash_attention_for_cpu: attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten._grouped_mm: _grouped,
    aten._trilinear: _trilinear,
    aten.mv: _matrix_vector,
    aten.addmv: lambda bias, a, x, *rest, **named: _matrix_vector(a, x),
    aten.dot: lambda a, b, **named: 2 * a.shape[0],
    aten.vdot: lambda a, b, **named: 2 * a.shape[0],
    aten.addbmm: lambda bias, a, b, **named: 2 * prod(a.shape) * b.shape[-1],
    aten._int_mm: lambda a, b, **named: 2 * prod(a.shape) * b.shape[-1],
}
"""Flops by operator packet; a rule takes the operator's arguments, and its result as `out_val`."""


def is_free(function: Any) -> bool:
    """Whether an operator of ATen counts as none."""
    name = aten_name(function).rstrip("_")
    return name in FREE or torch.Tag.pointwise in function.tags or name.endswith("_backward")
