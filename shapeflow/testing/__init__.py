"""Assertions on PyTorch models for tests: in pytest, unittest or a notebook.

>>> from shapeflow.testing import assert_causal, assert_shapes
>>> assert_shapes(gpt, "B T:int64 -> B T vocab")
>>> assert_causal(gpt, "B T:int64")

Inputs are what `sf.trace` takes: a spec for each, tensors, or nothing where annotations say it; `named` holds those
that are given by name. Names get primes for sizes; `sizes` gives others, and `high` bounds random ids. Each assertion
first makes sure that it could fail: where nothing that it changes has any effect, it says that it shows nothing. The
model is left as it was: mode, buffers, gradients, random state.
"""

from shapeflow.testing.batch import assert_batch_independent
from shapeflow.testing.causal import assert_causal
from shapeflow.testing.gradients import assert_gradients_reach_all_parameters
from shapeflow.testing.matching import assert_matches
from shapeflow.testing.permutation import assert_permutation_equivariant
from shapeflow.testing.shapes import assert_shapes
from shapeflow.testing.snapshot import ShapeTrace

__all__ = [
    "ShapeTrace",
    "assert_batch_independent",
    "assert_causal",
    "assert_gradients_reach_all_parameters",
    "assert_matches",
    "assert_permutation_equivariant",
    "assert_shapes",
]
