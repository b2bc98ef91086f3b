"""The pytest plugin: errors are explained, `shapeflow` and `shape_trace` are fixtures, packages can be enforced.

>>> def test_gpt(shapeflow):
...     shapeflow.assert_shapes(gpt, "B T:int64 -> B T vocab")
...     shapeflow.assert_causal(gpt, "B T:int64")

It is on wherever shapeflow is installed; `-p no:shapeflow` leaves it out. pytest imports it at each start, so nothing
here imports torch before it is needed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from shapeflow.testing.snapshot import ShapeTrace


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shapeflow", "shapes of PyTorch models")
    group.addoption(
        "--no-shapeflow-explain",
        action="store_true",
        help="add no note to errors that leave a model (where in the model, which tensors, which axis, why)",
    )
    group.addoption(
        "--shapeflow-enforce",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="check the annotations of this package at run time; may be repeated, or hold several between commas",
    )
    group.addoption(
        "--shapeflow-update", action="store_true", help="write the snapshots of shape_trace.assert_unchanged() anew"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Switch on checks before the first test module imports what is to be checked."""
    packages = [
        name for given in config.getoption("--shapeflow-enforce", default=[]) or [] for name in given.split(",") if name
    ]
    packages += [name for name in _enforced_in_settings(config.rootpath) if name not in packages]
    if not packages:
        return
    from shapeflow.errors import ShapeflowError
    from shapeflow.runtime.enforce import enforce

    try:
        enforcement = enforce(*packages)
    except ShapeflowError as error:
        raise pytest.UsageError(f"--shapeflow-enforce: {error}") from error
    config.add_cleanup(enforcement.uninstall)


def _enforced_in_settings(root: Path) -> list[str]:
    """The packages of `[tool.shapeflow] enforce` in the pyproject.toml beside which pytest runs."""
    import tomllib

    file = root / "pyproject.toml"
    if not file.is_file():
        return []
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("shapeflow", {}).get("enforce", [])
    except tomllib.TOMLDecodeError:  # pytest has told of it itself, where it reads the file
        return []
    packages = [given] if isinstance(given, str) else given
    if not isinstance(packages, list) or not all(isinstance(each, str) for each in packages):
        raise pytest.UsageError(f"{file}: tool.shapeflow.enforce has to be a list of packages, not {given!r}")
    return packages


def pytest_report_header(config: pytest.Config) -> str | None:
    packages = config.getoption("--shapeflow-enforce")
    return f"shapeflow: enforces {', '.join(packages)}" if packages else None


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
    """Explain the error of a test, of a fixture, or of a unittest's method, before pytest makes its text."""
    if call.excinfo is None or item.config.getoption("--no-shapeflow-explain") or "torch" not in sys.modules:
        return
    from shapeflow.runtime.explain.note import annotate

    annotate(call.excinfo.value)


@pytest.fixture(scope="session")
def shapeflow() -> ModuleType:
    """The assertions of `shapeflow.testing`: `shapeflow.assert_shapes(module, "B T d -> B T d")` and others."""
    import shapeflow.testing

    return shapeflow.testing


@pytest.fixture
def shape_trace(request: pytest.FixtureRequest) -> ShapeTrace:
    """Snapshots of shape traces beside the test: `shape_trace.assert_unchanged(module, "B T:int64")`."""
    from shapeflow.testing.snapshot import FOLDER, ShapeTrace

    path, update = request.path, bool(request.config.getoption("--shapeflow-update"))
    name = request.node.nodeid.partition("::")[2]
    return ShapeTrace(path.parent / FOLDER / path.stem, name.replace("::", "."), update=update)
