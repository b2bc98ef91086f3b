"""`examples/find_the_bug.ipynb` runs from its first cell to its last, and tells of each bug what is true of it."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "find_the_bug.ipynb"

BUGS = {  # what torch says, what sf.check says, what sf.explain says, what the broken model lacks
    "Digits": (
        r"RuntimeError: mat1 and mat2 shapes cannot be multiplied \(5x864 and 1176x10\)",
        r"error SF101: Linear 'out' takes 1176, gets 864 = 6\*12\*12: flatten is right, in_features is not",
        r"fix: nn\.Linear\(6 \* 12 \* 12, 10\)\n  fault: .*: self\.out = nn\.Linear\(6 \* 14 \* 14, 10\)",
        r"mat1 and mat2",
    ),
    "Tagger": (
        r"IndexError: index out of range in self",
        r"error SF102: Embedding 'places' has 32 rows, and its indices reach T - 1[^$]*holds for all .*T <= 32",
        r"cause: Embedding 'places' has 32 rows, the greatest index is 49: num_embeddings is too small",
        r"index out of range",
    ),
    "Sentiment": (r"nothing", r"error SF308: GRU 'rnn' takes time first", None, r"sample|batch"),
    "Heads": (r"nothing", r"error SF301: reshape: axes \(4, T\) are flattened as if", None, r"position"),
    "Attention": (r"nothing", r"error SF306: softmax goes over axis 1 \(T\)", None, r"Tensor-likes are not close"),
    "Species": (
        r"nothing",
        r"error SF311: cross_entropy takes logits",
        None,
        r"the loss is 0\.55\d, and 0\.551 is the",
    ),
    "Reader": (r"nothing", r"error SF312: the mask for MultiheadAttention is the wrong", None, r"Tensor-likes are not"),
    "Price": (r"nothing", r"error SF302: sub: \(B, 1\) and \(B\) broadcast", None, r"Scalars are not close"),
    "Hearing": (
        r"IndexError: Dimension out of range",
        r"error SF103: log_softmax on axis 1[^$]*witness: B = 1, [^$]*\nerror SF310: squeeze\(\) without a dim",
        r"cause: squeeze\(\) of 1 8 1 drops its batch, which is 1, too: 5 is left",
        r"Dimension out of range",
    ),
    "Decoder": (
        r"RuntimeError: mat1 and mat2 shapes cannot be multiplied \(18x40 and 24x48\)",
        r"error SF101: MultiheadAttention 'attention' takes 24 features in key, gets 40.*: kdim is missing",
        r"fix: nn\.MultiheadAttention\(d_model, 4, batch_first=True, kdim=40, vdim=40\)",
        r"mat1 and mat2",
    ),
}


NO_PROOF = 'prove(lambda model: None, nn.Linear(2, 2), nn.Linear(2, 2), "B 2")'


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    """The notebook with its outputs, and at its end a proof that proves nothing; shapeflow need not be installed."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(NO_PROOF, metadata={"tags": ["raises-exception"]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        return NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()


@pytest.fixture(scope="module")
def printed(executed) -> dict[str, str]:
    """What each code cell printed, by its source."""
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    return {cell.source: "".join(output.get("text", "") for output in cell.outputs) for cell in cells}


def of(printed: dict[str, str], beginning: str) -> str:
    """What the one cell printed that has a line beginning so."""
    (text,) = [text for source, text in printed.items() if re.search(rf"^{beginning}", source, flags=re.MULTILINE)]
    return text


@pytest.mark.parametrize("name", BUGS)
def test_a_bug(printed: dict[str, str], name: str) -> None:
    says, checks, explains, lacks = BUGS[name]
    told = of(printed, rf"torch_says\({name}\(")
    assert re.match(rf"torch says:? {says}", told), told
    assert ("shapeflow: in " in told) == (explains is not None)
    assert explains is None or re.search(explains, told), told
    checked = of(printed, rf"check\({name}\(")
    assert re.match(checks, checked), checked
    proved = of(printed, rf"prove\(\w+, {name}\(")
    assert re.match(rf"broken: .*({lacks}).*\nfixed:  (Mended)?{name}: holds for all ", proved), proved


def test_the_table_at_the_end(printed: dict[str, str]) -> None:
    table = of(printed, r"for name, said, problems, domain in found:")
    assert re.findall(r"^(\w+)\n    torch  .+\n(?:    SF\d{3}  .+\n)+    fixed  ", table, flags=re.MULTILINE) == list(
        BUGS
    )
    assert table.endswith("6 of 10 ran without a word: Sentiment, Heads, Attention, Species, Reader, Price\n")


def test_a_property_of_the_broken_model_proves_nothing(executed) -> None:
    errors = [output.evalue for cell in executed.cells for output in cell.get("outputs", []) if "evalue" in output]
    assert errors == ["the broken model has this property too: it proves nothing"]


def test_outputs_are_stripped_and_the_command_comes_first() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert notebook.cells[0].source.startswith("# pip install -e ")
    assert "jupyter lab examples/find_the_bug.ipynb\n" in notebook.cells[0].source
