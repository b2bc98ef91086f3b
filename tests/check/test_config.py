from pathlib import Path

import pytest

from shapeflow.check.config import Config, Wanted, matches, read_config
from shapeflow.errors import ConfigError

RULES = ("SF101", "SF301", "SF315")


def written(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def read(folder: Path, text: str) -> Config:
    return read_config(written(folder, text), lambda: RULES)


def test_no_file_and_no_table(tmp_path: Path) -> None:
    assert read(tmp_path, "[project]\nname = 'x'\n").targets == ()


def test_everything(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [tool.shapeflow]
        targets = ["models", { target = "net.py:Net", inputs = ["B T:int64"], with = { d_model = 32 }, limit = 5 }]
        ignore = ["SF315"]
        per-file-ignores = { "models/old_*.py" = ["SF301"] }
        exclude = ["experiments"]
        limit = 30
        strict = true

        [[tool.shapeflow.targets_of_no_meaning]]
        """.replace("[[tool.shapeflow.targets_of_no_meaning]]", ""),
    )
    assert config == Config(
        root=tmp_path,
        targets=(
            Wanted("models"),
            Wanted("net.py:Net", ("B T:int64",), {"d_model": 32}, {}, 5.0),
        ),
        ignore=frozenset({"SF315"}),
        per_file={"models/old_*.py": frozenset({"SF301"})},
        exclude=("experiments",),
        limit=30.0,
        strict=True,
    )


def test_targets_as_tables_with_inputs_by_name(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [[tool.shapeflow.targets]]
        target = "net.py:Net"
        inputs = { ids = "B T:int64", mask = "B T:bool" }
        hints = { T = 7 }
        ignore = ["SF301"]
        """,
    )
    assert config.targets == (
        Wanted("net.py:Net", ("ids=B T:int64", "mask=B T:bool"), {}, {"T": 7}, None, frozenset({"SF301"})),
    )


def test_the_nearest_table_above(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    written(tmp_path, "[tool.shapeflow]\nstrict = true\n")
    written(tmp_path / "src", "[project]\nname = 'x'\n")
    config = read_config(tmp_path / "src" / "deep")
    assert config.root == tmp_path
    assert config.strict


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.shapeflow]\nlimt = 3", "tool.shapeflow.limt is no setting; did you mean limit?"),
        (
            "[tool.shapeflow]\nx = 3",
            "tool.shapeflow.x is no setting; there are: targets, ignore, per-file-ignores, exclude, limit, strict, "
            "enforce",
        ),
        ("[tool]\nshapeflow = 3", "tool.shapeflow has to be a table, not 3"),
        ("[tool.shapeflow]\nlimit = 0", "tool.shapeflow.limit has to be a number of seconds above 0, not 0"),
        ("[tool.shapeflow]\nlimit = true", "tool.shapeflow.limit has to be a number of seconds above 0, not True"),
        ("[tool.shapeflow]\nstrict = 'yes'", "tool.shapeflow.strict has to be true or false, not 'yes'"),
        ("[tool.shapeflow]\ntargets = 'a.py:A'", "tool.shapeflow.targets has to be a list, not 'a.py:A'"),
        ("[tool.shapeflow]\ntargets = [3]", "tool.shapeflow.targets[0] has to be a table, not 3"),
        (
            "[tool.shapeflow]\ntargets = ['x', {inputs = ['B']}]",
            'tool.shapeflow.targets[1] needs its target: { target = "net.py:Net" }',
        ),
        (
            "[tool.shapeflow]\ntargets = [{target = 'x', input = ['B']}]",
            "tool.shapeflow.targets[0].input is no setting; did you mean inputs?",
        ),
        (
            "[tool.shapeflow]\ntargets = [{target = 'x', inputs = 'B T'}]",
            "tool.shapeflow.targets[0].inputs has to be a list of specs or a table, "
            'as ["B T:int64"] or { ids = "B T" }',
        ),
        (
            "[tool.shapeflow]\ntargets = [{target = 'x', hints = {B = 1.5}}]",
            "tool.shapeflow.targets[0].hints.B has to be a size, not 1.5",
        ),
        (
            "[tool.shapeflow]\nignore = ['SF3011']",
            "tool.shapeflow.ignore holds SF3011, which is no rule; did you mean SF301?",
        ),
        ("[tool.shapeflow]\nignore = [301]", "tool.shapeflow.ignore has to be a list of texts, not [301]"),
        (
            "[tool.shapeflow]\nper-file-ignores = {'a.py' = ['XX']}",
            "tool.shapeflow.per-file-ignores.a.py holds XX, which is no rule",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert str(raised.value) == f"{tmp_path / 'pyproject.toml'}: {message}"


def test_a_file_that_does_not_parse(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pyproject\.toml does not parse: Expected"):
        read(tmp_path, "[tool.shapeflow")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("models/old_*.py", "models/old_net.py", True),
        ("models/old_*.py", "models/net.py", False),
        ("models", "models/deep/net.py", True),
        ("models/", "models/net.py", True),
        ("net.py", "models/net.py", True),
        ("deep", "models/deep/net.py", True),
        ("mod", "models/net.py", False),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, path: str, expected: bool) -> None:
    assert matches(tmp_path / path, pattern, tmp_path) is expected


def test_a_path_outside_matches_nothing(tmp_path: Path) -> None:
    assert not matches(tmp_path / "net.py", "*", tmp_path / "inner")


def test_ignores(tmp_path: Path) -> None:
    config = Config(tmp_path, ignore=frozenset({"SF315"}), per_file={"old.py": frozenset({"SF301"})})
    assert config.ignores("SF315", "anything.py")
    assert config.ignores("SF301", str(tmp_path / "old.py"))
    assert not config.ignores("SF301", str(tmp_path / "new.py"))
    assert not config.ignores("SF101", str(tmp_path / "old.py"))
