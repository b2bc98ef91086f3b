"""Published counts through `sf.params`: models of the notes and of transformers, total and active.

The other rows of the table, and how long each takes: `tests/benchmarks/params_published.py`.
"""

import pytest

from shapeflow.cost import params
from tests.models.test_parameter_counts import MODELS, ROWS, built


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big", "gpt2", "bert-base-uncased", "llama-3-70b"])
def test_totals_of_the_notes_models(name):
    assert params(built(*MODELS[name])).total == ROWS[name]["total"]


@pytest.mark.parametrize("name", ["mixtral-8x7b", "switch-base-8"])
def test_active_parameters_of_the_notes_models(name):
    report = params(built(*MODELS[name]))
    assert (report.total, report.active) == (ROWS[name]["total"], ROWS[name]["active"])


@pytest.mark.parametrize("name", ["gpt2", "t5-small", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b"])
def test_models_of_transformers(name):
    pytest.importorskip("transformers")
    from tests.benchmarks.params_published import built as built_by_transformers

    row, report = ROWS[name], params(built_by_transformers(name))
    biases = 58 * 256 if name == "deepseek-v3" else 0  # of the router's choice: a buffer
    assert report.total + biases == row["total"]
    if "active" in row:
        assert report.active == row["active"]
        assert report.active_no_input_embedding == row.get(
            "active_no_input_embedding", report.active_no_input_embedding
        )
