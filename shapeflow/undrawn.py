"""Models on the meta device, whose weights have sizes and no numbers, built without drawing them.

>>> with Undrawn(), torch.device("meta"):
...     model = GPT(config)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

LIKE_NORMAL = {torch.randn: torch.empty, torch.randn_like: torch.empty_like}


class Undrawn(TorchFunctionMode):
    """Draws no normal numbers on the meta device, where there are none.

    torch would do that in Python, and import its compiler for it: most of the time that a model takes to build.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.normal_, nn.init.normal_):
            tensor = args[0] if args else kwargs["tensor"]
            refused = func is torch.Tensor.normal_ and tensor.requires_grad and torch.is_grad_enabled()
            if tensor.is_meta and not refused:
                return tensor
        elif func in LIKE_NORMAL:
            like = args[0].device if func is torch.randn_like else torch.get_default_device()
            if torch.device(kwargs.get("device") or like).type == "meta":
                return LIKE_NORMAL[func](*args, **{name: kwargs[name] for name in kwargs if name != "generator"})
        return func(*args, **kwargs)
