"""Models by their names in torchvision, timm and transformers, always without pretrained weights.

torchvision:resnet50    timm:resnet18    transformers:GPT2Config    transformers:BertForMaskedLM
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from shapeflow.errors import TargetError
from shapeflow.importer import closest


def find(library: str, name: str) -> object:
    """What `library:name` names: something to call for a model. None when the library is none of the three."""
    finders = {"torchvision": _find_torchvision, "timm": _find_timm, "transformers": _find_transformers}
    if library not in finders:
        return None
    try:
        package = importlib.import_module(library)
    except ImportError as error:
        raise TargetError(f"{library} does not import ({error}); to install it: pip install {library}") from error
    return finders[library](package, name)


def _find_torchvision(package: ModuleType, name: str) -> object:
    models = importlib.import_module(f"{package.__name__}.models")
    if name not in models.list_models():
        found = getattr(models, name, None)
        return found if isinstance(found, type) else _unknown("torchvision", name, models.list_models())
    builder = models.get_model_builder(name)
    # the backbone's weights would be downloaded by default, even when the model's own are not
    weights = [key for key in inspect.signature(builder).parameters if key in {"weights", "weights_backbone"}]
    return functools.partial(builder, **dict.fromkeys(weights))


def _find_timm(package: ModuleType, name: str) -> object:
    if not package.is_model(name):
        return _unknown("timm", name, package.list_models())
    return functools.partial(package.create_model, name)


def _find_transformers(package: ModuleType, name: str) -> object:
    try:
        found = getattr(package, name)
    except AttributeError:
        return _unknown("transformers", name, dir(package))
    if isinstance(found, type) and issubclass(found, package.PreTrainedModel):
        return functools.partial(_model_of_class, found)
    return builder_of(found) or found


def _unknown(library: str, name: str, names: list[str]) -> object:
    raise TargetError(f"{library} has no model called {name}{closest(name, names)}")


def builder_of(found: object) -> Callable[..., Any] | None:
    """What builds a model from a configuration class or a configuration of transformers; None for anything else."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return None
    if isinstance(found, transformers.PreTrainedConfig):
        return functools.partial(_model_of_config, found)
    if isinstance(found, type) and issubclass(found, transformers.PreTrainedConfig):
        return lambda **arguments: _model_of_config(_configure(found, arguments))
    return None


def _configure(kind: Any, arguments: dict[str, object]) -> Any:
    """A configuration with `arguments`, refusing names that it does not know: transformers keeps those silently."""
    known = {*dir(kind()), *kind.attribute_map}
    for name in arguments:
        if name not in known:
            raise TargetError(f"{kind.__name__} has no argument {name}{closest(name, known)}")
    return kind(**arguments)


def _model_of_class(kind: Any, **arguments: object) -> object:
    return kind(_configure(kind.config_class, arguments))


def _model_of_config(config: Any) -> object:
    """The language model where the configuration is one's, the bare model otherwise."""
    transformers = importlib.import_module("transformers")
    kind = type(config)
    if kind in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return transformers.AutoModelForSeq2SeqLM.from_config(config)
    is_encoder = kind in transformers.MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder
    if kind in transformers.MODEL_FOR_CAUSAL_LM_MAPPING and not is_encoder:
        return transformers.AutoModelForCausalLM.from_config(config)
    return transformers.AutoModel.from_config(config)
