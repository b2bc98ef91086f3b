"""Comments that silence a rule on their line: `# shapeflow: ignore[SF301]`, several ids, or a bare `ignore` for all.

>>> [(each.line, each.rules) for each in comments_in("y = x.view(t, b)  # shapeflow: ignore[SF301]\\n")]
[(1, ('SF301',))]

A comment counts for every line of its statement: the one where a problem is, and the one that raised.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shapeflow.check.problem import Problem, Report
from shapeflow.importer import closest

_COMMENT = re.compile(r"#\s*shapeflow:\s*ignore\b(?:\s*\[(?P<rules>[^\]]*)\])?")
_RAISED_AT = re.compile(r"raised at (?P<file>.+?):(?P<line>\d+)(?::|$)")
"""How check/crash.py tells the line that raised, where that is not the line of the fault."""


@dataclass(frozen=True, slots=True)
class Comment:
    """An ignore comment; `first` to `last` are the lines of its statement, and no rules means all."""

    file: str
    line: int
    code: str
    rules: tuple[str, ...]
    first: int
    last: int
    alone: bool

    def silences(self, problem: Problem) -> bool:
        """Whether the comment is about this problem."""
        if self.rules and problem.rule not in self.rules:
            return False
        return any(_same(file, self.file) and self.first <= line <= self.last for file, line in _places(problem))


def comments_in(source: str, file: str = "") -> list[Comment]:
    """The ignore comments of a file. What does not parse has none: its problems are others."""
    found: list[tuple[tokenize.TokenInfo, int, int]] = []
    pending: list[tokenize.TokenInfo] = []
    first = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and _COMMENT.search(token.string):
                pending.append(token)
            elif token.type == tokenize.NL and not first:  # a line without a statement
                found += [(each, each.start[0], each.start[0]) for each in pending]
                pending = []
            elif token.type == tokenize.NEWLINE:
                found += [(each, first, token.end[0]) for each in pending]
                pending, first = [], 0
            elif not first and token.type not in _NO_STATEMENT:
                first = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return []
    return [_comment(token, file, start, end) for token, start, end in found]


_NO_STATEMENT = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)


def _comment(token: tokenize.TokenInfo, file: str, first: int, last: int) -> Comment:
    match = _COMMENT.search(token.string)
    assert match is not None
    rules = tuple(re.findall(r"[^\s,]+", match["rules"] or ""))
    code = token.line.strip()
    return Comment(file, token.start[0], code, rules, first, last, alone=code.startswith("#"))


@dataclass(frozen=True, slots=True)
class Silenced:
    """Reports without what is ignored, how many problems that were, and SF404 for what silenced nothing."""

    reports: tuple[Report, ...]
    ignored: int
    stale: tuple[Problem, ...]


def silence(reports: Iterable[Report], comments: Iterable[Comment], rules: Collection[str]) -> Silenced:
    """Take away what comments silence; `rules` are all ids that there are, to tell a slip from a stale comment."""
    comments = tuple(comments)
    used: set[tuple[Comment, str]] = set()
    kept: list[Report] = []
    ignored = 0
    for report in reports:
        problems = []
        for problem in report.problems:
            by = [comment for comment in comments if comment.silences(problem)]
            used.update((comment, problem.rule) for comment in by)
            if not by:
                problems.append(problem)
        ignored += len(report.problems) - len(problems)
        kept.append(replace(report, problems=tuple(problems)))
    stale = tuple(problem for comment in comments for problem in _stale(comment, used, rules))
    return Silenced(tuple(kept), ignored, stale)


def _stale(comment: Comment, used: set[tuple[Comment, str]], rules: Collection[str]) -> Iterator[Problem]:
    """SF404 for each id of a comment that silenced nothing."""
    if not comment.rules:
        if all(each is not comment for each, _ in used):
            yield _unmatched(comment, "nothing is reported on this line: the ignore comment silences nothing")
        return
    for rule in comment.rules:
        if rules and rule not in rules:
            yield _unmatched(comment, f"the ignore comment names {rule}, which is no rule{closest(rule, rules)}")
        elif (comment, rule) not in used:
            yield _unmatched(comment, f"{rule} is not reported on this line: the ignore comment silences nothing")


def _unmatched(comment: Comment, message: str) -> Problem:
    fix = "put the comment on the line that it is about" if comment.alone else "remove the comment"
    return Problem("SF404", "warning", message, file=comment.file, line=comment.line, code=comment.code, fix=fix)


def _places(problem: Problem) -> Iterator[tuple[str, int]]:
    if problem.file:
        yield problem.file, problem.line
    for line in problem.details:
        match = _RAISED_AT.match(line)
        if match is not None:
            yield match["file"], int(match["line"])


def _same(one: str, other: str) -> bool:
    return one == other or Path(one).absolute() == Path(other).absolute()
