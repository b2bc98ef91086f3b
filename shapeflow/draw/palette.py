"""Colours of a drawing: a pale fill and a darker border for each family of operators, on light and on dark ground.

>>> THEMES["light"].fills["product"]
Paint(fill='#fbe6cf', line='#b8660b')

The hues are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which stay apart for every kind of colour
blindness, paled so that text on them keeps a contrast of 7 to 1. Red is left to findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shapeflow.errors import DrawError

FAMILIES: Mapping[str, tuple[str, str]] = {
    "weights": (
        "weights",
        """linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d embedding embedding_bag
        bilinear addmm addbmm baddbmm addmv lstm gru rnn_tanh rnn_relu multi_head_attention_forward grouped_mm""",
    ),
    "product": (
        "products",
        """matmul bmm mm mv dot einsum tensordot outer inner kron cdist scaled_dot_product_attention flex_attention
        chain_matmul vecdot linalg_vecdot rmatmul imatmul""",
    ),
    "norm": (
        "norms",
        """layer_norm rms_norm batch_norm group_norm instance_norm local_response_norm normalize norm
        vector_norm linalg_vector_norm""",
    ),
    "activation": (
        "activations",
        """relu relu_ relu6 gelu silu silu_ elu selu celu leaky_relu leaky_relu_ prelu mish sigmoid logsigmoid tanh
        hardswish hardsigmoid hardtanh softplus softsign softmax log_softmax gumbel_softmax softmin glu threshold
        sigmoid_ tanh_ tanhshrink softshrink hardshrink rrelu""",
    ),
    "arithmetic": (
        "arithmetic",
        """add sub mul div pow add_ sub_ mul_ div_ iadd isub imul idiv radd rsub rmul rdiv truediv rtruediv floordiv
        rfloordiv remainder mod neg abs exp log log1p expm1 sqrt rsqrt square reciprocal sin cos tan erf maximum minimum
        clamp clip clamp_min clamp_max where lerp addcmul addcdiv masked_fill masked_fill_ eq ne lt le gt ge
        logical_and logical_or logical_not logical_xor and or xor invert bitwise_and bitwise_or bitwise_not isnan
        isfinite isinf sign round floor ceil cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss
        binary_cross_entropy binary_cross_entropy_with_logits kl_div rpow ior iand itruediv cumsum cumprod tril triu""",
    ),
    "reduction": (
        "pooling, reductions",
        """max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d mean sum max min amax amin argmax argmin topk prod
        std var any all logsumexp median mode sort argsort count_nonzero unique nonzero bincount interpolate
        upsample""",
    ),
}
"""Each family with its words in the legend and its operators; what is in none changes no numbers, or is not known."""

FAMILY_OF: Mapping[str, str] = {
    operator: family for family, (_, names) in FAMILIES.items() for operator in names.split()
}


@dataclass(frozen=True, slots=True)
class Paint:
    """The inside and the border of a box."""

    fill: str
    line: str


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one drawing. `fills` is by family; `clusters` are the grounds of nested modules in turn."""

    ground: str
    text: str
    faint: str
    line: str
    spine: str
    plain: Paint
    block: Paint
    end: Paint
    end_text: str
    made: Paint
    fresh: str
    mark: str
    error: Paint
    warning: Paint
    clusters: tuple[str, ...]
    cluster_line: str
    fills: Mapping[str, Paint]


LIGHT = Theme(
    ground="#ffffff",
    text="#1c2127",
    faint="#59626d",
    line="#7a838d",
    spine="#2b323a",
    plain=Paint("#ffffff", "#a9b0b8"),
    block=Paint("#eceff3", "#56616d"),
    end=Paint("#2f3a46", "#2f3a46"),
    end_text="#ffffff",
    made=Paint("#f5f5f2", "#a9a99c"),
    fresh="#8a3ffc",
    mark="#a04a00",
    error=Paint("#fde3e1", "#c21807"),
    warning=Paint("#fdeee1", "#c2410c"),
    clusters=("#f7f8fa", "#eff2f5", "#e7ebef"),
    cluster_line="#c3cad2",
    fills={
        "weights": Paint("#d9e8f5", "#2a6ea6"),
        "product": Paint("#fbe6cf", "#b8660b"),
        "norm": Paint("#d7eee5", "#11805f"),
        "activation": Paint("#fbf4c6", "#97830a"),
        "arithmetic": Paint("#f0f0f0", "#80868c"),
        "reduction": Paint("#f5e0ec", "#a1527f"),
    },
)
DARK = Theme(
    ground="#14181d",
    text="#eef1f4",
    faint="#a7b0ba",
    line="#8b95a0",
    spine="#d5dbe1",
    plain=Paint("#1d232a", "#5f6a76"),
    block=Paint("#2a323b", "#93a0ad"),
    end=Paint("#e4e9ee", "#e4e9ee"),
    end_text="#14181d",
    made=Paint("#22251f", "#7b7b6b"),
    fresh="#c4a5ff",
    mark="#ffb86b",
    error=Paint("#4a1512", "#ff7b6e"),
    warning=Paint("#452510", "#ffa15c"),
    clusters=("#1a1f25", "#20262d", "#262d35"),
    cluster_line="#444e59",
    fills={
        "weights": Paint("#173450", "#6cb0e6"),
        "product": Paint("#46290a", "#eba04f"),
        "norm": Paint("#0f3a2e", "#4cc39d"),
        "activation": Paint("#3d3708", "#d6c34a"),
        "arithmetic": Paint("#2b2f33", "#9aa1a8"),
        "reduction": Paint("#431f34", "#dc8fba"),
    },
)
THEMES: Mapping[str, Theme] = {"light": LIGHT, "dark": DARK}


def theme_of(name: str) -> Theme:
    if name not in THEMES:
        raise DrawError(f"no theme is called {name!r}; there are: {', '.join(THEMES)}")
    return THEMES[name]


def family_of(operator: str) -> str:
    """The family of an operator by its name, `""` for one that only moves numbers about or that is not known."""
    return FAMILY_OF.get(operator, "")
