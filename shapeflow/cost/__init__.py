"""What a model costs: parameters so far.

>>> params(model).total
124439808
"""

from shapeflow.cost.params import ParamReport, params
from shapeflow.cost.row import ParamRow

__all__ = ["ParamReport", "ParamRow", "params"]
