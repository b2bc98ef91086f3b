import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shapeflow.errors import TargetError
from shapeflow.target import load

MODELS = """
    import torch
    from torch import Tensor, nn
    from jaxtyping import Float

    class Net(nn.Module):
        def __init__(self, d_in=3, *, d_out=2):
            super().__init__()
            self.head = nn.Linear(d_in, d_out)

        def forward(self, x):
            return self.head(x)

    class Sized(nn.Module):
        def __init__(self, d_model, n_heads):
            super().__init__()

    class NeedsNumbers(nn.Module):
        def __init__(self, fail=False):
            super().__init__()
            self.width = int(torch.tensor([3]).sum().item())
            if fail:
                raise ValueError("no such width")

    class Config:
        pass

    net = Net()
    number = 3

    def make(d_in=5):
        return Net(d_in)

    def needs(d_in):
        return Net(d_in)

    def declared(d_in) -> nn.Module:
        return Net(d_in)

    def forgot():
        Net()

    def annotated(x: Float[Tensor, "B T"], scale: float = 1.0):
        return x * scale

    def plain_tensor(x: Tensor):
        return x

    def maybe(x: Tensor | None = None):
        return x

    def unresolved(config: "Missing" = None):
        return Net()

    def untyped(x, y):
        return x + y
"""


@pytest.fixture(autouse=True)
def imports_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test imports its own files under the same few names."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file of models."""
    write(tmp_path / "nets.py", MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))


@pytest.mark.parametrize("where", ["nets.py", "./nets.py", "nets"])
def test_a_file_and_a_module_are_the_same_target(nets: Path, where: str) -> None:
    model = load(f"{where}:net").model
    assert type(model).__name__ == "Net"
    assert model.training  # an instance is taken as it is
    assert model.head.weight.device.type == "cpu"


@pytest.mark.parametrize("name", ["Net", "make"])
def test_what_is_built_is_on_the_meta_device_in_evaluation_mode(nets: Path, name: str) -> None:
    target = load(f"nets.py:{name}", arguments={"d_in": 7})
    assert target.model.head.weight.shape == (2, 7)
    assert target.model.head.weight.is_meta
    assert not target.model.training
    assert target.notes == ()


def test_dotted_names_reach_inside(nets: Path) -> None:
    assert load("nets.py:net.head").model.out_features == 2
    write(
        nets / "deep.py",
        "import torch\nfrom torch import nn\nnet = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(1, 9)))",
    )
    assert load("deep.py:net.1.0").model.out_features == 9


def test_a_constructor_that_needs_numbers_is_built_for_real(nets: Path) -> None:
    target = load("nets.py:NeedsNumbers")
    assert target.model.width == 3
    assert len(target.notes) == 1
    assert "does not run on the meta device: RuntimeError: " in target.notes[0]
    assert "nets.py:" in target.notes[0]


@pytest.mark.parametrize(
    ("name", "has_inputs"),
    [("annotated", False), ("plain_tensor", False), ("maybe", False), ("untyped", True), ("needs", True)],
)
def test_functions_on_tensors_are_traced(nets: Path, name: str, has_inputs: bool) -> None:
    target = load(f"nets.py:{name}", has_inputs=has_inputs)
    assert target.value.__name__ == name
    with pytest.raises(TargetError, match=f"nets.py:{name} is a function to trace, no model"):
        _ = target.model


@pytest.mark.parametrize("name", ["torch:matmul", "torch.nn.functional:softmax"])
def test_functions_of_torch_are_traced(name: str) -> None:
    assert callable(load(name).value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("make", {}), ("unresolved", {}), ("needs", {"d_in": 4}), ("declared", {"d_in": 4})],
)
def test_factories_are_called_also_when_inputs_are_given(nets: Path, name: str, arguments: dict[str, object]) -> None:
    assert isinstance(load(f"nets.py:{name}", arguments=arguments, has_inputs=True).value, nn.Module)


NORMAL = """
    import torch
    from torch import nn

    class Drawn(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 3)
            self.scale = nn.Parameter(torch.randn(5, 3))
            self.shift = nn.Parameter(torch.randn_like(self.scale, dtype=torch.float64))
            nn.init.xavier_normal_(self.scale)
            nn.init.normal_(tensor=self.shift, std=0.02)
            with torch.no_grad():
                self.shift.normal_(0, 0.1)
            self.real = torch.randn((2,), device="cpu", generator=torch.Generator().manual_seed(0))

    class InPlace(Drawn):
        def __init__(self):
            super().__init__()
            self.shift.normal_()
"""


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(isinstance(tensor, torch.Tensor) and tensor.is_meta for tensor in args):
            self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_normal_weights_are_of_the_same_size_and_type_but_not_drawn(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "normal.py").write_text(dedent(NORMAL))
    monkeypatch.chdir(tmp_path)
    with Operators() as operators:
        target = load("normal.py:Drawn")
    model = target.model
    assert target.notes == () and operators.names
    assert not any("normal" in name for name in operators.names)
    shapes = {name: (tuple(each.shape), each.dtype, each.device.type) for name, each in model.named_parameters()}
    assert shapes == {
        "scale": ((5, 3), torch.float32, "meta"),
        "shift": ((5, 3), torch.float64, "meta"),
        "table.weight": ((7, 3), torch.float32, "meta"),
    }
    assert torch.equal(model.real, torch.randn(2, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(TargetError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        load("normal.py:InPlace")


def test_parameter_names_of_a_target(nets: Path) -> None:
    assert list(load("nets.py:net").signature.parameters) == ["x"]
    assert list(load("nets.py:annotated").signature.parameters) == ["x", "scale"]
    assert list(load("torch:matmul").signature.parameters) == []


@pytest.mark.parametrize("text", ["work.ipynb", "work.ipynb:net"])
def test_a_notebook_is_no_python_file(nets: Path, text: str) -> None:
    Path("work.ipynb").write_text("{}")
    with pytest.raises(TargetError, match=r"work\.ipynb is no Python file"):
        load(text)


BAD = [
    ("nets.py", "no name in the target 'nets.py'.*\nthere are: nets.py:Net, .*nets.py:annotated"),
    ("nets", "no colon in the target 'nets': a target is path/to/file.py:name or package.module:name"),
    (":net", "no colon in the target 'net'"),
    ("nets.py:", "no name in the target 'nets.py'"),
    ("lost/", "no such file or folder: lost/; a target is path/to/file.py:name or package.module:name"),
    ("lost.ipynb", "no such file or folder: lost.ipynb"),
    ("net.py:net", "no such file: net.py; did you mean nets.py?"),
    ("./nets:net", "no such file: nets; did you mean nets.py?"),
    ("lib/nets.py:net", "no such file: lib/nets.py .there is no folder lib in"),
    ("nat:net", "no module named nat"),
    ("nets.deep:net", "no module named nets.deep"),
    ("torch.nm:Linear", "no module named torch.nm; did you mean torch.nn?"),
    ("nets.py:Nat", "nets.py has no Nat; did you mean Net\\?\nthere are: Net, Sized, NeedsNumbers, net, make"),
    ("nets.py:net.haed", "nets.py:net has no haed; did you mean head\\?\nthere are: head"),
    (
        "nets.py:number",
        "nets.py:number is an object of type int: it has to be an nn.Module, a class of one, or a function",
    ),
    ("nets.py:Config", "nets.py:Config is the class Config: it has to be"),
    ("nets.py:nn", "nets.py:nn is the module torch.nn: it has to be"),
    ("nets.py:Sized", "nets.py:Sized needs arguments: d_model, n_heads\n.*: --with d_model=...,n_heads=...\nor name a"),
    ("nets.py:needs", 'needs arguments: d_in\n.*--with d_in=...\nor if it is a .*, give its inputs: d_in="B T"'),
    ("nets.py:forgot", "nets.py:forgot returned an object of type NoneType, no nn.Module"),
    ("torchvision:resnet5", "torchvision has no model called resnet5; did you mean resnet50?"),
    ("timm:resnet1", "timm has no model called resnet1; did you mean "),
    ("transformers:GPT2Confg", "transformers has no model called GPT2Confg; did you mean GPT2Config?"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text for text, _ in BAD])
def test_bad_targets(nets: Path, text: str, message: str) -> None:
    with pytest.raises(TargetError, match=f"(?s){message}"):
        load(text)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("nets.py:net", {"d_in": 1}, "nets.py:net is a model already"),
        ("nets.py:annotated", {"scale": 2}, "is a function to trace: its arguments are inputs, as in scale:=2"),
        ("nets.py:Net", {"d_inn": 1}, "nets.py:Net has no argument d_inn; did you mean d_in?"),
        ("nets.py:Net", {"d_in": "a"}, r"could not be built with \(d_in='a'\): TypeError: "),
        ("nets.py:NeedsNumbers", {"fail": True}, r"ValueError: no such width \(nets.py:\d+: raise ValueError"),
        ("transformers:GPT2Config", {"n_leyer": 1}, "GPT2Config has no argument n_leyer; did you mean n_layer?"),
    ],
)
def test_bad_arguments(nets: Path, text: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load(text, arguments=arguments)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", r"faulty does not import: SyntaxError: '\(' was never closed .*faulty.py:1\)"),
        ("import does_not_exist", r"ModuleNotFoundError: No module named 'does_not_exist' \(faulty.py:1: import does"),
        ("x = 1\nraise ValueError('first\\nlast')", r"ValueError: last \(faulty.py:2: raise ValueError"),
        ("import sys\nsys.exit(3)", r"SystemExit: 3 \(faulty.py:2: sys.exit"),
    ],
    ids=["syntax", "dependency", "raises", "exits"],
)
def test_a_file_that_does_not_import(nets: Path, source: str, message: str) -> None:
    write(nets / "faulty.py", source)
    with pytest.raises(TargetError, match=message):
        load("faulty.py:net")


def test_no_python_file(nets: Path) -> None:
    write(nets / "notes.txt", "")
    (nets / "folder").mkdir()
    for where in ("./notes.txt", "./folder"):
        with pytest.raises(TargetError, match="is no Python file"):
            load(f"{where}:net")


PACKAGE = {
    "src/pack/__init__.py": "from torch import nn\nroot = nn.ReLU()",
    "src/pack/deep/__init__.py": "",
    "src/pack/deep/nets.py": "from .. import parts\nimport pack.parts\nassert parts is pack.parts\nnet = parts.Part()",
    "src/pack/parts.py": "from torch import nn\nclass Part(nn.Module): pass",
}


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        (".", "src/pack/deep/nets.py:net"),
        ("src/pack/deep", "nets.py:net"),
        ("src/pack/deep", "../parts.py:Part"),
        (".", "src/pack:root"),
        (".", "src/pack/__init__.py:root"),
        ("src", "pack.deep.nets:net"),
    ],
)
def test_a_file_in_a_package_is_imported_as_its_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, text: str
) -> None:
    for name, source in PACKAGE.items():
        write(tmp_path / name, source)
    monkeypatch.chdir(tmp_path / folder)
    assert type(load(text).model).__module__ in {"pack.parts", "torch.nn.modules.activation"}


def test_files_beside_a_lone_file_are_importable(nets: Path) -> None:
    write(nets / "away" / "parts.py", "from torch import nn\nnet = nn.Linear(1, 4)")
    write(nets / "away" / "main.py", "from parts import net")
    assert load("away/main.py:net").model.out_features == 4


@pytest.mark.parametrize("name", ["json.py", "time.py", "01_first.py", "net.v2.py"])
def test_a_file_called_like_a_loaded_module_or_like_none(nets: Path, name: str) -> None:
    write(nets / name, "from torch import nn\nnet = nn.Linear(1, 6)")
    assert load(f"{name}:net").model.out_features == 6
    assert hasattr(__import__("json"), "dumps")


def test_a_package_whose_name_is_taken(nets: Path) -> None:
    write(nets / "json" / "__init__.py", "")
    write(nets / "json" / "nets.py", "net = 1")
    with pytest.raises(
        TargetError, match=r"json/nets.py belongs to a package json, but that name is taken by .*json/__init__"
    ):
        load("json/nets.py:net")


@pytest.mark.parametrize(
    ("text", "arguments", "kind"),
    [
        ("torchvision:resnet18", {"num_classes": 7}, "ResNet"),
        ("torchvision:deeplabv3_resnet50", {}, "DeepLabV3"),
        ("torchvision:fasterrcnn_resnet50_fpn", {}, "FasterRCNN"),
        ("timm:resnet18.a1_in1k", {"num_classes": 7}, "ResNet"),
        ("transformers:GPT2Config", {"n_layer": 1, "hidden_size": 24}, "GPT2LMHeadModel"),
        ("transformers:BertConfig", {"num_hidden_layers": 1}, "BertModel"),
        ("transformers:T5Config", {"num_layers": 1}, "T5ForConditionalGeneration"),
        ("transformers:WhisperConfig", {"encoder_layers": 1, "decoder_layers": 1}, "WhisperModel"),
        ("transformers:BertForMaskedLM", {"num_hidden_layers": 1}, "BertForMaskedLM"),
    ],
)
def test_models_of_the_zoos(text: str, arguments: dict[str, object], kind: str) -> None:
    target = load(text, arguments=arguments)
    assert type(target.model).__name__ == kind
    assert all(parameter.is_meta for parameter in target.model.parameters())
    assert not target.model.training


def test_regnet_is_built_for_real() -> None:
    target = load("torchvision:regnet_y_400mf")
    assert not any(parameter.is_meta for parameter in target.model.parameters())
    assert "does not run on the meta device" in target.notes[0]


def test_a_configuration_of_ones_own(nets: Path) -> None:
    write(nets / "config.py", "from transformers import GPT2Config\nsmall = GPT2Config(n_layer=1, n_embd=24, n_head=2)")
    assert load("config.py:small").model.config.n_embd == 24


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(TargetError, match=r"timm does not import .*; to install it: pip install timm"):
        load("timm:resnet18")
