"""Reports made by hand, for tests of what shows them."""

from shapeflow.check.problem import Problem, Report
from shapeflow.trace.result import Condition, Domain, Location

CRASH = Problem(
    rule="SF101",
    level="error",
    message="Linear 'head' takes 512, gets 64*H*W = 3136 at H = W = 7",
    file="net.py",
    line=12,
    code="self.head = nn.Linear(512, 10)  # BUG",
    module="head",
    dims=("H", "W"),
    witness={"B": 3, "H": 7, "W": 7},
    fix="nn.Linear(3136, 10)",
    details=("raised at net.py:20: return self.head(x.flatten(1))", "linear(x: B 3136, head.weight: 10 512)"),
)
SILENT = Problem(
    rule="SF301",
    level="warning",
    message="axes (B, T) are flattened: 100%, as <if>\n& \"so\", 'said'",
    file="net.py",
    line=30,
    code="y = x.reshape(t, b)",
)
LOST = Problem("SF401", "note", "Block could not be built: ValueError: no", "net.py", 40, "class Block(nn.Module):")

DOMAIN = Domain((("B", 1, None), ("T", 1, 512)), ("H % 32 == 0",))
ASKED = Condition("T <= 512", Location("net.py", 9, "return self.table(positions)"), "embedding")

CRASHED = Report("net.py:Net", (CRASH, SILENT), None, (), runs=3, seconds=0.14)
HOLDS = Report("net.py:Encoder", (), DOMAIN, (ASKED,), runs=7, seconds=1.26)
SHARED = Report("net.py:Model", (SILENT,), DOMAIN, (), runs=1, seconds=0.04)
UNBUILT = Report("net.py:Block", (LOST,))
STOPPED = Report("Net", (Problem("SF403", "warning", "stopped after 1 s"),), Domain((), ()), (), 2, 1.0, finished=False)
