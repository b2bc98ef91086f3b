"""What a parameter is for: `weight`, `bias`, `norm` or `embedding`. "Excluding biases, norms and embeddings" needs it.

>>> role_of("LayerNorm", "weight")
'norm'

By the layer that holds it, and for parameters that a module holds itself by their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from shapeflow.cost.inventory import Holding, Inventory, joined
from shapeflow.errors import InputError
from shapeflow.importer import closest

Role = Literal["weight", "bias", "norm", "embedding"]
ROLES: dict[str, Role] = {"weights": "weight", "biases": "bias", "norms": "norm", "embeddings": "embedding"}

NORM = re.compile(r"norm(?!al)|(^|\.)ln_?\d*$", re.IGNORECASE)
EMBEDDING = re.compile(r"embedding|^embed|position|^wte$|^wpe$", re.IGNORECASE)
TABLE = re.compile(r"embed|position|(cls|class|mask|dist|register)_?token", re.IGNORECASE)
"""Names of parameters that a module holds itself: `pos_embed`, `cls_token`, `relative_position_bias_table`."""
BIAS = re.compile(r"(^|_)bias(es)?($|_)", re.IGNORECASE)


@cache
def role_of(kind: str, name: str) -> Role:
    """The role of the parameter `name` (its own name, without the path) of a module whose class is called `kind`."""
    if NORM.search(kind):
        return "norm"
    if EMBEDDING.search(kind) or TABLE.search(name):
        return "embedding"
    return "bias" if BIAS.search(name) else "weight"


def roles(found: Inventory) -> list[Role]:
    """One for each holding. The parts of a parametrised `weight` have the role of the whole, in its own layer."""
    return [role_of(*_owner(found, holding)) for holding in found.holdings]


def _owner(found: Inventory, holding: Holding) -> tuple[str, str]:
    """The class of the layer, and the name there: `original0` in `parametrizations.weight` is the layer's `weight`."""
    member = found.members[holding.module]
    parent = found.members[member.parent]
    if parent.name == "parametrizations":
        return found.members[parent.parent].kind, member.name
    if member.kind in ("ParameterList", "ParameterDict"):
        return parent.kind, member.name if holding.name.isdigit() else f"{member.name}_{holding.name}"
    return member.kind, holding.name


def kept(found: Inventory, only: Sequence[str], exclude: Sequence[str]) -> Inventory:
    """The inventory with the parameters that are asked for.

    `only` are kinds of parameters (see `ROLES`); `exclude` are patterns as in file names, for the dotted name of a
    parameter, of a module above it, or for the class of its layer. Raises InputError for what names nothing.
    """
    for word in only:
        if word not in ROLES:
            raise InputError(f"only {word!r}{closest(word, ROLES)}: there are {', '.join(ROLES)}")
    wanted = {ROLES[word] for word in only} or {*ROLES.values()}
    by_tensor = _roles_of_tensors(found)
    used: set[str] = set()
    numbers = []
    for number, holding in enumerate(found.holdings):
        names = _names(found, holding)
        hits = [pattern for pattern in exclude if any(fnmatchcase(name, pattern) for name in names)]
        used.update(hits)
        if not holding.is_buffer and (hits or by_tensor[holding.first] not in wanted):
            continue
        numbers.append(number)
    _refuse_unused(exclude, used, found)
    return found.only(numbers)


def _roles_of_tensors(found: Inventory) -> dict[int, Role]:
    """By the number of its first holding. A table that is tied to a head is an embedding, whichever stands first."""
    result: dict[int, Role] = {}
    for holding, role in zip(found.holdings, roles(found), strict=True):
        if role == "embedding" or holding.first not in result:
            result[holding.first] = role
    return result


def _names(found: Inventory, holding: Holding) -> list[str]:
    """What a pattern may match."""
    path = found.paths[holding.module]
    above = [path[:end] for end, letter in enumerate(path) if letter == "."]
    return [joined(path, holding.name), *above, path, _owner(found, holding)[0]]


def _refuse_unused(patterns: Sequence[str], used: set[str], found: Inventory) -> None:
    for pattern in patterns:
        if pattern not in used:
            names = [name for holding in found.holdings for name in _names(found, holding)]
            raise InputError(
                f"exclude {pattern!r} matches no parameter, module or kind of layer{closest(pattern, names)}"
            )
