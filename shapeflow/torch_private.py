"""Every private name of torch that shapeflow uses: a new torch breaks this file and no other.

Checked on torch 2.13, 2.14 and 2.15.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    in_kernel_invocation_manager,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = [
    "NO_FAKE_KERNEL",
    "OF_DTENSOR",
    "OF_TENSOR",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "FakeTensor",
    "GatheredGroup",
    "ShapeMode",
    "TorchDispatchMode",
    "aten_name",
    "bare_meta",
    "base_of",
    "class_of",
    "copy_fake",
    "demand",
    "fake_like",
    "fsdp_groups",
    "is_dtensor",
    "is_mesh",
    "is_scripted",
    "kernels_of_the_device",
    "local_of",
    "lstm_functions",
    "new_fake",
    "pad_packed",
    "quiet_logs",
    "ranks_of",
    "real_module",
    "rename_axes",
    "restrided",
    "running",
    "skip_frames",
    "spread",
    "spread_like",
    "storage_of",
    "tree_leaves",
    "waited",
    "without_modes",
]

NO_FAKE_KERNEL = (UnsupportedOperatorException, DataDependentOutputException, DynamicOutputShapeException)
"""What a fake tensor raises for an operator that it cannot run without values or without a kernel."""

COLLECTIVES = ("_c10d_functional", "c10d_functional", "c10d")
"""Namespaces of operators that ranks talk through."""

OF_TENSOR = "torch._tensor"
OF_DTENSOR = "torch.distributed.tensor._api"
"""Modules whose functions are methods of tensors."""

DisableTorchFunction = torch._C.DisableTorchFunction
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
demand = torch._check
"""Raise RuntimeError with the message of a function, unless a condition holds."""

ValueRule = Callable[..., Any]


class ShapeMode(FakeTensorMode):
    """A FakeTensorMode whose sizes are ours, and whose value-dependent operators go to `rules`.

    torch's own cache of fake operators reads sympy expressions, so it is off; the operator memo replaces it.
    """

    def __init__(self, rules: Mapping[Any, ValueRule]) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.cache_enabled = False
        self.static_shapes = False
        self.allow_meta = True
        self.rules = rules
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        self.on_collective: Callable[..., None] | None = None

    def attributes(self, device: torch.device) -> dict[str, Any]:
        """What a fake tensor on this device carries besides its sizes."""
        if device not in self._attributes:
            with without_modes():
                self._attributes[device] = dict(vars(FakeTensor(self, torch.empty((), device="meta"), device)))
        return self._attributes[device]

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = self.rules.get(func)
        if rule is not None:
            return rule(self, *args, **(kwargs or {}))
        result = super().dispatch(func, types, args, kwargs or {})
        if self.on_collective is not None and func.namespace in COLLECTIVES and result is not NotImplemented:
            self.on_collective(func, args, result)
        return result


@contextmanager
def running(mode: ShapeMode) -> Iterator[None]:
    """Run torch code on fake tensors with symbolic sizes."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.enter_context(mode)
        stack.enter_context(torch.no_grad())
        # without the python dispatcher F.interpolate with a symbolic size has no meta kernel
        stack.enter_context(enable_python_dispatcher())
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(_hashable_sizes())
        stack.enter_context(quiet_logs())
        yield


@contextmanager
def quiet_logs() -> Iterator[None]:
    """torch logs each failed fake operator at error level; the failure is reported by us."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _hashable_sizes() -> Iterator[None]:
    """Let models cache by shape (`lru_cache`, dict keys) and format sizes (`f"{T:03d}"`): torch's own cannot."""
    original = torch.SymInt.__hash__

    def hash_of(size: torch.SymInt) -> int:
        expr = getattr(size.node, "size", None)
        return original(size) if expr is None else hash(expr if expr.value is None else expr.value)

    def text_of(size: torch.SymInt, spec: str) -> str:
        return format(size.node.hint, spec) if spec and hasattr(size.node, "size") else str(size)

    torch.SymInt.__hash__ = hash_of  # type: ignore[method-assign]
    torch.SymInt.__format__ = text_of  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.SymInt.__hash__ = original  # type: ignore[method-assign]
        del torch.SymInt.__format__


@contextmanager
def without_modes() -> Iterator[None]:
    """Neither function modes nor dispatch modes see what is called: for real tensors, and for bare meta ones."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


def fake_like(mode: ShapeMode, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A fake of a real or meta tensor: same sizes, strides, dtype; a Parameter stays one."""
    with without_modes():
        if tensor.layout is torch.strided:
            meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        else:
            meta = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        fake = copy_fake(meta, mode.attributes(device), requires_grad=tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        fake._is_param = True  # type: ignore[attr-defined]  # what isinstance(fake, nn.Parameter) reads
    return fake


def bare_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A plain meta tensor of the same sizes and strides, to stand on."""
    with without_modes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def copy_fake(base: torch.Tensor, attributes: dict[str, Any], *, requires_grad: bool = False) -> torch.Tensor:
    """A fake tensor over another's or a meta tensor's storage, with a known fake's attributes.

    Four times as fast as building one.
    """
    with torch._C._DisableTorchDispatch():
        fake = torch.Tensor._make_subclass(  # type: ignore[attr-defined]
            FakeTensor, base, requires_grad, dispatch_device=True, device_for_backend_keys=attributes["_fake_device"]
        )
    vars(fake).update(attributes)
    return fake


def new_fake(like: torch.Tensor, sizes: Sequence[Any], *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What `like.new_empty(sizes)` gives for a fake tensor, in an eighth of the time."""
    fake: Any = like
    with without_modes():
        meta = torch.empty(sizes, dtype=dtype or like.dtype, device="meta")
    return copy_fake(meta, fake.fake_mode.attributes(fake.fake_device))


def rename_axes(mode: ShapeMode, tensor: torch.Tensor, sizes: Sequence[Any]) -> None:
    """Give a fake tensor equal sizes under other names, in place: whoever holds the tensor sees the names."""
    with torch._C.DisableTorchFunction(), in_kernel_invocation_manager(mode):
        tensor.as_strided_(sizes, tensor.stride(), tensor.storage_offset())


def restrided(tensor: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any]) -> torch.Tensor:
    """A view of a fake tensor's storage, from where it starts: what `as_strided` gives, in a quarter of the time."""
    fake: Any = tensor
    with torch._C.DisableTorchFunction(), in_kernel_invocation_manager(fake.fake_mode):
        view = tensor.as_strided(sizes, strides, tensor.storage_offset())
    return copy_fake(view, fake.fake_mode.attributes(fake.fake_device))


def kernels_of_the_device() -> Any:
    """Within it composite operators decompose as they do where the model runs, not as the Python dispatcher does."""
    return torch._C._DisablePythonDispatcher()


def skip_frames(function: Callable[..., Any], *, calls_users: bool) -> None:
    """Dynamo compiles no frame of this function for itself; inlined it may be.

    With `calls_users`, what the function calls is compiled as ever; without, neither is anything below it.
    """
    private: Any = torch._C
    frames: Any = private._dynamo.eval_frame  # what skip_code of torch._dynamo does, without its long import
    action = frames._FrameAction
    below = action.DEFAULT if calls_users else action.SKIP
    code: Any = function.__code__  # type: ignore[attr-defined]
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, below))


def lstm_functions() -> dict[str, Any]:
    """The recurrent operators as `nn.LSTM`, `nn.GRU` and `nn.RNN` call them."""
    return {name: getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


def pad_packed() -> Any:
    """The operator behind `pad_packed_sequence`."""
    return torch._VF._pad_packed_sequence


def is_scripted(module: object) -> bool:
    """Whether `module` is TorchScript: its code is no longer Python."""
    return isinstance(module, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def real_module(model: Any) -> Any:
    """The module inside wrappers that only change where or how it runs."""
    while True:
        if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            model = model.module
        elif type(model).__name__ == "OptimizedModule" and hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif hasattr(model, "_torchdynamo_orig_callable"):
            model = model._torchdynamo_orig_callable
        else:
            return model


def class_of(module: torch.nn.Module) -> type[torch.nn.Module]:
    """The class that somebody wrote: `fully_shard` puts one of its own in its place."""
    kind = type(module)
    return kind.__bases__[1] if hasattr(kind, "_get_fsdp_state") and len(kind.__bases__) > 1 else kind


# Tensors that are spread over ranks; torch.distributed is large, and only asked where somebody has imported it


def is_dtensor(value: object) -> bool:
    """Whether `value` is a `torch.distributed.tensor.DTensor`."""
    known = sys.modules.get("torch.distributed.tensor")
    return known is not None and isinstance(value, known.DTensor)


def local_of(tensor: Any) -> torch.Tensor:
    """What this rank holds of a DTensor."""
    with without_modes():
        return tensor._local_tensor


def spread(local: torch.Tensor, mesh: Any, placements: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """A DTensor of these sizes over what this rank holds of it."""
    from torch.distributed.tensor import DTensor

    strides = torch.empty(tuple(sizes), device="meta").stride()
    with torch._C.DisableTorchFunction():
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(sizes), stride=strides)


def spread_like(tensor: Any, local: torch.Tensor) -> torch.Tensor:
    """A DTensor spread as another, over another local tensor; a Parameter stays one."""
    made = spread(local, tensor.device_mesh, tensor.placements, tensor.shape)
    if isinstance(tensor, torch.nn.Parameter):
        made._is_param = True
    return made


def is_mesh(value: object) -> bool:
    """Whether `value` is a `DeviceMesh`: the tensor in it numbers ranks."""
    known = sys.modules.get("torch.distributed.device_mesh")
    return known is not None and isinstance(value, known.DeviceMesh)


def waited(value: Any) -> Any:
    """The tensor that a collective brings, where `value` is one that may still be on its way."""
    return value.wait() if type(value).__name__ == "AsyncCollectiveTensor" else value


def ranks_of(args: Sequence[Any]) -> int:
    """How many ranks take part in a collective with these arguments: the last text among them names the group."""
    from torch.distributed import distributed_c10d

    resolve: Any = distributed_c10d._resolve_process_group  # type: ignore[attr-defined]
    names = [each for each in args if isinstance(each, str)]
    return resolve(names[-1]).size() if names else 1


@dataclass(frozen=True, slots=True)
class GatheredGroup:
    """Parameters that `fully_shard` gathers together: the numbers of one rank with what pads them, dtype, ranks.

    `parameters` are pairs: a tensor that the module may hold, spread or gathered, and the spread one. They are
    gathered over `mesh_dims`.
    """

    parameters: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    numel: int
    dtype: torch.dtype
    ranks: int
    mesh_dims: frozenset[str]


def fsdp_groups(module: torch.nn.Module) -> list[GatheredGroup]:
    """The groups of parameters that a module gathers before it runs, by `torch.distributed.fsdp.fully_shard`."""
    # asked of the class: a module itself looks through all its parts before it says that it has none
    state = module._get_fsdp_state() if hasattr(type(module), "_get_fsdp_state") else None  # type: ignore[operator]
    found = []
    for group in [] if state is None else state._fsdp_param_groups:
        parameters = group.fsdp_params
        mesh = group.mesh_info.mesh
        policy = getattr(group, "mp_policy", None) or parameters[0].mp_policy  # the parameter's own from torch 2.15 on
        dtype = policy.param_dtype or parameters[0].sharded_param.dtype
        numel = sum(each.padded_sharded_param_size.numel() for each in parameters)
        tensors = [(each.sharded_param, each.sharded_param) for each in parameters]
        whole = [(getattr(each, "_unsharded_param", None), each.sharded_param) for each in parameters]
        tensors += [(held, kept) for held, kept in whole if held is not None]
        names = frozenset(mesh.mesh_dim_names or ())
        found.append(GatheredGroup(tuple(tensors), numel, dtype, group.mesh_info.shard_mesh_size, names))
    return found


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operator as its schema tells it: `kind` is `Tensor`, `Optional[List[int]]`, `number`, ..."""

    name: str
    kind: str
    default: Any
    by_name: bool


@cache
def overloads_of(name: str) -> tuple[tuple[Parameter, ...], ...]:
    """The parameters of each overload of torch's own operator of that name; none where there is no such operator."""
    packet = getattr(torch.ops.aten, name, None)
    names = [] if packet is None else [each for each in packet.overloads() if not each.endswith("out")]
    return tuple(tuple(map(_parameter, getattr(packet, each)._schema.arguments)) for each in names)


def _parameter(argument: Any) -> Parameter:
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    return Parameter(argument.name, str(argument.type), default, argument.kwarg_only)


@contextmanager
def checkpoints_seen(enter: Callable[[bool, Any], None], leave: Callable[[], None]) -> Iterator[None]:
    """Tell when a part of a forward under `torch.utils.checkpoint` begins and when it ends; at first whether it is
    reentrant, and its arguments.
    """
    from torch.utils import checkpoint

    names = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")
    name = next(each for each in names if hasattr(checkpoint, each))  # the former from torch 2.14 on
    generator, forward = getattr(checkpoint, name), checkpoint.CheckpointFunction.forward
    warn = checkpoint.check_backward_validity

    def seen(*args: Any, **kwargs: Any) -> Iterator[Any]:
        bound = inspect.signature(generator).bind(*args, **kwargs).arguments
        enter(False, (bound.get("args"), bound.get("kwargs")))
        try:
            yield from generator(*args, **kwargs)
        finally:
            leave()

    def reentrant(*args: Any) -> Any:
        enter(True, args[3:])  # after the context, the function, and whether random numbers are repeated
        try:
            return forward(*args)
        finally:
            leave()

    checkpoint.check_backward_validity = lambda inputs: None  # a trace has no gradients: no news
    setattr(checkpoint, name, seen)
    setattr(checkpoint.CheckpointFunction, "forward", staticmethod(reentrant))  # noqa: B010  pyright minds its signature
    try:
        yield
    finally:
        checkpoint.check_backward_validity = warn
        setattr(checkpoint, name, generator)
        setattr(checkpoint.CheckpointFunction, "forward", staticmethod(forward))  # noqa: B010


def storage_of(tensor: torch.Tensor) -> int:
    """What tells a storage from others, also where it has no memory; that of a strided tensor."""
    return tensor.untyped_storage()._cdata


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that this one is a view of."""
    return tensor._base if tensor._is_view() else None


def aten_name(function: Any) -> str:
    """`add` of the overload aten.add.Tensor; operators of Python have a name alone."""
    return function._opname if hasattr(function, "_opname") else function.name()
