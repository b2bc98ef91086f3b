"""What holds for every file of the folder: annotations are enforced, examples are true."""

import doctest
import importlib
import pkgutil
import sys

import pytest
import torch
from jaxtyping import TypeCheckError

import models
from models import gpt


@pytest.mark.parametrize(
    "statement",
    [
        "from models import gpt",
        "import models.gpt as gpt",
        "from importlib import import_module; gpt = import_module('models.gpt')",
    ],
)
def test_annotations_are_enforced_however_the_module_is_imported(monkeypatch, statement):
    for name in [name for name in sys.modules if name.partition(".")[0] == "models"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if "jaxtyping" not in type(f).__module__])
    namespace = {}
    exec(statement, namespace)
    fresh = namespace["gpt"]
    assert fresh is not gpt
    with pytest.raises(TypeCheckError, match=r"parameter 'ids'[\s\S]*f32\[2,5\][\s\S]*Int\[Tensor, 'B T'\]"):
        fresh.toy()(torch.zeros(2, 5))


# Those of `models.pretrained` speak of another library's models: their examples are their tests.
MODULES = ["models", *(found.name for found in pkgutil.iter_modules(models.__path__, "models.") if not found.ispkg)]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_the_docstrings_are_true(module):
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
