"""What a decoder takes: parameters, operations, KV cache and memory for training, as formulas in B and T and at sizes.

    pip install -e ".[plot]" && python examples/size_a_model.py llama-3-8b

The models are those of `models/`: published ones by name, the `config.json` of a model of transformers, any field of
either changed by an option, or one that the options alone describe. `--experts` makes it a mixture of experts,
`--d-latent` gives it latent attention. `--compare` puts dense, grouped, latent attention and experts side by side: four
published models, those that are named, or one set of sizes in four ways.

    python examples/size_a_model.py llama-3-8b --layers 40 --at B=4,T=32768
    python examples/size_a_model.py path/to/config.json
    python examples/size_a_model.py --d-model 1024 --layers 24 --heads 16 --kv-heads 4 --vocab 32000
    python examples/size_a_model.py --compare --plot cost.png
    python examples/size_a_model.py --compare llama-3-70b mixtral-8x7b
    python examples/size_a_model.py --d-model 4096 --layers 32 --heads 32 --compare

Nothing is computed and no weight takes memory: models are built on the meta device and traced, few layers of them,
from which the rest follows (`sizing/bill.py`); `--whole` counts every layer, and shows the same, for a large model in
minutes.

FLOPs are those of a forward, two for a multiply-add, with the attention's products in full: a kernel that leaves out
what the causal mask hides does half of the `T^2` term. Training is Adam with mixed precision, 16 bytes for a parameter
(with `--dtype float32` as well), and what autograd keeps of the forward, without recomputation.
"""

import argparse
import sys
from pathlib import Path

import torch
from rich.console import Console

from models.gpt import GPTConfig
from sizing.bill import Bill, bill
from sizing.described import OPTIONS, changed, described, four_ways
from sizing.files import found
from sizing.mistake import Refused
from sizing.picture import plot, refuse_unwritable
from sizing.published import COMPARED, MODELS, NAMED, Config
from sizing.tables import formulas, numbers

FARTHEST = 131072  # the longest T of a plot, unless a model takes less


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        configs = chosen(options)
        sizes, longest = sizes_at(options.at, configs)
        dtype = getattr(torch, options.dtype)
        if options.plot:
            refuse_unwritable(Path(options.plot))
        bills = {name: bill(config, dtype, whole=options.whole) for name, config in configs.items()}
        if options.plot:
            plot(bills, sizes, longest, options.plot)
    except Refused as error:
        print(f"size_a_model: {error}", file=sys.stderr)
        return 2
    show(configs, bills, sizes)
    return 0


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        self.exit(2, f"size_a_model: {message}\n")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no size: a positive whole number")
    return int(text)


def parser() -> Parser:
    made = Parser("size_a_model", description="What a decoder takes: parameters, FLOPs, KV cache, memory for training.")
    names = ", ".join(NAMED)
    made.add_argument("name", nargs="?", metavar="NAME", help=f"{names}, or a config.json, or the folder that holds it")
    for option, (field, told) in OPTIONS.items():
        made.add_argument(option, dest=field, type=positive, metavar="N", help=told)
    made.add_argument("--at", default="", metavar="B=1,T=8192", help="sizes for the numbers")
    made.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16", help="of the weights")
    made.add_argument("--compare", nargs="*", metavar="NAME", help="several models side by side")
    made.add_argument("--plot", metavar="FILE", help="draw costs against T, to a .png, .svg or .pdf")
    made.add_argument("--whole", action="store_true", help="count every layer and expert")
    return made


def chosen(options: argparse.Namespace) -> dict[str, Config]:
    """The configurations to size, by name."""
    sizes = {field: getattr(options, field) for field, _ in OPTIONS.values() if getattr(options, field) is not None}
    if options.compare is None:
        name = options.name
        return {name or "model": changed(name, found(name), sizes) if name else described(sizes)}
    if sizes and not options.compare and not options.name:
        return four_ways(sizes)
    if sizes:
        raise Refused("--compare of named models takes them as they are; options alone are compared in four ways")
    names = [options.name] if options.name else []
    return {name: found(name) for name in [*names, *(options.compare or COMPARED)]}


def sizes_at(text: str, configs: dict[str, Config]) -> tuple[dict[str, int], int]:
    """B and T for the numbers, and the longest T that all of the models take, if there is one, for the plot."""
    bounds = {name: config.max_len for name, config in configs.items() if isinstance(config, GPTConfig)}
    longest = min(bounds.values(), default=FARTHEST)
    given = dict(part.partition("=")[::2] for part in text.split(",") if text)
    if not given.keys() <= {"B", "T"} or not all(size.isdecimal() and int(size) for size in given.values()):
        raise Refused(f"--at {text}: sizes are written as B=1,T=8192")
    sizes = {"B": 1, "T": min(8192, longest)} | {name: int(size) for name, size in given.items()}
    for name, bound in bounds.items():
        if sizes["T"] > bound:
            raise Refused(f"--at {text}: {name} takes T <= {bound}, the length of its table of positions")
    return sizes, longest


def show(configs: dict[str, Config], bills: dict[str, Bill], sizes: dict[str, int]) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for name, config in configs.items():
        layers = f"{config.n_layers} layer{'s'[: config.n_layers - 1]}"
        console.print(f"{name}: {MODELS[type(config)].__name__} of models/, {layers}", soft_wrap=True)
    console.print(formulas(bills), numbers(bills, sizes), soft_wrap=True)


if __name__ == "__main__":
    if status := main():
        sys.exit(status)
