"""One axis of a spec: `"T<=512"` -> `Dim(expr=T, name="T", high=512)`.

>>> word = Word("B 2*T", 2, 5)
>>> str(parse_axis(word))
'2*T'

The marks are jaxtyping's and mean what they mean there; bounds, and labels that are kept (`H=224`), are ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from shapeflow.dims.dim import Dim
from shapeflow.dims.expr import Expr
from shapeflow.dims.text import parse
from shapeflow.errors import SpecError

_MARKS = "#*?_"
_BOUND = re.compile(r"([<>=!]+)([^<>=!]*)")
_NUMBER_FIRST = re.compile(r"(\d+)(<=?|>=?)([^\W\d]\w*)(.*)")  # 2<=T
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MISSPELT = {"=<": "<=", "=>": ">=", "==": "="}
_DIGITS_THEN_NAME = re.compile(r"(?<!\w)\d+[^\W\d]\w*")
_ATTRIBUTE = re.compile(r"(?<!\w)(?:[^\W\d]\w*\.)+(?=[^\W\d])")  # the `self.` of `self.x`
_OPERATOR = re.compile(r"[<>=!]+|[-+/%^]|\*+|//")
_SLASH = re.compile(r"(?<!/)/(?!/)")
_FOREIGN = re.compile(r"[^\w+\-*/%^(),<>=!#?]")


@dataclass(frozen=True, slots=True)
class Word:
    """An axis as written, and where: its errors point into the whole spec, and show the whole spec mended."""

    spec: str
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.spec[self.start : self.end]

    def error(self, reason: str, *, at: int = 0, instead: str = "") -> SpecError:
        mended = self.spec[: self.start] + instead + self.spec[self.end :] if instead else ""
        return SpecError(self.spec, self.start + at, reason, mended.strip())


def parse_axis(word: Word) -> Dim:
    """Read one axis. Raises SpecError with a caret under the fault."""
    if "..." in word.text:
        return _ellipsis(word)
    _refuse_foreign(word)
    rest = word.text.lstrip(_MARKS)
    marks = word.text[: len(word.text) - len(rest)]
    _refuse_repeated(word, marks, rest)
    if "_" in marks:
        return _anonymous(word, marks, rest)
    if rest.isidentifier():
        return _named(marks, rest)
    return _sized(word, marks, rest)


def _ellipsis(word: Word) -> Dim:
    if word.text != "...":
        reason = "`...` stands alone; `*name` is its form with a name"
        raise word.error(reason, at=word.text.index("..."), instead="...")
    return Dim(variadic=True)


def _anonymous(word: Word, marks: str, rest: str) -> Dim:
    if rest and not rest.isidentifier():
        raise word.error("`_` is an axis of any size, so it has no size of its own", instead=rest)
    if "#" in marks:
        reason = "`_` is an axis of any size, so it cannot also broadcast"
        raise word.error(reason, at=marks.index("#"), instead=word.text.replace("#", ""))
    return Dim(variadic="*" in marks)


def _named(marks: str, name: str) -> Dim:
    broadcast, own = "#" in marks, "?" in marks
    if "*" in marks:
        # `?*x` binds nothing that another leaf could share, and a variadic name is a binding
        return Dim(name=None if own else name, broadcast=broadcast and not own, variadic=True)
    return Dim(expr=None if own else Expr.symbol(name), name=name, broadcast=broadcast)


def _sized(word: Word, marks: str, rest: str) -> Dim:
    _refuse_spaced(word)
    if not rest:
        raise word.error(f"a name is missing after `{marks}`", at=len(marks), instead=f"{marks}B")
    if late := re.search("[#?]", rest):
        instead = late[0] + word.text.replace(late[0], "")
        raise word.error(f"`{late[0]}` stands in front of an axis", at=len(marks) + late.start(), instead=instead)
    if only_name := marks.replace("#", ""):
        reason = f"`{only_name[0]}` stands before a name, never before a number or an expression"
        raise word.error(reason, at=marks.index(only_name[0]), instead=rest)
    if re.search("[<>!]", rest):
        dim = _bounded(word, rest, len(marks))
    elif "=" in rest:
        dim = _labelled(word, rest, len(marks))
    else:
        expr = _expression(word, rest, len(marks))
        dim = Dim(expr, _symbol_name(expr))
    return replace(dim, broadcast="#" in marks)


def _bounded(word: Word, rest: str, offset: int) -> Dim:
    """`T<=512`, `B<8`, `T>=2<=512`; `offset` is where `rest` starts in the word."""
    name = re.split("[<>=!]", rest, maxsplit=1)[0]
    if not name.isidentifier():
        raise word.error("a bound stands after a name", at=offset, instead=_name_first(rest))
    low: int | None = None
    high: int | None = None
    for match in _BOUND.finditer(rest, len(name)):
        relation, number = match[1], _bound_number(word, match, offset)
        lower = relation[0] == ">"
        if (low if lower else high) is not None:
            raise word.error(f"`{name}` has two {'lower' if lower else 'upper'} bounds", at=offset + match.start())
        if lower:
            low = number if relation == ">=" else number + 1
        else:
            high = number if relation == "<=" else number - 1
    if high is not None and high < (1 if low is None else low):
        raise _empty_range(word, name, low, offset)
    return Dim(Expr.symbol(name), name, low=low, high=high)


def _bound_number(word: Word, bound: re.Match[str], offset: int) -> int:
    """The number of one `<=512`; raises for everything that is no bound."""
    relation, number = bound[1], bound[2]
    at, end = offset + bound.start(), offset + bound.end()
    if relation in ("=", "!="):
        raise word.error(f"a bound is one of < <= > >=, not `{relation}`", at=at)
    if relation not in _FLIPPED:
        right = _MISSPELT.get(relation, "")
        instead = word.text[:at] + right + word.text[at + len(relation) :]
        raise word.error(f"`{relation}` is no relation", at=at, instead=instead if right else "")
    if not number:
        raise word.error(f"a number is missing after `{relation}`", at=end, instead=word.text[:end] + "8")
    if re.fullmatch(r"-\d+", number):
        raise word.error("sizes are not negative", at=at + len(relation), instead=word.text[:at] + word.text[end:])
    if not re.fullmatch(r"\d+", number, re.ASCII):
        raise word.error(f"a bound is a number, not `{number}`", at=at + len(relation))
    return int(number)


def _name_first(rest: str) -> str:
    """`2<=T<=8` the way it is written here: `T>=2<=8`."""
    match = _NUMBER_FIRST.fullmatch(rest)
    return f"{match[3]}{_FLIPPED[match[2]]}{match[1]}{match[4]}" if match else ""


def _empty_range(word: Word, name: str, low: int | None, offset: int) -> SpecError:
    if low is None:
        reason = f"no size fits: without a lower bound `{name}` is at least 1"
        end = offset + len(name)
        return word.error(reason, at=end, instead=f"{word.text[:end]}>=0{word.text[end:]}")
    return word.error(f"no size of `{name}` fits both bounds", at=offset + len(name))


def _labelled(word: Word, rest: str, offset: int) -> Dim:
    """`H=224`, and jaxtyping's `d=h*k`, whose label jaxtyping drops."""
    name, _, size = rest.partition("=")
    after = offset + len(name) + 1
    if not name:
        raise word.error("a name is missing before `=`", at=offset, instead=size)
    if not name.isidentifier():
        raise word.error("only a name can stand before `=`", at=offset, instead=size)
    if not size:
        raise word.error(f"a size is missing after `=`; `{name}` alone is free", at=after, instead=f"{name}=8")
    if "=" in size:
        raise word.error("one `=` is enough", at=after + size.index("="), instead=f"{name}={size.lstrip('=')}")
    expr = _expression(word, size, after)
    if any(symbol.name == name for symbol in expr.symbols):
        raise word.error(f"`{name}` is defined by itself", at=after, instead=size)
    if expr.constant is None:
        return Dim(expr, name)
    if expr.constant < 1:
        raise word.error("a size with a name is at least 1", at=after, instead=str(expr.constant))
    return Dim(Expr.symbol(name, expr.constant), name)


def _expression(word: Word, text: str, offset: int) -> Expr:
    if stuck := _DIGITS_THEN_NAME.search(text):
        raise _stuck(word, stuck, offset)
    if hidden := re.search(r"(?<!\w)_\w*", text):
        reason = f"`{hidden[0]}` is an axis of any size: there is nothing to count with"
        raise word.error(reason, at=offset + hidden.start())
    if slash := _SLASH.search(text):
        instead = word.text[:offset] + _SLASH.sub("//", text)
        raise word.error("sizes are whole numbers: divide with `//`", at=offset + slash.start(), instead=instead)
    try:
        expr = parse(text)
    except SpecError as error:
        mended = word.text[:offset] + error.hint if error.hint else ""
        raise word.error(error.reason, at=offset + error.position, instead=mended) from error
    if expr.constant is not None and expr.constant < 0:
        reason = "a size is not negative; `_` is an axis of any size"
        instead = "_" if word.text == "-1" else word.text[:offset] + text[1:]
        raise word.error(reason, at=offset, instead=instead if text[1:].isdecimal() else "")
    return expr


def _symbol_name(expr: Expr) -> str | None:
    """`T` of an expression that comes down to it, `T*1`."""
    names = [symbol.name for symbol in expr.symbols if expr is Expr.symbol(symbol.name)]
    return names[0] if names else None


def _stuck(word: Word, stuck: re.Match[str], offset: int) -> SpecError:
    """`3x224` where axes were meant, or `3x` where a product was."""
    at, name = offset + stuck.start(), stuck[0].lstrip("0123456789")
    if re.fullmatch(r"\d+(x\d+)+", word.text, re.ASCII):
        reason, instead = "axes are separated by spaces, not by `x`", word.text.replace("x", " ")
        return word.error(reason, at=word.text.index("x"), instead=instead)
    number = stuck[0][: -len(name)]
    instead = f"{word.text[:at]}{number}*{name}{word.text[at + len(stuck[0]) :]}"
    return word.error("a name does not start with a digit", at=at, instead=instead)


def _refuse_repeated(word: Word, marks: str, rest: str) -> None:
    for at, mark in enumerate(marks):
        if mark in marks[:at]:
            instead = "".join(dict.fromkeys(marks)) + rest
            raise word.error(f"`{mark}` stands twice", at=at, instead=instead)


def _refuse_foreign(word: Word) -> None:
    """What jaxtyping would evaluate while the model runs, and what stands here by mistake."""
    match = _FOREIGN.search(word.text)
    if match is None:
        return
    reason = f"`{match[0]}` has no meaning here"
    if match[0] in "{}":
        reason = "braces read a value of the running program; a spec needs a name"
    elif match[0] == ".":
        reason = "a spec reads no attributes and no fractions"
    plain = _ATTRIBUTE.sub("", re.sub("[{}]", "", word.text))
    raise word.error(reason, at=match.start(), instead="" if _FOREIGN.search(plain) else plain)


def _refuse_spaced(word: Word) -> None:
    """`T <= 512`, `H= 224`, `2 * T`: an operator that lost its operands to a space."""
    before, after = word.spec[: word.start].rstrip(), word.spec[word.end :].lstrip()
    alone = _OPERATOR.fullmatch(word.text) is not None
    starts = _OPERATOR.match(word.text) is not None and word.text[0] not in "*-"  # `*batch` and `-1` are whole
    ends = _OPERATOR.match(word.text[-1]) is not None
    joins_left = bool(before) and (alone or starts)
    joins_right = after[:1] not in ("", ":") and (alone or ends)
    if joins_left or joins_right:
        left = before if joins_left else word.spec[: word.start]
        right = after if joins_right else word.spec[word.end :]
        at = word.start if joins_left else word.end
        raise SpecError(word.spec, at, "an axis has no spaces inside", left + word.text + right)
