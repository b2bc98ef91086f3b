import io
import sys
import time

import pytest

from shapeflow import progress as module
from shapeflow.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, *, patience: float) -> Terminal:
    """Makes stderr a terminal. No fixture: pytest puts its own stderr back between setup and call."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(module, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def wait_for(text: str, terminal: Terminal) -> bool:
    """Whether the text appears within a time that is long even for a busy machine."""
    until = time.monotonic() + 20
    while text not in terminal.getvalue() and time.monotonic() < until:
        time.sleep(0.01)
    return text in terminal.getvalue()


def test_the_line_appears_changes_and_goes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stderr = on_terminal(monkeypatch, patience=0.05)
    with progress("importing") as step:
        assert wait_for("importing (0 s)", stderr)
        step("tracing")
        assert wait_for("tracing (", stderr)
        print("the model's own words")
    assert capsys.readouterr().out == "the model's own words\n"
    shown = stderr.getvalue()
    time.sleep(0.3)
    assert stderr.getvalue() == shown


def test_nothing_for_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = on_terminal(monkeypatch, patience=0.5)
    with progress("quick"):
        pass
    time.sleep(0.8)
    assert stderr.getvalue() == ""


def test_nothing_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress("piped"):
        time.sleep(0.3)
    assert stderr.getvalue() == ""


def test_the_line_goes_when_the_block_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = on_terminal(monkeypatch, patience=0.05)
    with pytest.raises(ValueError, match="ours"), progress("failing"):
        assert wait_for("failing", stderr)
        raise ValueError("ours")
    assert stderr.getvalue().endswith("\x1b[2K")  # the line is erased
