"""Rules without a search of their own: what runs, annotations and targets show.

SF1xx are sizes at which the model does not run, or not as it does in general; SF2xx annotations that do not hold;
SF4xx what is to be said of a target as a whole.
"""

from __future__ import annotations

from shapeflow.check.rules.rule import Rule

SHOWN = (
    Rule(
        "SF101",
        "it crashes at every size that was tried",
        "error",
        """
        Two shapes do not fit, whatever the sizes of the inputs. The witness are sizes that were run.

        wrong:
            self.conv = nn.Conv2d(1, 8, 3, padding=1)
            self.head = nn.Linear(8, 10)
            ...
            return self.head(self.conv(x).flatten(1))       # x: B 1 28 28

        right:
            self.head = nn.Linear(8 * 28 * 28, 10)
        """,
    ),
    Rule(
        "SF102",
        "it crashes at some sizes, which no spec excludes",
        "error",
        """
        The model holds for a part of the sizes only. Where that is meant, declare it with the input (`T<=512`).

        wrong:
            up = F.interpolate(self.pool(x), scale_factor=2)
            return x + up                                    # an odd height loses a row in the pooling

        right:
            up = F.interpolate(self.pool(x), size=x.shape[-2:])
            return x + up
        """,
    ),
    Rule(
        "SF103",
        "a condition on the batch size",
        "error",
        """
        Examples of a batch have nothing to do with each other: a model should run for any number of them.

        wrong:
            return x + self.table[: x.shape[0]]              # x: B T d_model

        right:
            return x + self.table[: x.shape[1]]
        """,
    ),
    Rule(
        "SF104",
        "a bound on a size that no spec declares",
        "note",
        """
        A table, or a check of the code itself, bounds a size. Declared with the input it is part of the contract.

        before:
            shapeflow check net.py:Net "B T:int64"

        after:
            shapeflow check net.py:Net "B T<=512:int64"
        """,
    ),
    Rule(
        "SF105",
        "the code goes two ways, by a size",
        "note",
        """
        Both ways run. Make sure that both are meant, and that both are tested.

        asked about:
            if x.shape[1] > 512:
                return self.in_chunks(x)
            return self.at_once(x)
        """,
    ),
    Rule(
        "SF106",
        "a loop runs over a size",
        "note",
        """
        Each length is a program of its own: it was checked for those lengths alone that the message tells.

        asked about:
            for t in range(x.shape[1]):
                h = self.cell(x[:, t], h)
        """,
    ),
    Rule(
        "SF107",
        "the result has another rank at some sizes",
        "error",
        """
        An axis disappears when its size is one.

        wrong:
            return self.head(x).squeeze()                    # B 1 becomes a scalar for a batch of one

        right:
            return self.head(x).squeeze(-1)
        """,
    ),
    Rule(
        "SF201",
        "an axis is not what its annotation says",
        "error",
        """
        The shape that flows is compared with the annotation axis by axis, for all sizes.

        wrong:
            def forward(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
                return x.transpose(1, 2)

        right:
            def forward(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B d T"]:
                return x.transpose(1, 2)
        """,
    ),
    Rule(
        "SF202",
        "a name in an annotation is not the module's attribute of that name",
        "error",
        """
        Inside a module with `self.d_model = 32`, the axis `d_model` of an annotation is 32.

        wrong:
            self.d_model, self.d_ff = 32, 128
            self.up = nn.Linear(32, 128)
            def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
                return self.up(x)

        right:
            def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_ff"]:
                return self.up(x)
        """,
    ),
    Rule(
        "SF203",
        "an annotation that cannot be read",
        "warning",
        """
        An annotation that nobody can read checks nothing.

        wrong:
            x: Float[Tensor, "B,T"]

        right:
            x: Float[Tensor, "B T"]
        """,
    ),
    Rule(
        "SF204",
        "the rank or the dtype is not what the annotation says",
        "error",
        """
        wrong:
            def forward(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T"]:
                return x.mean(1, keepdim=True)

        right:
            def forward(self, x: Float[Tensor, "B T d"]) -> Float[Tensor, "B 1 d"]:
                return x.mean(1, keepdim=True)
        """,
    ),
    Rule(
        "SF401",
        "a target that could not be built",
        "note",
        """
        A file did not import, a constructor raised, or nobody knows its arguments. Name what builds the model.

        not built:
            class Net(nn.Module):
                def __init__(self, encoder: nn.Module): ...

        built, by this function beside it:
            def toy() -> Net:
                return Net(Encoder(d_model=32))
        """,
    ),
    Rule(
        "SF402",
        "a target that could not be run",
        "note",
        """
        Not for a shape's sake: inputs without an annotation, code that only runs on real data, a process that ended.

        not run:
            def forward(self, x): ...

        run:
            def forward(self, x: Float[Tensor, "B T d_model"]): ...
        """,
    ),
    Rule(
        "SF403",
        "a limit stopped the check",
        "warning",
        """
        What was found until then is reported. A longer limit, or sizes with numbers, leave nothing open.

        stopped:
            shapeflow check net.py:Net "B T d"

        finished:
            shapeflow check net.py:Net "B T=128 d" --limit 300
        """,
    ),
    Rule(
        "SF404",
        "an ignore comment that silences nothing",
        "warning",
        """
        What it was about is mended, or stands on another line.

        wrong:
            y = x.transpose(1, 2).reshape(b, t, d)           # shapeflow: ignore[SF301]

        right:
            y = x.transpose(1, 2).reshape(b, t, d)
        """,
    ),
)
