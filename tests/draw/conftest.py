"""What the tests of drawings and of pages share."""

import shutil

import pytest


@pytest.fixture(params=["system", "bundled"])
def engine(request, monkeypatch, tmp_path):
    """Draw with the system's `dot`, then as if there were none."""
    if request.param == "bundled":
        monkeypatch.setenv("PATH", str(tmp_path / "no programs here"))
    elif not shutil.which("dot"):
        pytest.skip("no dot is installed; the bundled one is tested")
    return request.param
