"""torch.fx as capture uses it: which modules are whole, what they are called, and what their nodes call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn

from simulator.errors import InputError


class ModuleTracer(fx.Tracer):
    """Follows a network down to modules without submodules, and those of torch.nn."""

    def __init__(self) -> None:
        super().__init__()
        self._with_gradients = torch.is_grad_enabled()

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """As fx does it, which would forget that the network switched gradients off here."""
        if torch.is_grad_enabled() != self._with_gradients:
            raise InputError("it switches gradients off for a part of it")
        return super().create_node(*args, **kwargs)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return next(m.children(), None) is None or super().is_leaf_module(m, module_qualified_name)


class LayerNames:
    """Readable, unique layer names: the module's path, or the path of the module around a function."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, node: fx.Node) -> str:
        if node.op == "call_module":
            name = str(node.target)
        else:
            around = list(node.meta.get("nn_module_stack", {}))[-1:]
            called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", node.name)
            name = ".".join(part for part in (*around, called) if part)
        return self.unique(name)

    def unique(self, name: str) -> str:
        """A name, with a number behind it where it has been given before."""
        name = name.removeprefix("model.")
        self._seen[name] = self._seen.get(name, 0) + 1
        return name if self._seen[name] == 1 else f"{name}#{self._seen[name]}"


def call_of(root: nn.Module, modules: Mapping[str, nn.Module], node: fx.Node) -> Callable[..., Any]:
    """What a node of the traced graph calls."""
    target = node.target
    if callable(target):
        return target
    if node.op == "call_module":
        return modules[target]
    if node.op == "get_attr":
        return lambda: operator.attrgetter(target)(root)
    return lambda owner, *args, **kwargs: getattr(owner, target)(*args, **kwargs)
