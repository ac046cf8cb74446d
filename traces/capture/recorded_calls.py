"""A network's calls as they happen while it runs once on example data: any Python, any containers, no tracing.

Two hooks see everything: `nn.Module.__call__` the modules, a torch function mode the functions between them. Tensors
are told apart by identity, so that containers, keyword arguments and control flow need no rule of their own: what the
example made the network do is what is recorded.

    module without children, or of torch.nn     one call
    any other module                            what it calls
    a function that reads no data               a constant
    a module under activation checkpointing     one call, which runs again in its backward pass
    a module whose sizes or branches depend     one call, which decides again whenever it runs
    on what the network computed
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

from simulator.errors import InputError
from traces.capture.checkpointed_call import GENERATOR, CheckpointedCall
from traces.capture.fx_steps import Trained, tensors
from traces.zoo.own_network import Data, data_tensors

_OPENED = (
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.Transformer),
    *(nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoder, nn.TransformerDecoderLayer),
)
"""The modules of torch.nn that consist of others."""
NOTHING_TO_TRAIN = "model: its loss does not depend on any trainable parameter; there is nothing to train"
_LOOKS_AT_VALUES = {
    *("item", "tolist", "bool", "int", "float", "index", "nonzero", "argwhere", "masked_select", "unique"),
    *("unique_consecutive", "equal", "allclose", "bincount", "numpy", "is_nonzero", "histc"),
}
"""Functions whose result, or its size, depends on the values in a tensor."""


def recorded_calls(trained: Trained, data: Data) -> fx.Graph:
    """The calls of one forward pass over `data` as a graph, in the order in which they happened.

    Every node has in its meta "owner", the call of the module around it, as (path, number of the call); "trained",
    whether it depends on a parameter; of functions "pure", false where they change a tensor in place. Raises InputError
    where the network does not run.
    """
    as_one: set[type[nn.Module]] = set()
    while True:
        recording = _Recording(trained, as_one)
        try:
            return recording.run(data)
        except _AsOne as request:
            as_one.add(request.kind)


def name_of(function: Callable[..., Any]) -> str:
    """A function's name as people write it: without underscores, a property under its own."""
    name = str(getattr(function, "__name__", type(function).__name__))
    if name in ("__get__", "__set__"):
        name = str(getattr(getattr(function, "__self__", None), "__name__", name))
    stripped = name.strip("_")
    return stripped[1:] if stripped in ("radd", "rmul", "rsub", "rtruediv", "rpow", "rmatmul") else stripped


class _AsOne(BaseException):
    """Modules of a kind are to be recorded as one call; no user's `except Exception` may stop it."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


class _Recording(TorchFunctionMode):
    def __init__(self, trained: Trained, as_one: set[type[nn.Module]]) -> None:
        super().__init__()
        self._trained, self._as_one = trained, as_one
        self._paths = {module: path for path, module in trained.named_modules()}
        self.graph = fx.Graph()
        self._nodes: dict[int, tuple[Tensor, fx.Node]] = {}  # by id of the tensor, which is held meanwhile
        self._around: list[tuple[nn.Module, int]] = []
        self._calls = 0
        self._listening = self._checkpointed = False

    def run(self, data: Data) -> fx.Graph:
        for number, tensor in enumerate(data_tensors(data)):
            self._bind(tensor, self.graph.placeholder(f"input_{number}"))
        self._listening = True
        with _hooks(self), self:
            loss = self._trained(data)
        if id(loss) not in self._nodes or not loss.requires_grad:
            raise InputError(NOTHING_TO_TRAIN)
        self.graph.output(self._nodes[id(loss)][1])
        return self.graph

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if not self._listening:
            return func(*args, **options)
        return self._function(func, args, options)

    def _function(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        read = list(tensors((args, kwargs)))
        self._see_values(func, args, read)
        versions = [tensor._version for tensor in read]
        result = self._silently(func, *args, **kwargs)
        changed = [tensor for tensor, version in zip(read, versions, strict=True) if tensor._version != version]
        results = list(tensors(result))
        if not changed and (not results or all(any(each is tensor for tensor in read) for each in results)):
            return result  # a size, or a tensor as it was
        if not any(self._known(tensor) for tensor in read) and not any(each.requires_grad for each in results):
            return result  # a constant
        call = functools.partial(_changing, func) if changed and not results else func
        call = call if torch.is_grad_enabled() else torch.no_grad()(call)  # as it ran
        node = self._node("call_function", call, args, kwargs)
        node.meta.update(pure=not changed, function=name_of(func))
        self._bind_results(args[0] if changed and not results else result, node)
        return result

    def module(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        """A module is called: recorded as one call, or opened."""
        if not self._listening:
            return original(module, *args, **kwargs)
        if not self._checkpointed and not self._is_leaf(module):
            self._calls += 1
            self._around.append((module, self._calls))
            try:
                return original(module, *args, **kwargs)
            finally:
                self._around.pop()
        result = self._silently(original, module, *args, **kwargs)
        if self._checkpointed:
            node = self._node("call_function", CheckpointedCall(module), args, kwargs)
        else:
            node = self._node("call_module", self._paths.get(module, ""), args, kwargs)
        node.meta.update(path=self._paths.get(module, type(module).__name__), module=module)
        node.meta["trained"] |= any(p.requires_grad for p in module.parameters())
        self._bind_results(result, node)
        return result

    def autograd_function(self, kind: type, apply: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A function with a backward pass of its own is called."""
        if not self._listening:
            return apply(*args, **kwargs)
        named = functools.partial(apply)
        functools.update_wrapper(named, kind, updated=())
        return self._function(named, args, kwargs)

    @contextmanager
    def checkpointing(self, function: Any) -> Iterator[None]:
        """What runs meanwhile is under activation checkpointing.

        A module that checkpoints its own forward becomes one call, as it then does so by itself.
        """
        if self._listening and self._around and any(each is self._around[-1][0] for each in _bound_to(function)):
            self._ask_for_one_call()
        before, self._checkpointed = self._checkpointed, True
        try:
            yield
        finally:
            self._checkpointed = before

    def _is_leaf(self, module: nn.Module) -> bool:
        if module is self._trained or module is self._trained.model:
            return False
        of_torch = type(module).__module__.startswith("torch.nn") and not isinstance(module, _OPENED)
        bare = next(module.children(), None) is None or hasattr(module, "parametrizations")
        return bare or of_torch or type(module) in self._as_one

    def _silently(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._listening = False
        try:
            return call(*args, **kwargs)
        finally:
            self._listening = True

    def _see_values(self, func: Any, args: Any, read: list[Tensor]) -> None:
        """Where control flow or sizes depend on what the network computed, the module around becomes one call.

        The network itself cannot: there, the example decides.
        """
        name = name_of(func)
        by_mask = name in ("getitem", "setitem") and any(each.dtype in (torch.bool, torch.uint8) for each in read[1:])
        if not (name in _LOOKS_AT_VALUES or by_mask or (name == "where" and len(args) == 1)):
            return
        nodes = [self._nodes[id(tensor)][1] for tensor in read if id(tensor) in self._nodes]
        if any(node.meta["trained"] for node in nodes):
            self._ask_for_one_call()

    def _ask_for_one_call(self) -> None:
        inner = self._around[-1][0] if self._around else self._trained
        kinds = {type(self._trained), type(self._trained.model), nn.Sequential, *self._as_one}
        if type(inner) not in kinds:
            raise _AsOne(type(inner))

    def _known(self, tensor: Tensor) -> bool:
        return id(tensor) in self._nodes or isinstance(tensor, nn.Parameter)

    def _node(self, op: str, target: Any, args: Any, kwargs: Any) -> fx.Node:
        read = list(tensors((args, kwargs)))
        for tensor in read:
            if not self._known(tensor) and tensor.grad_fn is not None:
                self._ask_for_one_call()  # made by something that neither hook sees
        node = self.graph.create_node(op, target, self._nodes_in(args), self._nodes_in(kwargs), name="call")
        owner = self._around[-1] if self._around else (self._trained, 0)
        trained = any(isinstance(tensor, nn.Parameter) and tensor.requires_grad for tensor in read)
        node.meta["trained"] = trained or any(each.meta["trained"] for each in node.all_input_nodes)
        node.meta["owner"] = (self._paths.get(owner[0], ""), owner[1])
        return node

    def _nodes_in(self, item: Any) -> Any:
        """Arguments with the nodes in place of the tensors that they made; parameters and constants stay themselves."""
        if isinstance(item, Tensor):
            return self._nodes[id(item)][1] if id(item) in self._nodes else item
        if isinstance(item, Mapping):
            return {key: self._nodes_in(part) for key, part in item.items()}
        if isinstance(item, slice):
            return slice(*(self._nodes_in(part) for part in (item.start, item.stop, item.step)))
        if isinstance(item, tuple | list):
            parts = [self._nodes_in(part) for part in item]
            return parts if isinstance(item, list) else tuple(parts)
        return item

    def _bind(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta.setdefault("trained", False)
        self._nodes[id(tensor)] = (tensor, node)

    def _bind_results(self, result: Any, node: fx.Node) -> None:
        """Tie the tensors of a result to the node, those in containers to nodes that pick them."""
        if isinstance(result, Tensor):
            self._bind(result, node)
            return
        listed = result if isinstance(result, tuple | list) else ()
        for key, part in result.items() if isinstance(result, Mapping) else enumerate(listed):
            if next(tensors(part), None) is None:
                continue
            picked = self.graph.create_node("call_function", operator.getitem, (node, key), name="pick")
            picked.meta.update(node.meta, pick=True)
            self._bind_results(part, picked)


def _bound_to(function: Any) -> tuple[Any, ...]:
    """What a method or a partial function is bound to."""
    if isinstance(function, functools.partial):
        return (*function.args[:1], *_bound_to(function.func))
    return (getattr(function, "__self__", None),)


def _changing(func: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that changes its first argument and returns nothing, as one that returns it."""
    func(first, *args, **kwargs)
    return first


@contextmanager
def _hooks(recording: _Recording) -> Iterator[None]:
    """While it lasts, `recording` sees modules, functions with a backward pass of their own, and checkpointing."""
    call, apply = nn.Module.__call__, torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return recording.module(call, module, args, kwargs)

    def applied(kind: type, *args: Any, **kwargs: Any) -> Any:
        if kind is checkpoint.CheckpointFunction:
            with recording.checkpointing(args[0]):
                return args[0](*args[2:])
        return recording.autograd_function(kind, functools.partial(apply, kind), args, kwargs)

    def generated(function: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
        with recording.checkpointing(function):
            yield

    with (
        mock.patch.object(nn.Module, "__call__", called),
        mock.patch.object(torch.autograd.Function, "apply", classmethod(applied)),
        mock.patch.object(checkpoint, GENERATOR, generated),
    ):
        yield
