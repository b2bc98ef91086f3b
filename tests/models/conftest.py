"""What the tests of several models share."""

import importlib
import itertools
from pathlib import Path

import pytest

MUTANTS = itertools.count()  # a module once imported stays: every copy needs a name of its own


@pytest.fixture
def mutant(tmp_path, monkeypatch):
    """`mutant(module, old, new)`: a copy of a module of `models` with a part of its source replaced.

    The copy is imported as a part of the package, so that its annotations are enforced like the original's.
    """
    import models

    def make(module, old, new):
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert old in source, f"{old!r} is not in {module.__name__}"
        name = f"{module.__name__.rpartition('.')[2]}_mutant_{next(MUTANTS)}"
        (tmp_path / f"{name}.py").write_text(source.replace(old, new), encoding="utf-8")
        monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
        importlib.invalidate_caches()
        return importlib.import_module(f"models.{name}")

    return make
