"""`sf.explain()`: an error that leaves a model says where in the model it arose, on which tensors, and why.

>>> with sf.explain():
...     loss = model(ids).mean()

Files, in the order in which an error passes through them: `context` catches it, `origin` finds the exception that it
all began with, `stack` the frames on the way there and the modules in them, `evaluate` the tensors on the failing
line, `bound` the dims that annotations gave names, `call` the operator, `refused` the annotation that did not hold,
`axis` the axis that disagrees, `tensor` a tensor as a line of text, and `note` writes it all down.
"""

from shapeflow.runtime.explain.context import explain

__all__ = ["explain"]
