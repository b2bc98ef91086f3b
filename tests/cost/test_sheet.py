"""Sheets: what is chosen of them, how they are written, two side by side."""

import csv
import io
import json
from html.parser import HTMLParser

import pytest

from shapeflow.cost.comparison import beside, merged
from shapeflow.cost.formats import FORMATS, formula_in_latex, written
from shapeflow.cost.sheet import Column, Line, Sheet, in_bytes, select, shown
from shapeflow.dims.expr import Expr
from shapeflow.errors import InputError

D, F = Expr.symbol("d_model"), Expr.symbol("d_ff")
COLUMNS = (
    Column("module"),
    Column("kind"),
    Column("parameters"),
    Column("bytes", unit="bytes"),
    Column("share", unit="%", hidden=True),
    Column("note"),
)
SHEET = Sheet(
    "Net",
    COLUMNS,
    (
        Line(0, ("(all)", "Net", 1234567, 4938268, 100.0, None)),
        Line(1, ("head|x", "Linear", 34567, 138268, 2.8, None)),
        Line(1, ("body", "Block_1", 1200000, 4800000, 97.2, None)),
        Line(2, ("body.up", "Linear", None, None, None, None)),
    ),
    {"total": 1234567},
    ("1,234,567 parameters",),
)
FORMULAS = Sheet(
    "Layer",
    (Column("module"), Column("parameters")),
    (Line(0, ("(all)", 4 * D**2 + 9 * D)), Line(1, ("norm", 1000 * D)), Line(1, ("attn", 4 * D**2)), Line(1, ("x", 7))),
)


def names(sheet):
    return [line.cells[0] for line in sheet.lines]


def test_text_is_aligned_and_leaves_out_what_is_empty_or_hidden():
    assert written(select(SHEET), "text").splitlines() == [
        "module       kind     parameters    bytes",
        "(all)        Net       1,234,567  4.94 MB",
        "  head|x     Linear       34,567   138 kB",
        "  body       Block_1   1,200,000  4.80 MB",
        "    body.up  Linear",
        "",
        "1,234,567 parameters",
    ]


def test_columns_are_chosen_in_their_order_and_hidden_ones_too():
    chosen = select(SHEET, columns=["share", "kind"], depth=1)
    assert written(chosen, "text").splitlines()[:3] == [
        "module      share  kind",
        "(all)     100.0 %  Net",
        "  head|x    2.8 %  Linear",
    ]


@pytest.mark.parametrize(
    ("sheet", "sort", "order"),
    [
        (SHEET, "parameters", ["(all)", "body", "head|x", "body.up"]),
        (SHEET, "-parameters", ["head|x", "body", "(all)", "body.up"]),
        (SHEET, "module", ["(all)", "body", "body.up", "head|x"]),
        (SHEET, "-kind", ["(all)", "head|x", "body.up", "body"]),
        (FORMULAS, "parameters", ["(all)", "attn", "norm", "x"]),
    ],
)
def test_sorting(sheet, sort, order):
    chosen = select(sheet, sort=sort)
    assert names(chosen) == order
    assert not [line for line in written(chosen, "text").splitlines() if line.startswith(" ")]


def test_formulas_are_sorted_by_their_numbers_where_sizes_are_given():
    assert names(select(FORMULAS, sort="parameters", sizes={"d_model": 5})) == ["norm", "(all)", "attn", "x"]


@pytest.mark.parametrize("call", [{"columns": ["parmeters"]}, {"sort": "parmeters"}])
def test_an_unknown_column_is_told(call):
    with pytest.raises(
        InputError, match=r"no column is called parmeters; did you mean parameters\?; there are: module"
    ):
        select(SHEET, **call)


def test_an_unknown_format_is_told():
    with pytest.raises(InputError, match=r"no format is called cvs; did you mean csv\?; there are: text, csv"):
        written(SHEET, "cvs")


def test_csv_reads_back():
    rows = list(csv.reader(io.StringIO(written(select(SHEET), "csv"))))
    assert rows[0] == ["module", "kind", "parameters", "bytes"]
    assert rows[2:] == [
        ["head|x", "Linear", "34567", "138268"],
        ["body", "Block_1", "1200000", "4800000"],
        ["body.up", "Linear", "", ""],
    ]
    assert list(csv.reader(io.StringIO(written(FORMULAS, "csv"))))[1] == ["(all)", "4*d_model^2 + 9*d_model"]


def test_json_reads_back():
    found = json.loads(written(select(SHEET), "json"))
    assert found["title"] == "Net"
    assert found["totals"] == {"total": 1234567}
    assert found["rows"][1] == {"depth": 1, "module": "head|x", "kind": "Linear", "parameters": 34567, "bytes": 138268}
    assert json.loads(written(FORMULAS, "json"))["rows"][2]["parameters"] == "4*d_model^2"


def test_markdown_has_a_cell_for_each_column():
    lines = written(select(SHEET), "markdown").splitlines()
    assert lines[1] == "| --- | --- | ---: | ---: |"
    assert lines[3] == r"| &nbsp;&nbsp;head\|x | Linear | 34,567 | 138 kB |"
    assert written(FORMULAS, "markdown").splitlines()[2] == r"| (all) | 4\*d\_model^2 + 9\*d\_model |"


def test_latex():
    lines = written(select(SHEET), "latex").splitlines()
    assert lines[:4] == [
        "% 1,234,567 parameters",
        r"\begin{tabular}{llrr}",
        r"\toprule",
        r"module & kind & parameters & bytes \\",
    ]
    assert r"\quad body & Block\_1 & 1,200,000 & 4.80 MB \\" in lines
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert r"(all) & $4\,d_{\mathrm{model}}^{2} + 9\,d_{\mathrm{model}}$ \\" in written(FORMULAS, "latex")


@pytest.mark.parametrize(
    ("formula", "latex"),
    [
        (2 * D * F, r"2\,d_{\mathrm{ff}}\,d_{\mathrm{model}}"),
        ((Expr.symbol("H") - 1) // 2 + 1, r"(H - 1) \mathbin{/\!/} 2 + 1"),
        (Expr.symbol("vocab") ** 12, r"\mathrm{vocab}^{12}"),
    ],
)
def test_formulas_in_latex(formula, latex):
    assert formula_in_latex(str(formula)) == latex


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_data(self, data):
        self.found.append(data.strip())


def test_html_keeps_every_cell():
    cells = Cells()
    cells.feed(written(select(Sheet("<b>", COLUMNS[:2], (Line(0, ("<a>", "x & y")),))), "html"))
    assert [cell for cell in cells.found if cell] == ["module", "kind", "<a>", "x & y"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_sheet_without_lines_is_written(form):
    assert "module" in written(Sheet("Empty", COLUMNS[:1], ()), form) or form == "json"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_996, "10.0 kB"),
        (123_456, "123 kB"),
        (999_600, "1.00 MB"),
        (-1500, "-1.50 kB"),
        (1.3e12, "1.30 TB"),
    ],
)
def test_bytes_as_people_read_them(value, text):
    assert in_bytes(value) == text


def test_cells_as_people_read_them():
    assert [shown(cell) for cell in (None, True, 12345, 0.5, D)] == ["", "True", "12,345", "0.5", "d_model"]


# Two of them side by side


def sheet(title, **cells):
    return Sheet(
        title,
        COLUMNS[:1] + COLUMNS[2:3],
        tuple(Line(int(name != "all"), each) for name, each in ((n, (n, v)) for n, v in cells.items())),
    )


def test_two_sheets_side_by_side():
    both = beside(sheet("small", all=7, a=3, b=4), sheet("large", all=12, a=5, c=6, b=1), "parameters")
    assert written(both, "text").splitlines() == [
        "module  small  large  difference",
        "all         7     12           5",
        "  a         3      5           2",
        "  c                6           6",
        "  b         4      1          -3",
    ]


def test_formulas_side_by_side():
    both = beside(sheet("GPT", all=4 * D), sheet("GPT", all=9 * D), "parameters")
    assert [column.name for column in both.columns] == ["module", "GPT (1)", "GPT (2)", "difference"]
    assert str(both.lines[0].cells[3]) == "5*d_model"


def test_a_column_that_one_does_not_have_is_told():
    with pytest.raises(InputError, match="no column is called kind"):
        beside(SHEET, sheet("small", all=1), "kind")


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [("abc", "abc", "abc"), ("ac", "abc", "abc"), ("", "ab", "ab"), ("a", "xa", "xa"), ("ab", "ba", "ab")],
)
def test_names_of_both_in_one_order(left, right, order):
    assert merged(left, right) == list(order)
