"""The gallery's pictures are what its script draws today, and each fits a page."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "gallery"
ROOT = FOLDER.parents[1]
BUDGET = 40  # nodes of the model on a page
A4 = (540, 785)  # points inside of margins of 2 cm
SMALLEST = 0.38  # of its size, upright or lengthwise: letters of 11 points are 4 then


def script():
    name = "gallery_draw"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / "draw.py")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


PAGES = ["toy_gpt", "transformer", "resnet50", "gpt2", "unet", "mixtral"]


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.chdir(ROOT)  # tooltips tell places in the code from here
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return script()


def without_places(dot):
    """Without tooltips: they tell lines of torchvision and transformers, which move from release to release."""
    return re.sub(r', tooltip="(?:[^"\\]|\\.)*"', "", dot)


@pytest.mark.parametrize("name", ["toy_gpt", "toy_gpt_dark", "toy_gpt_attention", *PAGES[1:]])
def test_a_picture_is_what_the_script_draws(gallery, name):
    """The DOT is compared: pictures differ between versions of Graphviz. Anew: python examples/gallery/draw.py"""
    picture = gallery.PICTURES[name]
    drawn = gallery.traced(picture).to_dot(**picture.options)
    assert without_places(drawn) == without_places((FOLDER / f"{name}.dot").read_text())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_small_enough_to_be_read(name):
    svg = (FOLDER / f"{name}.svg").read_text()
    width, height = map(float, re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups())
    assert max(min(A4[0] / width, A4[1] / height), min(A4[1] / width, A4[0] / height)) >= SMALLEST
    nodes = re.findall(r'<g id="node\d+" class="node">\s*<title>([^<]*)</title>', svg)
    assert len([node for node in nodes if not node.startswith("title ") and " for " not in node]) <= BUDGET


def test_every_picture_is_there():
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(script().PICTURES)
