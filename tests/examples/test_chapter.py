"""The chapter's notebook: it runs from its first cell to its last, and no other number passes for a printed one."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "chapter.ipynb"
PRINTED = """
0.707 1.414 0.330 0.670 0.248 0.503 1.000 1.340 1.759 0.248255 0.503490 1.758725 1.000000 nan 4 d_model^2 1048576 512
2048 2 d_ff 2097152 2.5 1.25 -1.342 -0.447 0.447 1.342 6 0.2608 0.1060 0.0527 0.5805 0.5439 0.643914 0.236883 0.087144
0.032059 0.455054 0.276004 0.167405 0.101536 0.731059 0.268941 0.880797 0.967941 0.665241 0.244728 0.090031 100 32 8 128
3145728 4194304
""".split()  # every result of the chapter's text, in its order
A_HALF = 'compare("0", "a half", 0.5, "0")'
SECTIONS = [*range(1, 18), 22]  # 18 to 21 are questions, exercises, this notebook and reading


def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook with its outputs, run where a reader opens it, whatever is set up; last come `wrong_numbers`."""
    book = notebook()
    book.cells += wrong_numbers(book)  # one kernel does for both
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.delenv("MPLBACKEND", raising=False)
        resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
        return NotebookClient(book, timeout=120, kernel_name="python3", resources=resources).execute()


def wrong_numbers(book):
    """The example of section 11.2 with a wrong digit, and a half where 0 is printed."""
    (loss,) = [cell.source for cell in book.cells if cell.cell_type == "code" and '"0.5439"' in cell.source]
    cells = [nbformat.v4.new_code_cell(source) for source in (loss.replace('"0.5439"', '"0.5438"'), A_HALF)]
    for cell in cells:
        cell.metadata["tags"] = ["raises-exception"]  # go on
    return cells


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


def test_it_runs_from_end_to_end_and_every_number_agrees(executed):
    book = executed.copy()
    book.cells = book.cells[:-2]
    streams = outputs(book, "stream")
    assert not outputs(book, "error")
    assert [stream.text for stream in streams if stream.name == "stderr"] == []
    agree = re.search(r"(\d+) of (\d+) agree with the chapter", streams[-1].text)
    assert int(agree[1]) == int(agree[2]) >= 46
    assert {*PRINTED} <= {*re.findall(r"[-\w.^]+", streams[-1].text)}
    assert "✗" not in "".join(stream.text for stream in streams)
    shown = [output.data for output in outputs(book, "display_data")]
    assert sum("image/png" in data for data in shown) == 8
    drawn = [data["image/svg+xml"] for data in shown if "image/svg+xml" in data]
    assert len(drawn) == 4  # two encoder layers, the toy, the Transformer of 2017
    assert ";x2<" in drawn[2]
    assert drawn[3].count(";x6<") == 2


def test_numbers_that_the_models_do_not_give_are_told_and_stop_it(executed):
    errors = [error.evalue for error in outputs(executed, "error")]
    assert errors == [
        "section 11.2, loss of token 3, in nats: the chapter prints 0.5438, the models give 0.5439",
        "section 0, a half: the chapter prints 0, the models give 0.5",
    ]
