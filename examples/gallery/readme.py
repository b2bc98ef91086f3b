"""Draws what the README shows besides the gallery: a GPT, a layer that is cut, and the page for the browser.

    python examples/gallery/readme.py

All are light and dark. The page takes Chromium. Beside the pictures lies what they say as text, which the tests
compare: DOT for the drawings, the words of the page.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

import shapeflow as sf

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "readme"
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]  # sharding/ and models/ of the checkout
SIZE = {"width": 1200, "height": 640}
SHEET = "#blocks.0"


def gpt() -> sf.Trace:
    from models import gpt

    with torch.device("meta"):
        return sf.trace(gpt.toy().eval())


@contextmanager
def ranks(count: int) -> Iterator[None]:
    """This process stands for rank 0 of so many."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        yield
    finally:
        dist.destroy_process_group()


def sharded() -> sf.Trace:
    from sharding.block import FeedForward, tensor_parallel
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    with ranks(4), torch.device("meta"):
        _, styles = tensor_parallel()
        plan = {name.removeprefix("ffn."): style for name, style in styles.items() if name.startswith("ffn.")}
        layer = parallelize_module(
            FeedForward(256, 1024).eval(), init_device_mesh("cpu", (4,), mesh_dim_names=("tp",)), plan
        )
        trace = sf.trace(layer, "B T 256")
        trace.nodes  # noqa: B018 - looked at while there are ranks
        return trace


THEMES = {"": "light", "_dark": "dark"}


def dots() -> dict[str, str]:
    """DOT of the drawings, by the names of their files without suffix."""
    traces = {"gpt": (gpt(), {"depth": 2}), "sharded": (sharded(), {})}
    return {
        f"{name}{end}": trace.to_dot(theme=theme, **options)
        for name, (trace, options) in traces.items()
        for end, theme in THEMES.items()
    }


def pages() -> Iterator[tuple[str, bytes, str]]:
    """The page of the toy GPT, as name, PNG and words, in both themes."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "gpt.html"
        gpt().save(file)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for end, theme in THEMES.items():
            page = browser.new_page(viewport=SIZE, color_scheme=theme)
            page.goto(file.as_uri() + SHEET)
            page.wait_for_load_state("networkidle")
            yield f"page{end}", page.screenshot(), page.inner_text("body")
        browser.close()


def main() -> None:
    from shapeflow.draw.layout import render

    for file, source in dots().items():
        (FOLDER / f"{file}.dot").write_text(source, encoding="utf-8")
        (FOLDER / f"{file}.svg").write_bytes(render(source, "svg"))
    for file, picture, words in pages():
        (FOLDER / f"{file}.png").write_bytes(picture)
        (FOLDER / "page.txt").write_text(words, encoding="utf-8")


if __name__ == "__main__":
    main()
