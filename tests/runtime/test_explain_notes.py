"""What the note of an error says, line by line."""

import re

import pytest
import torch
from torch import nn

import shapeflow as sf
from tests.runtime import failing
from tests.runtime.failing import ones

FILE = "tests/runtime/failing.py"


def note_of(target, *inputs):
    """The note of the error that a call raises; line numbers as N."""
    with pytest.raises(Exception) as caught, sf.explain():
        target(*inputs)
    (note,) = caught.value.__notes__
    note = re.sub(r"(\.py):\d+", r"\1:N", note)
    note = re.sub(r"min -?(?!1,|0,|8,|3,|6,)\d.*", "STATISTICS", note)
    return re.sub(r"^ +\d+ \|", "  N |", re.sub(r"^ +\|", "    |", note, flags=re.M), flags=re.M).splitlines()


def halves(layer):
    """The layer with constant weights: what it gives is told alike in every run."""
    for parameter in layer.parameters():
        nn.init.constant_(parameter, 0.5)
    return layer


NOTES = [
    (
        failing.Model(),
        [ones(2, 5, 16)],
        """
shapeflow: in decoder.layers.2.self_attn (Attention of Model)
  tests/runtime/failing.py:N, in attend: matmul
  N |         scores = q @ k
    |                  ^^^^^
  q  B T d_model = 2 5 16  float32 cpu  min 1, max 1, mean 1
  k  B T d_model = 2 5 16  float32 cpu  min 1, max 1, mean 1
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x), d_model = 16 (axis 2 of x)
  axis: axis 2 of q is d_model = 16, axis 1 of k is T = 5
  cause: q is B T d_model, k is B T d_model: d_model=16 meets T=5, a transpose of k is missing
  fix: q @ k.transpose(-2, -1)
""",
    ),
    (
        failing.Table(),
        [ones(2, 33, 16)],
        """
shapeflow: in Table
  tests/runtime/failing.py:N, in forward: add
  N |         return x + self.pe[:, : x.shape[1]]
    |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  x                         B T 16 = 2 33 16  float32 cpu  min 1, max 1, mean 1
  self.pe[:, : x.shape[1]]  1 20 16           float32 cpu
  self.pe                   1 20 16           float32 cpu  min 0, max 0, mean 0
  dims: B = 2 (axis 0 of x), T = 33 (axis 1 of x)
  axis: axis 1 of x is T = 33, axis 1 of self.pe[:, : x.shape[1]] is 20
  cause: table 'pe' has 20 rows, x has T = 33: the slice stops at the end of the table
  fix: size 'pe' for the longest T you accept, and declare T<=20 or what it becomes
""",
    ),
    (
        failing.Heads(),
        [ones(2, 5, 30)],
        """
shapeflow: in Heads
  tests/runtime/failing.py:N, in forward: view
  N |         return x.view(b, t, self.n_heads, d // self.n_heads)
    |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  x  B T d = 2 5 30  float32 cpu  min 1, max 1, mean 1
  b = 2, t = 5, self.n_heads = 4, d // self.n_heads = 7, d = 30
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x), d = 30 (axis 2 of x)
  axis: x has B*T*d = 300 elements, 2*5*4*7 = 280 are asked
  cause: view: 4 * (30//4 = 7) = 28, not 30: self.n_heads does not divide 30
  fix: n_heads=5 (30 % 5 == 0), and assert 30 % n_heads == 0 in __init__
""",
    ),
    (
        failing.Loss(),
        [ones(2, 6, 40), torch.zeros(2, 6, dtype=torch.int64)],
        """
shapeflow: in Loss
  tests/runtime/failing.py:N, in forward: cross_entropy
  N |         return F.cross_entropy(logits, target)
    |                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  logits  B T V = 2 6 40  float32 cpu  min 1, max 1, mean 1
  target  B T = 2 6       int64 cpu    min 0, max 0
  dims: B = 2 (axis 0 of logits), T = 6 (axis 1 of logits), V = 40 (axis 2 of logits)
  axis: axis 2 of logits is V = 40, axis 1 of target is T = 6: axis 1 of logits is taken for the classes
  cause: cross_entropy takes classes on axis 1 and finds T there: logits is B T V, its V classes are last
  fix: F.cross_entropy(logits.transpose(1, 2), target)
""",
    ),
    (
        failing.Tokens(),
        [torch.tensor([[3, 12]])],
        """
shapeflow: in tok (Embedding of Tokens)
  tests/runtime/failing.py:N, in forward: embedding
  N |         return self.tok(ids)
    |                ^^^^^^^^^^^^^
  ids         B T = 1 2  int64 cpu    min 3, max 12
  tok.weight  7 3        float32 cpu  min 0, max 0, mean 0
  dims: B = 1 (axis 0 of ids), T = 2 (axis 1 of ids)
  axis: axis 0 of tok.weight is 7, the greatest index in ids is 12
  cause: Embedding 'tok' has 7 rows, the greatest index is 12: num_embeddings is too small
  fix: nn.Embedding(13, 3)
  fault: tests/runtime/failing.py:N: self.tok = nn.Embedding(7, 3)
""",
    ),
    (
        failing.Refuses(),
        [ones(2, 7)],
        """
shapeflow: in Refuses
  tests/runtime/failing.py:N, in forward
  N |             raise ValueError("a sequence of more than 5 tokens")
    |             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  x  B T = 2 7  float32 cpu  min 1, max 1, mean 1
  dims: B = 2 (axis 0 of x), T = 7 (axis 1 of x)
""",
    ),
    (
        failing.Joins(),
        [ones(2, 5), ones(2, 7)],
        """
shapeflow: in Joins
  tests/runtime/failing.py:N, in forward: cat
  N |         return torch.cat([a, b], dim=0)
    |                ^^^^^^^^^^^^^^^^^^^^^^^^
  a  B T = 2 5  float32 cpu  min 1, max 1, mean 1
  b  B S = 2 7  float32 cpu  min 1, max 1, mean 1
  dims: B = 2 (axis 0 of a), T = 5 (axis 1 of a), S = 7 (axis 1 of b)
  axis: axis 1 of a is T = 5, axis 1 of b is S = 7
  cause: cat along axis 0: a is B T, b is B S: axis 1 differs (T and S), so it is the one to join
  fix: torch.cat((a, b), dim=-1)
""",
    ),
    (
        failing.Typed(),
        [ones(2, 5, 8), ones(2, 6)],
        """
shapeflow: in checked (Checked of Typed)
  Checked.forward (tests/runtime/failing.py:N) is given what it does not allow
  tests/runtime/failing.py:N, in forward
  N |         return self.checked(x, y)
    |                ^^^^^^^^^^^^^^^^^^
  x  B T 8 = 2 5 8  float32 cpu  min 1, max 1, mean 1
  y  B 6 = 2 6      float32 cpu  min 1, max 1, mean 1
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x)
  axis: axis 1 of y is 6, T = 5 from axis 1 of x
""",
    ),
    (
        failing.Typed(),
        [ones(3, 5, 8), ones(3, 5)],
        """
shapeflow: in checked (Checked of Typed)
  Checked.forward (tests/runtime/failing.py:N) returned what its annotation does not allow
  tests/runtime/failing.py:N, in forward
  N |         return self.checked(x, y)
    |                ^^^^^^^^^^^^^^^^^^
  x           B T 8 = 3 5 8  float32 cpu  min 1, max 1, mean 1
  y           B T = 3 5      float32 cpu  min 1, max 1, mean 1
  the result  B 4 = 3 4      float32 cpu  min 8, max 8, mean 8
  dims: B = 3 (axis 0 of x), T = 5 (axis 1 of x)
  axis: axis 1 of the result is 4, T = 5 from axis 1 of x
""",
    ),
    (
        failing.Typed(),
        [ones(2, 5, 8), torch.ones(2, 5, dtype=torch.int64)],
        """
shapeflow: in checked (Checked of Typed)
  Checked.forward (tests/runtime/failing.py:N) is given what it does not allow
  tests/runtime/failing.py:N, in forward
  N |         return self.checked(x, y)
    |                ^^^^^^^^^^^^^^^^^^
  x  B T 8 = 2 5 8  float32 cpu  min 1, max 1, mean 1
  y  B T = 2 5      int64 cpu    min 1, max 1
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x)
  dtype: y is int64, the annotation asks for Float
""",
    ),
    (
        failing.Enforced(),
        [ones(2, 5, 9)],
        """
shapeflow: in Enforced
  Enforced.forward (tests/runtime/failing.py:N) is given what it does not allow
  tests/runtime/test_explain_notes.py:N, in note_of
  N |         target(*inputs)
    |         ^^^^^^^^^^^^^^^
  x  B T 9 = 2 5 9  float32 cpu  min 1, max 1, mean 1
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x), d_model = 8 (an attribute of Enforced)
  axis: axis 2 of x is 9, d_model = 8 from an attribute of Enforced
""",
    ),
    (
        nn.Sequential(halves(nn.Linear(3, 4)), nn.Linear(5, 6, bias=False)),
        [ones(2, 3)],
        """
shapeflow: in 1 (Linear of Sequential)
  tests/runtime/test_explain_notes.py:N, in note_of: linear
  N |         target(*inputs)
    |         ^^^^^^^^^^^^^^^
  inputs[0]   2 3  float32 cpu  min 1, max 1, mean 1
  input of 1  2 4  float32 cpu  STATISTICS
  1.weight    6 5  float32 cpu  STATISTICS
  axis: axis 1 of input of 1 is 4, axis 1 of 1.weight is 5
  cause: Linear '1' takes 5, gets 4: in_features is wrong
  fix: nn.Linear(4, 6, bias=False)
""",
    ),
    (
        failing.Beartyped().forward,
        [ones(2, 5)],
        """
shapeflow: in Beartyped.forward
  Beartyped.forward (tests/runtime/failing.py:N) is given what it does not allow
  tests/runtime/test_explain_notes.py:N, in note_of
  N |         target(*inputs)
    |         ^^^^^^^^^^^^^^^
  x  2 5  float32 cpu  min 1, max 1, mean 1
  axis: x has 2 axes, the annotation says 3: B T 8
""",
    ),
    (
        failing.Writes(),
        [ones(2, 5)],
        """
shapeflow: in Writes
  tests/runtime/failing.py:N, in forward: setitem
  N |         x[:, 0] = ones(3, 3)
    |         ^^^^^^^
  x           B T = 2 5  float32 cpu  min 1, max 1, mean 1
  ones(3, 3)  3 3        float32 cpu
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x)
""",
    ),
    (
        failing.Kernel(),
        [ones(2, 9, 11, 3)],
        """
shapeflow: in stem (Conv2d of Kernel)
  tests/runtime/failing.py:N, in forward: conv2d
  N |         return self.stem(images)
    |                ^^^^^^^^^^^^^^^^^
  images       B C H W = 2 9 11 3  float32 cpu  min 1, max 1, mean 1
  stem.weight  5 3 3 3             float32 cpu  min 0, max 0, mean 0
  dims: B = 2 (axis 0 of images), C = 9 (axis 1 of images), H = 11 (axis 2 of images), W = 3 (axis 3 of images)
  axis: axis 1 of images is C = 9, stem.weight is for 3 channels
  cause: Conv2d 'stem' takes 3 channels on axis 1, gets C=9: B C H W has its channels last
  fix: self.stem(images.permute(0, 3, 1, 2))
""",
    ),
    (
        failing.Looks(),
        [ones(2, 5), {}],
        """
shapeflow: in Looks
  tests/runtime/failing.py:N, in forward
  N |         return x * names["scale"]
    |                    ^^^^^^^^^^^^^^
  x  B T = 2 5  float32 cpu  min 1, max 1, mean 1
  dims: B = 2 (axis 0 of x), T = 5 (axis 1 of x)
""",
    ),
    (
        failing.outer,
        [ones(2, 3), ones(4, 5)],
        """
shapeflow: in outer
  tests/runtime/failing.py:N, in outer: matmul
  N |     return torch.matmul(a, b)
    |            ^^^^^^^^^^^^^^^^^^
  a  n m = 2 3  float32 cpu  min 1, max 1, mean 1
  b  4 k = 4 5  float32 cpu  min 1, max 1, mean 1
  dims: n = 2 (axis 0 of a), m = 3 (axis 1 of a), k = 5 (axis 1 of b)
  annotation: axis 0 of b is 4, m = 3 from axis 1 of a
  axis: axis 1 of a is m = 3, axis 0 of b is 4
  cause: a is n m, b is 4 k: m=3 meets 4
""",
    ),
]


@pytest.mark.parametrize(("target", "inputs", "note"), NOTES)
def test_the_note_line_by_line(target, inputs, note):
    assert note_of(target, *inputs) == note.strip().splitlines()
