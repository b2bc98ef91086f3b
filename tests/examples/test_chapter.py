"""The chapter's notebook: it runs from its first cell to its last, and no other number passes for a printed one."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "chapter.ipynb"
SECTIONS = [*range(1, 18), 22]  # 18 to 21 are questions, exercises, this notebook and reading


def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """`run(book)`: the notebook with its outputs, executed where a reader opens it, whatever is set up here."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)

    def execute(book):
        resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
        return NotebookClient(book, timeout=120, kernel_name="python3", resources=resources).execute()

    return execute


def outputs(book, kind):
    return [output for cell in book.cells for output in cell.get("outputs", []) if output.output_type == kind]


def test_the_file_is_valid_and_holds_no_outputs():
    book = notebook()
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert code[0].source.startswith('# From a checkout: pip install -e ".[plot]" jupyter && jupyter lab examples/')


def test_the_sections_are_the_chapter_s_in_its_order():
    headings = [re.match(r"## (\d+)\. ", line) for cell in notebook().cells for line in cell.source.splitlines()]
    assert [int(heading[1]) for heading in headings if heading] == SECTIONS


def test_it_runs_from_end_to_end_and_every_number_agrees(run):
    book = run(notebook())
    streams = outputs(book, "stream")
    assert [stream.text for stream in streams if stream.name == "stderr"] == []
    agree = re.search(r"(\d+) of (\d+) agree with the chapter", streams[-1].text)
    assert int(agree[1]) == int(agree[2]) >= 45
    assert "✗" not in "".join(stream.text for stream in streams)
    shown = [output.data for output in outputs(book, "display_data")]
    assert sum("image/png" in data for data in shown) == 8
    drawn = [data["image/svg+xml"] for data in shown if "image/svg+xml" in data]
    assert len(drawn) == 4  # two encoder layers, the toy, the Transformer of 2017
    assert ";x2<" in drawn[2]
    assert drawn[3].count(";x6<") == 2


def test_numbers_that_the_models_do_not_give_are_told_and_stop_it(run):
    """The cells that set up, the example of section 11.2 with a wrong digit, and a half where 0 is printed."""
    book = notebook()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    (loss,) = [cell for cell in code if '"0.5439"' in cell.source]
    loss.source = loss.source.replace('"0.5439"', '"0.5438"')
    half = nbformat.v4.new_code_cell('compare("0", "a half", 0.5, "0")')
    for cell in (loss, half):
        cell.metadata["tags"] = ["raises-exception"]  # go on, so that one kernel does for both
    book.cells = [*code[:2], loss, half]
    errors = [error.evalue for error in outputs(run(book), "error")]
    assert errors == [
        "section 11.2, loss of token 3, in nats: the chapter prints 0.5438, the models give 0.5439",
        "section 0, a half: the chapter prints 0, the models give 0.5",
    ]
