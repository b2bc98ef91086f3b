"""Which operator a module of torch stands for, with its parameters: known without recording anything.

>>> operator_of(nn.Linear(3, 4), {"input": x})
('linear', {'input': x, 'weight': ..., 'bias': ...})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.modules import conv, loss, pooling

LOSSES: dict[type[nn.Module], str] = {
    nn.CrossEntropyLoss: "cross_entropy",
    nn.NLLLoss: "nll_loss",
    nn.MSELoss: "mse_loss",
    nn.L1Loss: "l1_loss",
    nn.SmoothL1Loss: "smooth_l1_loss",
    nn.BCELoss: "binary_cross_entropy",
    nn.BCEWithLogitsLoss: "binary_cross_entropy_with_logits",
}


def operator_of(module: nn.Module, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The operator's name and its arguments; the module's own name where it is more than one operator."""
    name, given = type(module).__name__, dict(inputs)
    if isinstance(module, nn.Linear):
        return "linear", {**given, "weight": module.weight, "bias": module.bias}
    if isinstance(module, conv._ConvNd):
        axes = module.weight.dim() - 2
        kind = "conv_transpose" if module.transposed else "conv"
        return f"{kind}{axes}d", {**given, "weight": module.weight, "bias": module.bias, "groups": module.groups}
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return name.replace("Norm", "_norm").lower(), {**given, "normalized_shape": list(module.normalized_shape)}
    if isinstance(module, nn.GroupNorm):
        return "group_norm", {**given, "num_groups": module.num_groups}
    if isinstance(module, nn.Embedding):
        return "embedding", {**given, "weight": module.weight}
    if isinstance(module, pooling._MaxPoolNd | pooling._AvgPoolNd):
        return f"{name[:3].lower()}_pool{name[-2:]}", {**given, "kernel_size": module.kernel_size}
    if isinstance(module, nn.Upsample):
        return "interpolate", {**given, "size": module.size, "mode": module.mode}
    if isinstance(module, loss._Loss) and type(module) in LOSSES:
        return LOSSES[type(module)], given
    return name, given
