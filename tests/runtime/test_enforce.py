"""`sf.enforce`: packages enforced by their import, and switched off again."""

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from jaxtyping import TypeCheckError

import shapeflow as sf
from shapeflow.errors import ConfigError
from shapeflow.runtime.hook import EnforceWarning

NET = '''
"""A package's module."""
from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.step(x)

    def step(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        def inner(y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
            return y
        inner(x[0, 0])
        return x

    def twin(self, other: Net | None = None) -> Net:
        return other or Net(self.d_model)


@dataclass
class Batch:
    x: Float[Tensor, "B T"]
    y: Float[Tensor, " B"]


def double(x: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    return x * 2


async def wait(x: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    return x


DOUBLES = {"double": double}
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Writes a package and gives its name; all that was imported, and every hook, is gone afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    hooks, modules = list(sys.meta_path), set(sys.modules)

    def write(name: str, **files: str) -> str:
        for file, text in {"__init__": "", **files}.items():
            path = tmp_path / name / f"{file.replace('__init__', '*').replace('__', '/').replace('*', '__init__')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return name

    yield write
    sys.meta_path[:] = hooks
    for name in set(sys.modules) - modules:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def refuses(run: Callable[[], object]) -> bool:
    try:
        run()
    except TypeCheckError:
        return True
    return False


WRONG = torch.zeros(2, 5, 7)
MATRIX = torch.zeros(3, 2)


def test_everything_in_a_package_is_enforced(package: Callable[..., str]) -> None:
    name = package("pkg_all", net=NET, sub____init__="", sub__deep=NET)
    enforcement = sf.enforce(name)
    for module in (load(f"{name}.net"), load(f"{name}.sub.deep")):
        net = module.Net(6)
        assert net(torch.zeros(2, 5, 6)).shape == (2, 5, 6)
        with pytest.raises(TypeCheckError, match=r"parameter 'x' of Net.forward .* axis 2 is 7, and d_model is 6"):
            net(WRONG)
        assert refuses(lambda m=module: m.double(MATRIX)) and refuses(lambda m=module: m.DOUBLES["double"](MATRIX))
        assert refuses(lambda m=module: m.Batch(MATRIX, torch.zeros(4)))
        assert refuses(lambda n=net: n.twin(3)) and net.twin().d_model == 6
        assert refuses(lambda m=module: m.Net("6"))
    assert enforcement.packages == (name,)
    assert enforcement.modules == (name, f"{name}.net", f"{name}.sub", f"{name}.sub.deep")
    assert not (Path(load(name).__file__ or "").parent / "__pycache__").exists()


def test_other_packages_are_left_alone(package: Callable[..., str]) -> None:
    one, other, longer = (package(name, net=NET) for name in ("pkg_one", "pkg_other", "pkg_one_more"))
    sf.enforce(one)
    assert refuses(lambda: load(f"{one}.net").double(MATRIX))
    for name in (other, longer):
        load(f"{name}.net").double(MATRIX)


def test_several_packages_and_one_module(package: Callable[..., str]) -> None:
    names = [package(name, net=NET, free=NET) for name in ("pkg_a", "pkg_b", "pkg_c")]
    sf.enforce(names[0], names[1], f"{names[2]}.net")
    for name in names:
        assert refuses(lambda name=name: load(f"{name}.net").double(MATRIX))
    load("pkg_c.free").double(MATRIX)


def test_until_the_block_ends(package: Callable[..., str]) -> None:
    name = package("pkg_block", first=NET, second=NET)
    with sf.enforce(name) as enforcement:
        first = load(f"{name}.first")
    assert repr(enforcement) == "<enforced: pkg_block; 2 modules imported>"
    load(f"{name}.second").double(MATRIX)
    assert refuses(lambda: first.double(MATRIX))
    enforcement.uninstall()


def test_a_package_that_is_imported_already(package: Callable[..., str]) -> None:
    name = package("pkg_late", net=NET)
    load(f"{name}.net")
    with pytest.raises(
        sf.EnforceError, match=r'pkg_late is imported already \(from .*\).*call sf.enforce\("pkg_late"\) b'
    ):
        sf.enforce(name)
    with pytest.raises(sf.EnforceError, match=r"pkg_late.net is imported already"):
        sf.enforce(f"{name}.net")


def test_enforcing_twice_is_no_mistake(package: Callable[..., str]) -> None:
    name = package("pkg_twice", net=NET)
    sf.enforce(name)
    net = load(f"{name}.net")
    sf.enforce(name)
    assert refuses(lambda: net.double(MATRIX))


@pytest.mark.parametrize("wrong", ["", "my-package", "src/net.py", 3, "a..b"])
def test_a_name_that_is_none(wrong: object) -> None:
    with pytest.raises(sf.EnforceError, match="a package is enforced by its name"):
        sf.enforce(wrong)  # type: ignore[arg-type]


def test_the_options(package: Callable[..., str]) -> None:
    text = """
    from jaxtyping import Float
    from torch import Tensor, nn
    class Net(nn.Module):
        def forward(self, x: Float[Tensor, "B T"]): return self.step(x[:, 1:])
        def step(self, x: Float[Tensor, "B T"]): return x
    def count(xs: list[int]): return len(xs)
    """
    strict, loose = package("pkg_strict", net=text), package("pkg_loose", net=text)
    sf.enforce(strict, every_item=True)
    sf.enforce(loose, across_methods=False)
    with pytest.raises(
        TypeCheckError, match=r"T is 1 in Net.step \(axis 1 of x\), but 2 in Net.forward \(axis 1 of x\)"
    ):
        load(f"{strict}.net").Net()(MATRIX)
    assert load(f"{loose}.net").Net()(MATRIX).shape == (3, 1)
    assert refuses(lambda: load(f"{strict}.net").count([*range(500), "x"]))


def test_a_hook_of_jaxtypings_own_in_the_package(package: Callable[..., str]) -> None:
    hook = 'from jaxtyping import install_import_hook\ninstall_import_hook(__name__, "beartype.beartype")\n'
    name = package("pkg_hooked", __init__=hook, net=NET)
    sf.enforce(name)
    with pytest.raises(TypeCheckError, match="axis 2 is 7, and d_model is 6"):
        load(f"{name}.net").Net(6)(WRONG)


def test_the_folder_models_is_enforced_by_name() -> None:
    """In a process of its own, as this one has imported it."""
    code = """
    import torch, shapeflow as sf
    enforcement = sf.enforce("models")
    from models import gpt
    model = gpt.toy()
    assert "models.multi_head" in enforcement.modules or len(enforcement.modules) > 5, enforcement.modules
    assert model(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 5, 100)
    try:
        model.norm.d_model = model.blocks[0].d_model = 31
        model(torch.zeros(2, 5, dtype=torch.int64))
    except TypeError as error:
        print(error)
    """
    done = run_python(code)
    assert "axis 2 is 32, and d_model is 31 (an attribute of this DecoderBlock)" in done.stdout, (
        done.stdout + done.stderr
    )


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        timeout=240,
    )


UNREADABLE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from jaxtyping import Float
from torch import Tensor
if TYPE_CHECKING:
    from collections.abc import Sequence
    import decimal as money

def fine(x: Float[Tensor, " B"]) -> None: ...

def wrong(
    x: Float[Tensor, " B"],
    y: {annotation} = None,
) -> None: ...
"""


@pytest.mark.parametrize("annotation", ["Float[Tensro, 'B T']", "Flaot[Tensor, 'B T']", "Nowhere", "list[Nowhere]"])
def test_an_annotation_that_cannot_be_read(package: Callable[..., str], annotation: str) -> None:
    name = package("pkg_unreadable", net=UNREADABLE.format(annotation=annotation))
    sf.enforce(name)
    with pytest.raises(sf.EnforceError) as caught:
        load(f"{name}.net")
    expected = rf"net.py:14: the annotation of `y` of wrong cannot be read: {annotation}\n    NameError: name '"
    assert expected.replace("\\n", "\n") in str(caught.value)


@pytest.mark.parametrize("annotation", ["Sequence[int]", "money.Decimal | None"])
def test_a_name_for_type_checkers_only(package: Callable[..., str], annotation: str) -> None:
    name = package("pkg_checkers", net=UNREADABLE.format(annotation=annotation))
    sf.enforce(name)
    with pytest.warns(EnforceWarning, match=r"net.py:14: .* `y` of wrong .*(?s:.*) is imported for type checkers only"):
        net = load(f"{name}.net")
    net.wrong(torch.zeros(2), "anything")
    with pytest.raises(TypeCheckError, match=r"parameter 'x' of wrong .* 2 axes, not 1"):
        net.wrong(MATRIX)


def test_decorators_that_read_source_are_left_alone(package: Callable[..., str]) -> None:
    text = """
    from typing import no_type_check, overload
    from jaxtyping import Float
    from torch import Tensor
    def jit(fn): return fn
    @jit
    def kernel(x: Float[Tensor, " B"]): return x
    @no_type_check
    def free(x: Float[Tensor, " B"]): return x
    @no_type_check
    class Free:
        def step(self, x: Float[Tensor, " B"]): return x
    """
    name = package("pkg_sources", net=text)
    sf.enforce(name)
    net = load(f"{name}.net")
    for run in (net.kernel, net.free, net.Free().step):
        run(MATRIX)


# Switches


def test_unenforced(package: Callable[..., str]) -> None:
    one, other = (load(f"{package(name, net=NET)}.net") for name in enforce_both("pkg_off_a", "pkg_off_b"))

    def state() -> tuple[bool, bool]:
        return refuses(lambda: one.double(MATRIX)), refuses(lambda: other.double(MATRIX))

    assert state() == (True, True)
    with sf.unenforced():
        assert state() == (False, False)
        with sf.unenforced("pkg_off_b"):
            assert state() == (False, False)
    with sf.unenforced("pkg_off_a"):
        assert state() == (False, True)
        with sf.unenforced("pkg_off_b.net"):
            assert state() == (False, False)
        assert state() == (False, True)
    with pytest.raises(ZeroDivisionError), sf.unenforced():
        raise ZeroDivisionError
    assert state() == (True, True)
    assert sf.unenforced("pkg_off_a")(state)() == (False, True)


def enforce_both(*names: str) -> tuple[str, ...]:
    sf.enforce(*names)
    return names


ENVIRONMENT = {
    "0": (False, False),
    "1": (True, True),
    "": (True, True),
    "off": (False, False),
    "pkg_env_a=0": (False, True),
    "0,pkg_env_b=1": (False, True),
    "pkg_env_a.net=0, pkg_env_b=off": (False, False),
}


@pytest.mark.parametrize(("value", "expected"), ENVIRONMENT.items())
def test_the_environment(
    package: Callable[..., str], monkeypatch: pytest.MonkeyPatch, value: str, expected: tuple[bool, bool]
) -> None:
    monkeypatch.setenv("SHAPEFLOW_ENFORCE", value)
    names = enforce_both("pkg_env_a", "pkg_env_b")
    nets = [load(f"{package(name, net=NET)}.net") for name in names]
    assert tuple(refuses(lambda net=net: net.double(MATRIX)) for net in nets) == expected
    bare = [not hasattr(net.double, "__shapeflow_plan__") for net in nets]
    assert tuple(bare) == tuple(not on for on in expected)


@pytest.mark.parametrize("value", ["maybe", "pkg_x=maybe", "=0"])
def test_an_environment_that_says_neither(
    package: Callable[..., str], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SHAPEFLOW_ENFORCE", value)
    name = package("pkg_x")
    sf.enforce(name)
    with pytest.raises(ConfigError, match=r"SHAPEFLOW_ENFORCE holds .*: write 0 or 1, or package=0"):
        load(name)


def test_the_packages_of_pyproject(
    package: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package("pkg_named", net=NET)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.shapeflow]\nenforce = ["pkg_named"]\n')
    sf.enforce()
    assert refuses(lambda: load(f"{name}.net").double(MATRIX))


def test_no_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.shapeflow]\n")
    with pytest.raises(sf.EnforceError, match=r'enforce = \["my_package"\] in \[tool.shapeflow\]'):
        sf.enforce()
    (tmp_path / "pyproject.toml").write_text("[tool.shapeflow]\nenforce = 3\n")
    with pytest.raises(ConfigError, match=r"tool.shapeflow.enforce has to be a list"):
        sf.enforce()
