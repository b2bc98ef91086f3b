"""What the README shows is what its script draws today. Anew: python examples/gallery/readme.py"""

import importlib.util
import io
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text())


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gallery_readme", ROOT / "examples/gallery/readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawings(script, monkeypatch):
    monkeypatch.chdir(ROOT)  # tooltips tell places in the code from here
    for name, dot in script.dots().items():
        assert dot == (script.FOLDER / f"{name}.dot").read_text()


def test_the_page_in_a_browser(script):
    if shutil.which("chromium") is None:
        pytest.skip("no Chromium on this machine; on Debian: apt-get install chromium")
    for name, picture, words in script.pages():
        assert words == (script.FOLDER / "page.txt").read_text()
        now, then = (small(data) for data in (picture, (script.FOLDER / f"{name}.png").read_bytes()))
        difference = ImageStat.Stat(ImageChops.difference(now, then)).mean
        assert max(difference) < 4, name  # fonts differ from machine to machine


def small(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB").resize((300, 160))


def test_every_picture_of_the_readme_is_there_and_none_besides(script):
    assert len(SHOWN) == 7
    assert all((ROOT / name).is_file() for name in SHOWN)
    made = {path.name for path in script.FOLDER.iterdir() if path.suffix in (".svg", ".png")}
    assert made == {Path(name).name for name in SHOWN if "/readme/" in name}
