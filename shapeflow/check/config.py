"""`[tool.shapeflow]` of pyproject.toml: what `shapeflow check` alone checks, and what it does not tell.

    [tool.shapeflow]
    targets = ["models", { target = "net.py:Net", inputs = ["B T:int64"], with = { d_model = 32 } }]
    ignore = ["SF315"]
    per-file-ignores = { "models/old_*.py" = ["SF301"] }
    exclude = ["experiments"]
    limit = 30
    strict = true
    enforce = ["my_package"]                  # for sf.enforce() and pytest, not for the checker

An unknown key, or a value of another type, is a ConfigError: a setting that does nothing would be believed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, cast

from shapeflow.errors import ConfigError
from shapeflow.importer import closest


@dataclass(frozen=True, slots=True)
class Wanted:
    """One target as it is asked for: text of a target, a file or a folder, and how to build and feed it.

    `inputs` are texts as on the command line. None for `limit` is the project's.
    """

    target: str
    inputs: tuple[str, ...] = ()
    arguments: Mapping[str, object] = field(default_factory=dict)
    hints: Mapping[str, int] = field(default_factory=dict)
    limit: float | None = None
    ignore: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a project; `root` is the folder of its pyproject.toml."""

    root: Path
    targets: tuple[Wanted, ...] = ()
    ignore: frozenset[str] = frozenset()
    per_file: Mapping[str, frozenset[str]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    limit: float | None = None
    strict: bool = False
    enforce: tuple[str, ...] = ()

    def ignores(self, rule: str, file: str) -> bool:
        """Whether the project does not want to be told of this rule in this file (relative to where we run)."""
        if rule in self.ignore:
            return True
        return any(
            rule in rules and matches(Path(file), pattern, self.root) for pattern, rules in self.per_file.items()
        )


def matches(path: Path, pattern: str, root: Path) -> bool:
    """Whether a path below `root`, or a folder above it, is the one that a pattern (`models/old_*.py`) names."""
    absolute = Path.cwd() / path
    if not absolute.is_relative_to(root):
        return False
    parts = absolute.relative_to(root).parts
    pattern = pattern.removesuffix("/")
    return any(
        fnmatch("/".join(parts[: end + 1]), pattern) or fnmatch(parts[end], pattern) for end in range(len(parts))
    )


def read_config(folder: Path, rules: Callable[[], Iterable[str]] | None = None) -> Config:
    """The settings that hold in a folder: those of the nearest pyproject.toml, here or above, that has the table.

    `rules` gives the ids that an `ignore` may hold, and is asked only when there is one; None takes any.
    """
    for place in [folder, *folder.parents]:
        file = place / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                return _Reader(file, rules).config(table)
    return Config(folder)


def _table(file: Path) -> dict[str, Any] | None:
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} does not parse: {error}") from error
    return tool.get("shapeflow") if isinstance(tool, dict) else None


KEYS = ("targets", "ignore", "per-file-ignores", "exclude", "limit", "strict", "enforce")
TARGET_KEYS = ("target", "inputs", "with", "hints", "limit", "ignore")


class _Reader:
    """Values of one file, with errors that say where they stand."""

    def __init__(self, file: Path, rules: Callable[[], Iterable[str]] | None) -> None:
        self.file, self.known = file, rules

    def config(self, table: object) -> Config:
        given = self._keys(table, KEYS, "")
        per_file = self._of(given, "per-file-ignores", dict, "a table from a file to a list of rules", {})
        return Config(
            root=self.file.parent,
            targets=tuple(self._target(each, at) for at, each in enumerate(self._list(given, "targets"))),
            ignore=self._rules(given, "ignore"),
            per_file={name: self._rules(per_file, name, "per-file-ignores.") for name in per_file},
            exclude=self._texts(given, "exclude"),
            limit=self._limit(given, ""),
            strict=self._of(given, "strict", bool, "true or false", False),
            enforce=self._texts(given, "enforce"),
        )

    def _target(self, given: object, at: int) -> Wanted:
        if isinstance(given, str):
            return Wanted(given)
        where = f"targets[{at}]."
        table = self._keys(given, TARGET_KEYS, where)
        if not isinstance(table.get("target"), str):
            raise self._error(where.rstrip("."), 'needs its target: { target = "net.py:Net" }')
        hints = self._of(table, "hints", dict, "a table from a name to a size", {}, where)
        for name, size in hints.items():
            if type(size) is not int or size < 0:
                raise self._error(f"{where}hints.{name}", f"has to be a size, not {size!r}")
        return Wanted(
            target=table["target"],
            inputs=self._inputs(table.get("inputs", []), where),
            arguments=self._of(table, "with", dict, "a table of arguments", {}, where),
            hints=hints,
            limit=self._limit(table, where),
            ignore=self._rules(table, "ignore", where),
        )

    def _inputs(self, given: object, where: str) -> tuple[str, ...]:
        """A list as on the command line, or a table from names to specs."""
        if isinstance(given, dict) and all(isinstance(each, str) for each in given.values()):
            return tuple(f"{name}={spec}" for name, spec in given.items())
        if isinstance(given, list) and all(isinstance(each, str) for each in given):
            return tuple(given)
        raise self._error(f"{where}inputs", 'has to be a list of specs or a table, as ["B T:int64"] or { ids = "B T" }')

    def _keys(self, given: object, known: tuple[str, ...], where: str) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise self._error(where.rstrip("."), f"has to be a table, not {given!r}")
        for key in given:
            if key not in known:
                raise self._error(
                    where + key, f"is no setting{closest(key, known) or '; there are: ' + ', '.join(known)}"
                )
        return given

    def _rules(self, given: Mapping[str, Any], key: str, where: str = "") -> frozenset[str]:
        rules = self._texts(given, key, where)
        known = tuple(self.known()) if rules and self.known is not None else rules
        for rule in rules:
            if rule not in known:
                raise self._error(where + key, f"holds {rule}, which is no rule{closest(rule, known)}")
        return frozenset(rules)

    def _texts(self, given: Mapping[str, Any], key: str, where: str = "") -> tuple[str, ...]:
        values = self._list(given, key, where)
        if not all(isinstance(each, str) for each in values):
            raise self._error(where + key, f"has to be a list of texts, not {values!r}")
        return cast("tuple[str, ...]", tuple(values))

    def _list(self, given: Mapping[str, Any], key: str, where: str = "") -> list[object]:
        return self._of(given, key, list, "a list", [], where)

    def _limit(self, given: Mapping[str, Any], where: str) -> float | None:
        limit = given.get("limit")
        if limit is None:
            return None
        if isinstance(limit, bool) or not isinstance(limit, int | float) or limit <= 0:
            raise self._error(f"{where}limit", f"has to be a number of seconds above 0, not {limit!r}")
        return float(limit)

    def _of(self, given: Mapping[str, Any], key: str, kind: type, what: str, default: Any, where: str = "") -> Any:
        value = given.get(key, default)
        if not isinstance(value, kind):
            raise self._error(where + key, f"has to be {what}, not {value!r}")
        return value

    def _error(self, key: str, reason: str) -> ConfigError:
        path = ".".join(part for part in ("tool.shapeflow", key) if part)
        return ConfigError(f"{self.file}: {path} {reason}")
