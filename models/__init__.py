"""The architectures of the course, one file each, written to be read: the shapes are in the signatures, and enforced.

>>> import torch
>>> from models import gpt
>>> gpt.toy()(torch.zeros(2, 5, dtype=torch.int64)).shape
torch.Size([2, 5, 100])

One letter means the same everywhere, and an attribute that holds such a size bears its name (`self.d_model`):

    B         sequences in the batch
    T         positions of a sequence; in attention, of its queries
    S         positions of the keys and values that the queries read
    d_model   width of the residual stream
    d_ff      hidden width of the feed-forward layer
    n_heads   attention heads
    d_head    width of one head's queries and keys
    d_v       width of one head's values, where that may differ from d_head
    vocab     token ids
    max_len   positions that a table of positions holds
"""

from jaxtyping import install_import_hook

# Every file of this folder is imported after this line, so that beartype checks every annotation in it and no function
# can be forgotten. The hook sees this package alone, and stays: `import models.gpt` may come at any time.
install_import_hook(__name__, "beartype.beartype")
