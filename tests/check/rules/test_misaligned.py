"""SF303: what was taken from the rows of a square matrix and is aligned with its columns, and what is meant so."""

import pytest
import torch

from tests.check.rules.found import at_the_marked_line, errors, found


def name(target):
    return target.__name__


def rows_by_sums(a):
    return a / a.sum(1)  # here


def rows_by_sums_of_negative_axis(a):
    total = a.sum(dim=-1)
    return a / total  # here


def centred(a):
    return a - a.mean(1)  # here


def scaled_by_largest(a):
    return torch.div(a, a.abs().amax(-1))  # here


def rooted(a):
    degree = a.sum(1)
    return torch.relu(a) / degree.sqrt()  # here


def masked_rows(a):
    empty = (a == 0).all(1)
    return torch.where(empty, torch.zeros(()), a)  # here


def by_reciprocals(a):
    share = 1.0 / a.sum(1)
    return a * share  # here


def by_powers(a):
    return a * a.sum(1).pow(-1)  # here


def wrong_new_axis(w):
    return w / w.sum(-1).unsqueeze(1)  # here


def wrong_new_axis_of_columns(a):
    return a / a.sum(0)[:, None]  # here


def softmax_by_hand(x):
    scores = x @ x.T
    e = torch.exp(scores - scores.max())
    return e / e.sum(-1)  # here


def of_one_graph(a):
    degree = a[0].sum(1)
    return a[0] / degree  # here


def largest(a):
    top, _ = a.max(1)
    return a - top  # here


MISALIGNED = [
    (largest, "N N"),
    (of_one_graph, "B N N"),
    (softmax_by_hand, "N 8"),
    (by_reciprocals, "N N"),
    (by_powers, "N N"),
    (wrong_new_axis, "B T T"),
    (wrong_new_axis_of_columns, "N N"),
    (rows_by_sums, "N N"),
    (rows_by_sums_of_negative_axis, "N N"),
    (centred, "N N"),
    (scaled_by_largest, "N N"),
    (rooted, "N N"),
    (masked_rows, "N N"),
]


@pytest.mark.parametrize(("target", "spec"), MISALIGNED, ids=[name(each[0]) for each in MISALIGNED])
def test_a_vector_along_the_wrong_of_two_equal_axes(target, spec):
    problems = found("SF303", target, spec)
    assert len(problems) == 1
    (problem,) = problems
    assert problem.level == "error" and at_the_marked_line(problem)
    assert problem.dims in (("N",), ("T",)) and problem.fix.endswith(", keepdim=True)")


def test_the_message_names_the_axes_and_the_fix_keeps_the_line():
    (problem,) = found("SF303", rows_by_sums, "N N")
    assert problem.message == "div: a.sum(1) has axis 0 of the matrix, and is aligned with its axis 1, both N"
    assert problem.fix == "a.sum(1, keepdim=True)"


def rows_by_sums_kept(a):
    return a / a.sum(1, keepdim=True)


def columns_by_sums(a):
    return a / a.sum(0)


def rows_by_sums_with_an_axis(a):
    return a / a.sum(1)[:, None] + a / a.sum(1).unsqueeze(-1)


def both_sides(a):
    degree = a.sum(1)
    return degree.rsqrt()[:, None] * a * degree.rsqrt()[None, :]


def both_sides_as_the_paper_has_it(a):
    root = a.sum(1).rsqrt()
    return root.view(-1, 1) * a * root.view(1, -1)


def both_sides_implicitly(a):
    root = a.sum(1).rsqrt()
    return root[:, None] * a * root


def both_sides_divided(a):
    root = a.sum(1).sqrt()
    return a / root / root[:, None]


def largest_of_others(a):
    return torch.where(a > 0, a, a.T) - a.mean()


def centred_kernel(k):
    return k - k.mean(0) - k.mean(1, keepdim=True) + k.mean()


def plus_a_diagonal(a):
    return a - torch.diag(a.sum(1))


def against_its_diagonal(a):
    return a - a.diagonal()


def bias(x):
    return x + x.mean((0, 1))


def scores_and_bias(x):
    y = x @ x.transpose(-1, -2)
    return y + x.sum(-1)[:, None, :]


def centred_twice(k):
    return k - k.mean(0)[:, None] - k.mean(0) + k.mean()


def of_the_right_new_axis(w):
    return w / w.sum(-1).unsqueeze(-1) - w.amax(1).unsqueeze(1)


ALIGNED = [
    (centred_twice, "N N"),
    (of_the_right_new_axis, "B T T"),
    (rows_by_sums_kept, "N N"),
    (columns_by_sums, "N N"),
    (rows_by_sums_with_an_axis, "N N"),
    (both_sides, "N N"),
    (both_sides_as_the_paper_has_it, "N N"),
    (both_sides_implicitly, "N N"),
    (both_sides_divided, "N N"),
    (largest_of_others, "N N"),
    (centred_kernel, "N N"),
    (plus_a_diagonal, "N N"),
    (against_its_diagonal, "N N"),
    (bias, "B N N"),
    (scores_and_bias, "B N 8"),
]


@pytest.mark.parametrize(("target", "spec"), ALIGNED, ids=[name(each[0]) for each in ALIGNED])
def test_a_vector_along_its_own_axis_is_no_finding(target, spec):
    assert errors(target, spec) == []
