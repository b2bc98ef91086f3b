"""The shape bugs: each buggy module is flagged at its line with its fix, each fixed one is clean, and both are run."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest
import torch

import shapeflow as sf

FOLDER = Path(__file__).parents[1] / "cases" / "shape_bugs"
CASES = sorted(path.stem for path in FOLDER.glob("*.py"))
SAMPLES = 50
SEVERAL = {"13_cross_attention_width": ["self.k = nn.Linear(32, 32)", "self.v = nn.Linear(32, 32)"]}
"""Where the fault is in two lines, both are told."""


def load(case):
    name = f"bug_{case}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{case}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def specs(described):
    return {name: f"{' '.join(map(str, each['shape']))}:{each['dtype']}" for name, each in described.items()}


def names(described):
    return sorted({axis for each in described.values() for axis in each["shape"] if isinstance(axis, str)})


def real_inputs(described, sizes):
    """Real tensors of these sizes."""
    made = {}
    for name, each in described.items():
        shape = [sizes.get(axis, axis) for axis in each["shape"]]
        if each["dtype"] == "int64":
            made[name] = torch.randint(0, each.get("high", 2), shape)
        else:
            made[name] = torch.randn(shape, dtype=getattr(torch, each["dtype"]))
    return made


def runs(module, described, sizes):
    try:
        module(**real_inputs(described, sizes))
    except Exception:  # any: whether it runs is the question
        return False
    return True


@pytest.fixture(scope="module")
def reports():
    """Each case is checked once."""
    known = {}

    def report(case, which):
        if (case, which) not in known:
            module, described = getattr(load(case), which)()
            known[case, which] = module, described, sf.check(module, **specs(described))
        return known[case, which]

    return report


def test_all_twenty_two_are_here():
    assert len(CASES) == 22


@pytest.mark.parametrize("case", CASES)
def test_a_bug_is_an_error_at_its_line(case, reports):
    _, _, report = reports(case, "make")
    meta = load(case).META
    errors = [problem for problem in report.problems if problem.level == "error"]
    assert not report.ok
    lines = [problem.code.partition("#")[0].strip() for problem in errors]
    assert lines == [meta["line"]] or lines == SEVERAL.get(case)
    assert errors[0].file.endswith(f"{case}.py") and errors[0].dims and errors[0].fix


@pytest.mark.parametrize("case", CASES)
def test_what_is_mended_is_clean(case, reports):
    _, _, report = reports(case, "make_fixed")
    assert report.ok
    assert {problem.level for problem in report.problems} <= {"note"}
    assert report.domain is not None and report.finished


@pytest.mark.parametrize("case", CASES)
def test_a_crash_is_one_of_the_real_module(case, reports):
    module, described, report = reports(case, "make")
    witnesses = [problem.witness for problem in report.problems if problem.rule in ("SF101", "SF102")]
    if load(case).META["runtime"].startswith("raises"):
        assert witnesses
    for witness in witnesses:
        assert not runs(module, described, witness)


@pytest.mark.parametrize("which", ["make", "make_fixed"])
@pytest.mark.parametrize("case", CASES)
def test_a_domain_is_true(case, which, reports):
    """50 random sizes inside run; the sizes next to each bound do not."""
    module, described, report = reports(case, which)
    if report.domain is None:
        assert not runs(module, described, dict.fromkeys(names(described), 7))
        return
    inside = list(sizes_inside(report.domain, random.Random(case), SAMPLES))
    assert len(inside) == SAMPLES or len(inside) == count_of(report.domain)
    for sizes in inside:
        assert runs(module, described, sizes), sizes
    for sizes in sizes_outside(report.domain, inside[0]):
        assert not runs(module, described, sizes), sizes


def sizes_inside(domain, generator, count):
    seen = set()
    for _ in range(200 * count):
        sizes = {name: generator.randint(low, min(high or low + 40, low + 40)) for name, low, high in domain.bounds}
        key = tuple(sizes.values())
        if key not in seen and all(holds(relation, sizes) for relation in domain.relations):
            seen.add(key)
            yield sizes
        if len(seen) == count:
            return


def count_of(domain):
    total = 1
    for _, low, high in domain.bounds:
        total *= 41 if high is None else min(high - low + 1, 41)
    return total


def holds(relation, sizes):
    return eval(relation, {}, dict(sizes))


def sizes_outside(domain, inside):
    for name, low, high in domain.bounds:
        if low > 1:
            yield {**inside, name: low - 1}
        if high is not None:
            yield {**inside, name: high + 1}
    for relation in domain.relations:
        if "%" in relation:
            name = relation.partition(" ")[0]
            yield {**inside, name: inside[name] + 1}
