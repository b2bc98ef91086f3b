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
    n_kv_heads  heads of keys and values, fewer than n_heads where query heads share them
    d_q, d_kv  all heads' queries side by side, and all heads' keys or values
    d_pair    pairs of axes that rotary positions turn: half of d_head
    d_latent  width of the latent that keys and values are made from; d_latent_q that of the queries
    d_compressed, d_mixture  the latent with the rotary key behind it; all heads' mixtures side by side
    d_rope, d_nope  the parts of d_head with rotary positions and without, where they are kept apart
    d_attn    all heads side by side, where queries, keys and values have the same heads (T5)
    R         positions of the target read so far, where S counts those of the source
    n_experts, top_k  experts of a layer, and how many of them each token goes to
    n_routed  tokens that one expert gets
    d_expert  hidden width of one expert, where other networks have another
    n_groups  groups of neighbouring experts
    n_segments, n_buckets, n_answers  sentences of a pair, groups of distances, answers to a question
    N, k      pairs of words, and words that are scored for each (Word2Vec)
    n_pairs   pairs of a sine and a cosine in the code of a position: half of d_model
    L         tokens of a text that is cut into inputs and targets, one fewer of each
    vocab     token ids
    max_len   positions that a table of positions holds
"""

from jaxtyping import install_import_hook

# Every file of this folder is imported after this line, so that beartype checks every annotation in it and no function
# can be forgotten. The hook sees this package alone, and stays: `import models.gpt` may come at any time.
install_import_hook(__name__, "beartype.beartype")
