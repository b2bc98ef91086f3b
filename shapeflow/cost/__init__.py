"""What a model costs: parameters so far.

>>> params(model).total
124439808
"""

from shapeflow.cost.params import ParamReport, ParamRow, params

__all__ = ["ParamReport", "ParamRow", "params"]
