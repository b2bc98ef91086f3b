"""Crashes of many styles: each has its message, its fix and the line at fault."""

from typing import NamedTuple

import pytest

from shapeflow.check.cause import prove
from tests.check.cause import crashing
from tests.check.cause.crashing import cause_of, runs

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")  # torch warns of the loss before it raises


class Crash(NamedTuple):
    target: str
    inputs: tuple[str, ...]
    hints: dict[str, int]
    message: str
    fix: str
    line: str


CRASHES = [
    Crash(
        "LeNet",
        ("B 1 28 28",),
        {},
        "Linear 'classifier.1' takes 400, gets 256 = 16*4*4: flatten is right, in_features is not",
        "nn.Linear(16 * 4 * 4, 120)",
        "nn.Linear(16 * 5 * 5, 120),",
    ),
    Crash(
        "LeNetView",
        ("B 1 28 28",),
        {"B": 3},
        "view asks for 16 * 5 * 5 = 400 numbers, one sample of B 16 6 6 has 576 = 16*6*6",
        "x.flatten(1)",
        "x = x.view(-1, 16 * 5 * 5)",
    ),
    Crash(
        "AnySize",
        ("B 3 H W",),
        {},
        "Linear 'head' takes 512, gets 64*((H - 1)//2 + 1)*((W - 1)//2 + 1) = "
        "64*((H-1)//2+1)*((W-1)//2+1) = 1089792 in this run: it depends on H, W",
        "pool to a fixed size in front of the flatten (nn.AdaptiveAvgPool2d), or declare H and W "
        "as numbers and size Linear 'head' by them",
        "self.head = nn.Linear(512, 10)",
    ),
    Crash(
        "FlatBatch",
        ("B 3 8 8",),
        {},
        "Linear 'head' takes 192 = 3*8*8, gets 192*B: the flatten takes the batch along",
        ".flatten(1)",
        "return self.head(x.flatten())",
    ),
    Crash(
        "NotPooled",
        (),
        {"H": 9, "W": 11},
        "Linear 'head' takes 40, gets W - 2, the last axis of B 40 (H - 2) (W - 2): its 40 channels are not pooled",
        "self.head(self.conv(x).mean((2, 3)))",
        "return self.head(self.conv(x))",
    ),
    Crash(
        "Swapped",
        ("B 32",),
        {},
        "Linear 'up' takes 128, gets 32 and gives 32: its arguments are swapped",
        "nn.Linear(32, 128)",
        "self.up = nn.Linear(128, 32)",
    ),
    Crash(
        "Hidden",
        ("B 20",),
        {},
        "Linear 'body.2' takes 128, gets 64: in_features is wrong",
        "nn.Linear(64, 5)",
        "self.body = nn.Sequential(nn.Linear(20, width), nn.GELU(), nn.Linear(width * 2, 5))",
    ),
    Crash(
        "Concatenated",
        ("B 30", "B 50"),
        {},
        "Linear 'head' takes 16, gets 40 = 16+24: the parts of the cat add up, in_features is wrong",
        "nn.Linear(16 + 24, 2)",
        "self.head = nn.Linear(16, 2)",
    ),
    Crash(
        "WrongAxisOfCat",
        ("B T 16", "B T 24"),
        {},
        "cat along axis 1: a is B T 16, b is B T 24: axis 2 differs (16 and 24), so it is the one to join",
        "torch.cat((a, b), dim=-1)",
        "return self.head(torch.cat([a, b], dim=1))",
    ),
    Crash(
        "LstmThenLinear",
        ("B T 10",),
        {},
        "Linear 'head' takes 32, gets 64 = 2*32: LSTM 'rnn' reads both ways, in_features is wrong",
        "nn.Linear(2 * 32, 4)",
        "self.head = nn.Linear(32, 4)",
    ),
    Crash(
        "LstmInput",
        ("B T:int64",),
        {},
        "LSTM 'rnn' takes 32 features, gets 24, the last axis of B T 24: input_size is wrong",
        "nn.LSTM(input_size=24, hidden_size=48, batch_first=True)",
        "self.rnn = nn.LSTM(input_size=32, hidden_size=48, batch_first=True)",
    ),
    Crash(
        "GruState",
        ("B T 10",),
        {},
        "GRU 'rnn' takes a state of 1 T 32, gets 1 B 32: it reads axis 1 of B T 10 as the batch",
        "nn.GRU(10, 32, batch_first=True)",
        "self.rnn = nn.GRU(10, 32)",
    ),
    Crash(
        "GruLayers",
        ("B T 10",),
        {},
        "GRU 'rnn' takes a state of 2 B 32, gets 1 B 32: num_layers * directions is 2 * 1, not 1",
        "a state of 2 B 32",
        "return self.rnn(x, torch.zeros(1, x.shape[0], 32))[0]",
    ),
    Crash(
        "Kdim",
        ("B T 32", "B S 48"),
        {},
        "MultiheadAttention 'attn' takes 32 features in key, gets 48, the last axis of B S 48: kdim is missing",
        "nn.MultiheadAttention(32, 4, batch_first=True, kdim=48, vdim=48)",
        "self.attn = nn.MultiheadAttention(32, 4, batch_first=True)",
    ),
    Crash(
        "EmbedDim",
        ("B T 48",),
        {},
        "MultiheadAttention 'attn' takes 64 features in query, gets 48, the last axis of B T 48: embed_dim is wrong",
        "nn.MultiheadAttention(embed_dim=48, num_heads=4, batch_first=True)",
        "self.attn = nn.MultiheadAttention(embed_dim=64, num_heads=4, batch_first=True)",
    ),
    Crash(
        "CausalMask",
        ("B T 16",),
        {"B": 3, "T": 7},
        "MultiheadAttention 'attn' takes attn_mask of B B, gets T T: it reads axis 1 of B T 16 as the batch",
        "nn.MultiheadAttention(16, 4, batch_first=True)",
        "self.attn = nn.MultiheadAttention(16, 4)",
    ),
    Crash(
        "PaddingMask",
        ("B T 16", "B T:bool"),
        {"B": 3, "T": 7},
        "MultiheadAttention 'layer.self_attn' takes key_padding_mask of B T, gets T B: it is transposed",
        "key_padding_mask as B T",
        "return self.layer(x, src_key_padding_mask=padding.T)",
    ),
    Crash(
        "Scores",
        ("B T 16",),
        {"T": 7},
        "self.q(x) is B T 16, self.k(x) is B T 16: 16 meets T, a transpose of self.k(x) is missing",
        "self.q(x) @ self.k(x).transpose(-2, -1)",
        "return torch.softmax(self.q(x) @ self.k(x), dim=-1) @ x",
    ),
    Crash(
        "Sdpa",
        ("B 4 T 8", "B 4 S 8", "B 4 S 8", "B S:bool"),
        {"B": 3, "T": 5},
        "the scores are B 4 T S, the mask is B S",
        "attn_mask=mask[:, None, None, :]",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    ),
    Crash(
        "Heads",
        ("B T 48",),
        {},
        "reshape: 5 * (48//5 = 9) = 45, not 48: self.n_heads does not divide 48",
        "n_heads=6 (48 % 6 == 0), and assert d_model % n_heads == 0 in __init__",
        "return self.proj(x).reshape(b, t, self.n_heads, self.d_head).transpose(1, 2)",
    ),
    Crash(
        "MergedView",
        ("B 4 T 8",),
        {},
        "view of x.transpose(1, 2) (B T 4 8): its memory is in another order since it was "
        "transposed; a view cannot copy",
        "x.transpose(1, 2).reshape(b, t, h * d)",
        "return x.transpose(1, 2).view(b, t, h * d)",
    ),
    Crash(
        "Grey",
        ("B H W",),
        {},
        "Conv2d 'conv' takes 4 axes (batch, channels, ...), gets 3: B H W: the axis of its one channel is missing",
        "self.conv(x.unsqueeze(1))",
        "return self.conv(x)",
    ),
    Crash(
        "ChannelsLast",
        ("B H W 3",),
        {},
        "Conv2d 'stem' takes 3 channels on axis 1, gets H: B H W 3 has its channels last",
        "self.stem(images.permute(0, 3, 1, 2))",
        "return self.stem(images)",
    ),
    Crash(
        "Chain",
        ("B 3 H W",),
        {},
        "Conv2d 'layers.1' takes 32 channels, gets 16, axis 1 of B 16 H W: in_channels is wrong",
        "nn.Conv2d(16, 64, 3, padding=1)",
        "self.layers = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)])",
    ),
    Crash(
        "BadNorm",
        ("B 3 H W",),
        {},
        "BatchNorm2d 'block.1' takes 32 channels on axis 1, gets 16 of B 16 (H - 2) (W - 2): num_features is wrong",
        "nn.BatchNorm2d(16)",
        "self.block = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(32), nn.ReLU())",
    ),
    Crash(
        "OneD",
        ("B 3 H W",),
        {},
        "BatchNorm1d 'bn' does not take 4 axes: B 16 (H - 2) (W - 2); BatchNorm2d does",
        "nn.BatchNorm2d(16)",
        "self.bn = nn.BatchNorm1d(16)",
    ),
    Crash(
        "Groups",
        ("B 12 H W",),
        {},
        "group_norm splits 12 channels into 8 groups: they do not divide",
        "num_groups=6",
        "return F.group_norm(x, 8)",
    ),
    Crash(
        "LayerNormFirst",
        ("B 24 T",),
        {"T": 7},
        "LayerNorm 'norm' takes 24 on the last axis, gets T of B 24 T: axis 1 has the 24, a transpose is missing",
        "self.norm(x.transpose(1, 2)).transpose(1, 2)",
        "return self.norm(x)",
    ),
    Crash(
        "Decoder",
        ("B 3 32 32",),
        {},
        "cat along axis 1: y is B 8 15 15, skip is B 8 16 16: ConvTranspose2d 'up1' makes 15 of 8 (output_padding=0)",
        "nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)",
        "self.up1 = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1)",
    ),
    Crash(
        "Decoder",
        ("B 3 H W",),
        {"H": 32, "W": 64},
        "cat along axis 1: y is B 8 (2*((H - 1)//4 + 1) - 1) (2*((W - 1)//4 + 1) - 1), skip is B 8 "
        "((H - 1)//2 + 1) ((W - 1)//2 + 1): ConvTranspose2d 'up1' makes 2*((W - 1)//4 + 1) - 1 of "
        "(W - 1)//4 + 1 (output_padding=0)",
        "nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)",
        "self.up1 = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1)",
    ),
    Crash(
        "Upsampled",
        ("B 3 H W",),
        {"H": 35, "W": 34},
        "x is B 3 H W, self.up(self.pool(x)) is B 3 4*(H//4) 4*(W//4): halving an odd H or W "
        "rounds down, and doubling does not bring the row back",
        "resize self.up(self.pool(x)) to x.shape[-2:] (F.interpolate(..., size=x.shape[-2:])), or "
        "pad the input to a multiple",
        "return x + self.up(self.pool(x))",
    ),
    Crash(
        "Shortcut",
        (),
        {},
        "x is B 16 H W, self.conv2(torch.relu(self.conv1(x))) is B 32 H W: axis 1 is 16 and 32",
        "project x: nn.Conv2d(16, 32, 1)",
        "return x + self.conv2(torch.relu(self.conv1(x)))",
    ),
    Crash(
        "NoPadding",
        ("B 16 H W",),
        {},
        "x is B 16 H W, self.conv(x) is B 16 (H - 2) (W - 2): Conv2d 'conv' makes W - 2 of W (padding=0)",
        "nn.Conv2d(16, 16, 3, padding=1)",
        "self.conv = nn.Conv2d(16, 16, 3)",
    ),
    Crash(
        "Gate",
        ("B 16 H W",),
        {"B": 3, "H": 5, "W": 7},
        "x is B 16 H W, s is B 16: the axes of s stand 2 too far right",
        "s[:, :, None, None]",
        "return x * s",
    ),
    Crash(
        "Position",
        ("B T:int64",),
        {"T": 13},
        "table 'pos' has 12 rows, self.emb(ids) has T = 13: the slice stops at the end of the table",
        "size 'pos' for the longest T you accept, and declare T<=12 or what it becomes",
        "return self.emb(ids) + self.pos[:, : ids.size(1)]",
    ),
    Crash(
        "WidthsOfSum",
        ("B T:int64", "B T:int64"),
        {},
        "self.tok(ids) is B T 64, self.typ(types) is B T 32: Embedding 'tok' gives 64, not 32",
        "nn.Embedding(100, 32)",
        "self.tok = nn.Embedding(100, 64)",
    ),
    Crash(
        "Small",
        ("B 3 20 20",),
        {},
        "MaxPool2d 'pool': a window of 2 over 1 x 1 leaves nothing",
        "a larger input, or a pooling or stride less",
        "x = self.pool(x)",
    ),
    Crash(
        "OneHot",
        ("B 8", "B 1:int64"),
        {},
        "cross_entropy of self.head(x) (B 5) and target (B 1): the target has an axis of one too many",
        "F.cross_entropy(self.head(x), target.squeeze(1))",
        "return F.cross_entropy(self.head(x), target)",
    ),
    Crash(
        "Shifted",
        ("B T 8", "B T:int64"),
        {},
        "cross_entropy: the logits have T positions, the target T - 1: one of them is shifted",
        "leave the same positions out of both: logits[:, :-1] with target[:, 1:]",
        "return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
    ),
    Crash(
        "bilinear",
        (),
        {},
        "einsum 'bnd,bmd->bnm': 'd' is d=8 in B N d and e=6 in B M e",
        "",
        'return torch.einsum("bnd,bmd->bnm", x, y)',
    ),
    Crash(
        "last_of_five",
        (),
        {},
        "x[:, 5]: axis 1 of B 5 D has 5 elements, the last is 4; index 5 is past the end",
        "",
        "return x[:, 5]",
    ),
    Crash(
        "distance",
        (),
        {"T": 5, "C": 7},
        "a is B T C, b is B C T: axes 1 and 2 are the other way round",
        "a.transpose(1, 2)",
        "return F.mse_loss(a, b)",
    ),
    Crash(
        "stacked",
        ("B T 4", "B T 5"),
        {},
        "stack along axis 0: a is B T 4, b is B T 5: axis 2 is 4 and 5",
        "",
        "return torch.stack((a, b))",
    ),
    Crash(
        "SplitWidth",
        ("B T 32",),
        {},
        "reshape splits 90, the last axis of B T 90, by 3*4*8 = 96: Linear 'qkv' gives 90, not 96",
        "nn.Linear(32, 96)",
        "self.qkv = nn.Linear(32, 90)",
    ),
    Crash(
        "Mixer",
        ("B 49 C",),
        {},
        "x is B 49 C, self.tokens(x.transpose(1, 2)).transpose(1, 2) is B 57 C: Linear 'tokens' gives 57, not 49",
        "nn.Linear(49, 49)",
        "self.tokens = nn.Linear(49, 57)",
    ),
    Crash(
        "Inception",
        ("B 8 H W",),
        {"H": 9, "W": 11},
        "cat along axis 1: tensor 2 is B 4 (H - 2) (W - 2), tensor 0 is B 4 H W: Conv2d "
        "'branches.2' makes W - 2 of W (padding=1)",
        "nn.Conv2d(8, 4, 5, padding=2)",
        "[nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(8, 4, 5, padding=1)]",
    ),
    Crash(
        "FixedBatch",
        ("B 3 4",),
        {"B": 7},
        "view writes 32 where B 3 4 has B: the batch is a number",
        "x.shape[0] instead of 32",
        "return x.view(32, -1)",
    ),
    Crash(
        "Encoder",
        ("B T 32",),
        {},
        "TransformerEncoderLayer 'layer' takes 64 features, gets 32 in query, the last axis of B T "
        "32: d_model is wrong",
        "nn.TransformerEncoderLayer(32, 4, 128, batch_first=True)",
        "self.layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)",
    ),
    Crash(
        "WideMemory",
        ("B T 32", "B S 48"),
        {},
        "TransformerDecoderLayer 'layer' takes 32 features, gets 48 in key, the last axis of B S "
        "48: it has one width for all",
        "nn.Linear(48, 32) in front",
        "return self.layer(x, memory)",
    ),
    Crash(
        "Depthwise",
        ("B 8 H W",),
        {},
        "Conv2d 'conv' takes 12 channels, gets 8, axis 1 of B 8 H W: in_channels is wrong",
        "nn.Conv2d(8, 8, 3, groups=8)",
        "self.conv = nn.Conv2d(12, 12, 3, groups=12)",
    ),
    Crash(
        "ClassToken",
        ("B T 16",),
        {"B": 3},
        "cat along axis 1: self.token is 1 1 16, x is B T 16: cat does not broadcast",
        "self.token.expand(x.shape[0], -1, -1)",
        "return torch.cat((self.token, x), dim=1)",
    ),
    Crash(
        "MaskedScores",
        ("B 4 T T", "B T:bool"),
        {"B": 3, "T": 5},
        "scores is B 4 T T, padding is B T: padding has no axis between its first and the others",
        "padding[:, None, None, :]",
        'return scores.masked_fill(padding, float("-inf"))',
    ),
    Crash(
        "Batched",
        ("B T 16", "B S 16"),
        {"B": 3, "T": 5, "S": 6},
        "a is B T 16, b is B S 16: 16 meets S, a transpose of b is missing",
        "torch.bmm(a, b.transpose(-2, -1))",
        "return torch.bmm(a, b)",
    ),
    Crash(
        "SameName",
        ("B 5",),
        {},
        "Linear 'first' takes 8, gets 5: in_features is wrong",
        "nn.Linear(5, 8)",
        "self.first = nn.Linear(8, 8)",
    ),
    Crash(
        "FloatIndex",
        ("B T",),
        {},
        "Embedding 'emb' takes whole numbers, gets float32 (B T)",
        "self.emb(x.long())",
        "return self.emb(x)",
    ),
    Crash(
        "LargeKernel",
        ("B 3 H W",),
        {"H": 5, "W": 6},
        "Conv2d 'conv' slides a window of 7x7 over H x W: it does not fit",
        "declare the least H and W, or pad, or leave a pooling or a stride in front out",
        "return self.conv(",
    ),
    Crash(
        "Lines",
        ("B 8 7 7",),
        {},
        "Linear 'head' takes 392 = 8*7*7, gets 7, the last axis of B 8 7 7: a flatten is missing",
        "self.head(torch.relu(x).flatten(1))",
        "return self.head(",
    ),
]
PROVED = {
    "LeNet": "nn.Linear(16 * 4 * 4, 120)",
    "Swapped": "nn.Linear(32, 128)",
    "Hidden": "nn.Linear(64, 5)",
    "Concatenated": "nn.Linear(16 + 24, 2)",
    "LstmThenLinear": "nn.Linear(2 * 32, 4)",
    "LstmInput": "nn.LSTM(input_size=24, hidden_size=48, batch_first=True)",
    "GruState": "nn.GRU(10, 32, batch_first=True)",
    "Kdim": "nn.MultiheadAttention(32, 4, batch_first=True, kdim=48, vdim=48)",
    "EmbedDim": "nn.MultiheadAttention(embed_dim=48, num_heads=4, batch_first=True)",
    "CausalMask": "nn.MultiheadAttention(16, 4, batch_first=True)",
    "Chain": "nn.Conv2d(16, 64, 3, padding=1)",
    "BadNorm": "nn.BatchNorm2d(16)",
    "Decoder": "nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)",
    "NoPadding": "nn.Conv2d(16, 16, 3, padding=1)",
    "WidthsOfSum": "nn.Embedding(100, 32)",
    "SplitWidth": "nn.Linear(32, 96)",
    "Mixer": "nn.Linear(49, 49)",
    "Encoder": "nn.TransformerEncoderLayer(32, 4, 128, batch_first=True)",
    "Depthwise": "nn.Conv2d(8, 8, 3, groups=8)",
    "Inception": "nn.Conv2d(8, 4, 5, padding=2)",
}
"""Repairs of a layer: the first that makes the model run."""


def target_of(crash):
    found = getattr(crashing, crash.target)
    return found() if isinstance(found, type) else found


def name_of(crash):
    return (
        crash.target
        if len(crash.inputs) < 2 and "H W" not in " ".join(crash.inputs)
        else " ".join(crash[:1] + crash[1])
    )


@pytest.mark.parametrize("crash", CRASHES, ids=name_of)
def test_the_cause_of_a_crash(crash):
    found = cause_of(target_of(crash), *crash.inputs, hints=crash.hints)
    assert found.message == crash.message
    assert found.fix == crash.fix
    assert found.location.code == crash.line


@pytest.mark.parametrize("crash", [each for each in CRASHES if each.target in PROVED], ids=name_of)
def test_a_repair_is_proved(crash):
    model = target_of(crash)
    found = cause_of(model, *crash.inputs, hints=crash.hints)
    right = prove(found.candidates, lambda: runs(model, *crash.inputs, hints=crash.hints))
    assert right.fix == PROVED[crash.target]
    assert not runs(model, *crash.inputs, hints=crash.hints)


def test_every_repair_is_of_a_crash_here():
    assert set(PROVED) <= {crash.target for crash in CRASHES}
