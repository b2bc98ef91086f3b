"""Where a model attends: each attention with its keys, its values and whether it looks back only.

An attention is `scaled_dot_product_attention`, or a softmax between two products of tensors that were computed.

>>> [(each.call.path, each.causal) for each in attentions(Lineage(calls(trace)))]
[('h.0.attn', True), ...]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from shapeflow.cost.calls import Call, root_of
from shapeflow.cost.rules import FREE

PRODUCTS = frozenset({"matmul", "rmatmul", "bmm", "baddbmm", "einsum"})
TRIANGLES = frozenset({"tril", "triu", "tril_indices", "triu_indices"})
ORDERS = frozenset({"lt", "le", "gt", "ge", "less", "less_equal", "greater", "greater_equal"})
LARGEST = 2**24
"""A buffer with more numbers is not looked into for a triangle."""


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """`call` makes the mixture of the `values` by the scores of `query` with `keys`.

    `length` is how many keys there are; `masked` made the masks.
    """

    call: Call
    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    causal: bool
    length: Any
    masked: list[Call] = field(default_factory=list)


class Lineage:
    """Which call made each tensor, which calls read it, and what is behind it."""

    def __init__(self, made: tuple[Call, ...]) -> None:
        self.calls = made
        self.by_record = {id(call.record): call for call in made}
        self.readers: dict[int, list[Call]] = {}
        for call in made:
            for source, _, _ in call.record.sources:
                self.readers.setdefault(id(source), []).append(call)
        self._features: dict[int, bool] = {}

    def makers(self, call: Call) -> list[Call | None]:
        """Who made each tensor that the call reads: None for parameters, buffers, constants and inputs."""
        return [self.by_record.get(id(source)) for source, _, _ in call.record.sources]

    def maker(self, call: Call, tensor: torch.Tensor) -> Call | None:
        """Who made this one of them."""
        pairs = zip(call.reads, self.makers(call), strict=False)
        return next((maker for read, maker in pairs if read is tensor), None)

    def features(self, call: Call) -> bool:
        """Whether the call's result comes from parameters or from floating-point inputs: it is no mere position."""
        for each in self._behind_first(call):
            known = any(
                source.kind == "parameter" or (source.kind == "input" and signature.dtype.is_floating_point)
                for source, _, signature in each.record.sources
            )
            above = [maker for maker in self.makers(each) if maker is not None]
            self._features[id(each)] = known or any(self._features[id(maker)] for maker in above)
        return self._features[id(call)]

    def _behind_first(self, call: Call) -> Iterator[Call]:
        """The call and all behind it that are not known yet, makers before readers."""
        waiting = [(call, False)]
        while waiting:
            each, ready = waiting.pop()
            if id(each) in self._features:
                continue
            if ready:
                yield each
                continue
            waiting.append((each, True))
            waiting.extend((maker, False) for maker in self.makers(each) if maker is not None)

    def behind(self, start: list[Call]) -> Iterator[Call]:
        """These calls and all whose results they were made from, but not through those that read parameters."""
        seen: set[int] = set()
        waiting = list(start)
        while waiting:
            call = waiting.pop()
            if id(call) in seen:
                continue
            seen.add(id(call))
            yield call
            if not any(source.kind == "parameter" for source, _, _ in call.record.sources):
                waiting.extend(maker for maker in self.makers(call) if maker is not None)


def attentions(lineage: Lineage) -> list[Attention]:
    """All attentions of the model, in the order of running."""
    found = [_found(lineage, call) for call in lineage.calls]
    return [each for each in found if each is not None]


def _found(lineage: Lineage, call: Call) -> Attention | None:
    if call.record.operator == "scaled_dot_product_attention":
        return _fused(lineage, call)
    return _of_softmax(lineage, call) if call.record.operator == "softmax" else None


def _fused(lineage: Lineage, call: Call) -> Attention:
    query, keys, values = call.reads[:3]
    named = dict(zip(("mask", "dropout_p", "is_causal"), call.args[3:], strict=False)) | call.kwargs
    mask = named.get("attn_mask", named.get("mask"))
    causal = bool(named.get("is_causal")) or (isinstance(mask, torch.Tensor) and _looks_back(lineage, call, [mask]))
    maker = lineage.maker(call, mask) if isinstance(mask, torch.Tensor) else None
    return Attention(call, query, keys, values, causal, keys.shape[-2], [] if maker is None else [maker])


def _of_softmax(lineage: Lineage, softmax: Call) -> Attention | None:
    scores, between = _upwards(lineage, softmax)
    mixture, weights = _downwards(lineage, softmax)
    if scores is None or mixture is None or len(scores.reads) < 2 or len(mixture.reads) < 2:
        return None
    values = [tensor for tensor in mixture.reads if lineage.maker(mixture, tensor) is not weights]
    masked = any(_looks_back(lineage, call, list(call.reads)) for call in between)
    query, keys = scores.reads[-2:]
    above = [maker for call in between for maker in lineage.makers(call) if maker is not None]
    put_on = [maker for maker in above if not lineage.features(maker)]
    length = softmax.makes[0].shape[-1]
    return Attention(mixture, query, keys, values[-1], masked, length, put_on) if values else None


def _upwards(lineage: Lineage, call: Call) -> tuple[Call | None, list[Call]]:
    """The product that the scores come from, and what was done to them since."""
    between: list[Call] = []
    waiting = [call]
    while waiting:
        each = waiting.pop(0)
        if each.record.operator in PRODUCTS:
            return each, between
        if each.record.operator in FREE and each not in between:
            between.append(each)
            waiting.extend(maker for maker in lineage.makers(each) if maker is not None and lineage.features(maker))
    return None, between


def _downwards(lineage: Lineage, call: Call) -> tuple[Call | None, Call]:
    """The product that the weights go into, and what hands them to it."""
    waiting, seen = [call], {id(call)}
    while waiting:
        each = waiting.pop(0)
        for reader in lineage.readers.get(id(each.record), []):
            if reader.record.operator in PRODUCTS:
                return reader, each
            if reader.record.operator in FREE and id(reader) not in seen:
                seen.add(id(reader))
                waiting.append(reader)
    return None, call


def _looks_back(lineage: Lineage, call: Call, masks: list[torch.Tensor]) -> bool:
    """Whether a mask lets no later position through: a triangle, or positions compared with positions."""
    makers = [maker for mask in masks if (maker := lineage.maker(call, mask)) is not None]
    if any(_is_triangle(mask) for mask in masks):
        return True
    for each in lineage.behind(makers):
        if each.record.operator in TRIANGLES or any(_is_triangle(tensor) for tensor in each.reads):
            return True
        if each.record.operator in ORDERS and _compares_positions(lineage, each):
            return True
    return False


def _compares_positions(lineage: Lineage, call: Call) -> bool:
    sides = [maker for maker in lineage.makers(call) if maker is not None]
    return len(sides) == 2 and all(
        any(each.record.operator in ("arange", "cumsum") for each in lineage.behind([side])) for side in sides
    )


def _is_triangle(tensor: torch.Tensor) -> bool:
    """Whether a buffer or a constant holds a lower or an upper triangle."""
    real: Any = root_of(tensor).real
    if real is None or real.dim() < 2 or real.device.type == "meta" or real.numel() > LARGEST:
        return False
    if real.shape[-1] != real.shape[-2] or real.shape[-1] < 2:
        return False
    allowed = real.bool() if not real.is_floating_point() or not real.isinf().any() else real == 0
    flat = allowed.reshape(-1, *real.shape[-2:])[0]
    return (
        bool((flat.tril() == flat).all() or (flat.triu() == flat).all()) and bool(flat.any()) and not bool(flat.all())
    )
