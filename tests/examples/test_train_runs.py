"""The training examples as they are started: stated losses, one process or several, killed and resumed, bad input."""

import csv
import random
import re
import runpy
import shutil
import signal
from dataclasses import replace

import pytest
import torch
import train_gpt
import train_translation
from jaxtyping import TypeCheckError

from training.command import run
from training.loop import Training
from training.ranks import Ranks
from training.settings import RunError
from training.text import Passages

MAIN = {"train_gpt": train_gpt.main, "train_translation": train_translation.main}
TINY = ("--preset", "tiny", "--eval-every", "1", "--save-every", "7")
DROPPED = ("--dropout", "0.1")  # makes a step depend on the state of torch's generator
OPTIONS = {"train_gpt": TINY, "train_translation": TINY, "dropout": (*TINY, *DROPPED)}


def curve(folder):
    """Losses by step, and those on sequences held out."""
    with (folder / "curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    return [float(row["loss"]) for row in rows], [float(row["held_out"]) for row in rows if row["held_out"]]


def last_state(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def tensors(tree, path=""):
    """All tensors of a checkpoint by their paths."""
    if isinstance(tree, torch.Tensor):
        return {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {name: each for key, value in items for name, each in tensors(value, f"{path}/{key}").items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """`whole("train_gpt")`: the folder of a tiny run that nothing interrupts, in this process."""
    made = {}

    def make(name):
        program = "train_translation" if name == "dropout" else name
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            MAIN[program]([*OPTIONS[name], "--folder", str(made[name])])
        return made[name]

    return make


def kill_after(process, step):
    """SIGKILL as soon as the run tells this step: it is at work on one of the next."""
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            process.kill()
            assert process.wait() == -signal.SIGKILL
            return
    raise AssertionError(process.stderr.read())


STATED = {"train_gpt": (2.8149, 3.0130), "train_translation": (1.7367, 2.0047)}


@pytest.mark.parametrize("name", STATED)
def test_the_stated_loss_is_reached(whole, name):
    losses, held_out = curve(whole(name))
    assert len(losses) == len(held_out) == 60
    assert (losses[-1], held_out[-1]) == pytest.approx(STATED[name], abs=0.02)
    assert f"{STATED[name][1]:.2f}" in MAIN[name].__globals__["__doc__"]


@pytest.mark.parametrize("name", ["train_gpt", "dropout"])
def test_a_killed_run_goes_on_to_the_last_bit(whole, start, tmp_path, name):
    program = "train_translation" if name == "dropout" else name
    options = (*OPTIONS[name], "--folder", str(tmp_path))
    kill_after(start(program, *options), random.randrange(8, 58))
    before = last_state(tmp_path)["position"] // 8
    assert before % 7 == 0 and 7 <= before < 60

    MAIN[program]([*options, "--resume"])

    expected = (whole(name) / "curve.csv").read_bytes()
    assert (tmp_path / "curve.csv").read_bytes() == expected, f"resumed after step {before}"
    kept, wanted = tensors(last_state(tmp_path)), tensors(last_state(whole(name)))
    assert kept.keys() == wanted.keys()
    assert all(torch.equal(kept[path], wanted[path]) for path in wanted)


TOLERANCE = 1e-5  # in nats: ranks add the same numbers up in another order


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_follow_the_curve_of_one_process(whole, start, tmp_path, parallel):
    process = start("train_gpt", *TINY, "--folder", str(tmp_path), "--parallel", parallel, ranks=2)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert f"2 ranks ({parallel}); from step 0" in out
    assert out.count("step 60/60") == 1, "one rank speaks"
    alone, together = curve(whole("train_gpt")), curve(tmp_path)
    assert together[0] == pytest.approx(alone[0], abs=TOLERANCE)
    assert together[1] == pytest.approx(alone[1], abs=TOLERANCE)
    one, two = tensors(last_state(whole("train_gpt"))), tensors(last_state(tmp_path))
    names = [name for name in one if not name.startswith("/generators")]
    assert {name: two[name].shape for name in names} == {name: one[name].shape for name in names}
    assert all(torch.allclose(two[name], one[name], rtol=1e-3, atol=1e-3) for name in names)
    assert len(last_state(tmp_path)["generators"]) == 2
    MAIN["train_gpt"]([*TINY, "--folder", str(tmp_path), "--resume"])  # one process reads what two wrote


def interrupted(program, folder, step, monkeypatch):
    """Run the tiny preset until the user stops it in the middle of a step."""
    step_as_it_is = Training.step

    def step_or_stop(training):
        if training.done == step - 1:
            training.order.take(3)
            raise KeyboardInterrupt
        return step_as_it_is(training)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "step", step_or_stop)
        with pytest.raises(SystemExit) as stopped:
            MAIN[program]([*TINY, "--folder", str(folder)])
    assert stopped.value.code == 130


def test_what_one_process_began_is_finished_by_two_that_share_the_parameters(
    whole, start, tmp_path, monkeypatch, capsys
):
    interrupted("train_translation", tmp_path, 31, monkeypatch)
    assert capsys.readouterr().err == ("train_translation: interrupted; --resume goes on from the last checkpoint\n")
    options = ("--folder", str(tmp_path), "--resume", "--parallel", "fsdp")
    process = start("train_translation", *TINY, *options, ranks=2)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "2 ranks (fsdp); from step 28" in out
    losses, held_out = curve(tmp_path)
    expected = curve(whole("train_translation"))
    assert losses == pytest.approx(expected[0], abs=TOLERANCE)
    assert held_out == pytest.approx(expected[1], abs=TOLERANCE)


def test_a_finished_run_that_is_resumed_trains_no_more(whole, tmp_path, capsys):
    shutil.copytree(whole("train_gpt"), tmp_path / "run")
    capsys.readouterr()
    train_gpt.main([*TINY, "--folder", str(tmp_path / "run"), "--resume"])
    first, sample = capsys.readouterr().out.splitlines()
    assert first.endswith("from step 60")
    assert sample.startswith("'ation is h' + ")


def test_a_fresh_run_keeps_the_checkpoint_of_the_one_before(whole, tmp_path):
    shutil.copytree(whole("train_gpt"), tmp_path / "run")
    train_gpt.main(["--preset", "tiny", "--steps", "7", "--save-every", "7", "--folder", str(tmp_path / "run")])
    assert torch.load(tmp_path / "run" / "checkpoint.previous.pt", weights_only=True)["position"] == 60 * 8
    assert last_state(tmp_path / "run")["position"] == 7 * 8


def test_a_terminal_sees_a_bar(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich takes the capture for a terminal
    train_gpt.main(["--preset", "tiny", "--steps", "8", "--folder", str(tmp_path)])
    assert re.search(r"loss \d\.\d{4}.*8/8", capsys.readouterr().out)


MISTAKES = {
    "no checkpoint": (["--resume"], r"there is no checkpoint .*checkpoint\.pt: start without --resume"),
    "no file": (["--resume", "nowhere.pt"], r"there is no checkpoint nowhere\.pt: start without --resume"),
    "heads": (["--n-heads", "3"], r"d_model = 16 does not divide by n_heads = 3"),
    "no heads": (["--n-heads", "0"], r"n_heads = 0 must be positive"),
    "no number": (["--rate", "nan"], r"rate = nan must be positive"),
    "a word": (["--batch", "many"], r"argument --batch: invalid int value: 'many'"),
    "no steps": (["--steps", "-1"], r"steps = -1 must be positive"),
    "warm-up": (["--warmup", "60"], r"warmup = 60 leaves none of the steps = 60 at the full rate"),
    "preset": (["--preset", "huge"], r"argument --preset: invalid choice: 'huge' \(choose from .*default.*tiny.*\)"),
    "option": (["--width", "3"], r"unrecognized arguments: --width 3"),
    "batch": (["--batch", "9"], r"batch = 9 is more than the 8 sequences held out for evaluation"),
    "window": (["--window", "700"], r"a text of 856 bytes holds no passage of window = 700 to learn from"),
    "text": (["--text", "nowhere.txt"], r"text = nowhere\.txt is none of zen, reference, and no file of text: .*"),
    "folder": (["--folder", "/dev/null/run"], r"/dev/null/run cannot be the folder of a run: Not a directory"),
    "ranks": (["--parallel", "fsdp"], r"--parallel fsdp is for several processes, which torchrun starts"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_one_line(tmp_path, monkeypatch, capsys, name):
    options, message = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        train_gpt.main(["--preset", "tiny", *options])
    assert stopped.value.code == 2
    assert re.fullmatch(f"train_gpt: {message}\n", capsys.readouterr().err)
    assert not list(tmp_path.iterdir()), "a run that cannot be leaves nothing behind"


OTHER_MISTAKES = {
    "odd": (
        ["--d-model", "15", "--n-heads", "3"],
        r"d_model = 15 is odd: sines and cosines of positions come in pairs",
    ),
    "limit": (["--limit", "1000001"], r"limit = 1000001 must be 20 to 1,000,000: .*"),
    "dropout": (["--dropout", "1"], r"dropout = 1\.0 must be at least 0 and below 1"),
}


@pytest.mark.parametrize("name", OTHER_MISTAKES)
def test_a_mistake_in_a_translation_is_told_in_one_line(tmp_path, monkeypatch, capsys, name):
    options, message = OTHER_MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        train_translation.main(["--preset", "tiny", *options])
    assert stopped.value.code == 2
    assert re.fullmatch(f"train_translation: {message}\n", capsys.readouterr().err)


def test_ranks_that_a_batch_does_not_divide_by(tmp_path):
    with pytest.raises(RunError, match=r"^batch = 8 does not divide by the 3 ranks$"):
        settings = train_gpt.PRESETS["tiny"]
        run("train_gpt", settings, train_gpt.Continuation, ranks=Ranks(0, 3, "ddp"), folder=tmp_path, resume=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--d-model", "32"], r"of another configuration: d_model is 16 there and 32 here; .* --d-model 16"),
        (["--seed", "1"], r"of another configuration: seed is 0 there and 1 here; to go on, give --seed 0"),
        (
            ["--text", "{text}"],
            r"of another data: 856 bytes of text \(\w+\), and this run is 900 bytes of text \(\w+\)",
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(whole, tmp_path, capsys, options, message):
    (tmp_path / "text.txt").write_text("abc" * 300)
    options = [option.format(text=tmp_path / "text.txt") for option in options]
    file = whole("train_gpt") / "checkpoint.pt"
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        train_gpt.main([*TINY, "--folder", str(tmp_path), "--resume", str(file), *options])
    assert stopped.value.code == 2
    assert re.fullmatch(f"train_gpt: the checkpoint .*checkpoint.pt is {message}\n", capsys.readouterr().err)


def test_a_checkpoint_of_the_other_example_is_refused(whole, tmp_path, capsys):
    file = whole("train_translation") / "checkpoint.pt"
    capsys.readouterr()
    with pytest.raises(SystemExit):
        train_gpt.main([*TINY, "--folder", str(tmp_path), "--resume", str(file)])
    assert "of another program: train_translation, and this run is train_gpt\n" in capsys.readouterr().err


def test_a_mistake_ends_the_program_with_status_2(tmp_path, monkeypatch, capsys):
    options = ["--preset", "tiny", "--folder", str(tmp_path), "--resume"]
    monkeypatch.setattr("sys.argv", ["train_gpt.py", *options])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(train_gpt.__file__, run_name="__main__")
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (2, "")
    assert err == f"train_gpt: there is no checkpoint {tmp_path}/checkpoint.pt: start without --resume\n"


def test_an_error_in_the_model_is_explained(tmp_path):
    class TooLong(train_gpt.Continuation):
        def model(self):
            return train_gpt.GPT(replace(self.config, max_len=17))

    settings = train_gpt.PRESETS["tiny"]
    with pytest.raises(ValueError, match="longer than max_len = 17") as caught:
        run("train_gpt", settings, TooLong, ranks=Ranks(0, 1, None), folder=tmp_path, resume=None)
    assert re.match(r"shapeflow: in positions \(LearnedPositions of GPT\)", caught.value.__notes__[0])


def test_a_batch_of_another_shape_is_refused_where_it_is_made():
    ids = torch.zeros(3, 5, dtype=torch.int64)
    with pytest.raises(TypeCheckError, match="T"):
        Passages(ids, ids[:, :4])
