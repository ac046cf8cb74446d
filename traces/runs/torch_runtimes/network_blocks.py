"""The modules of a network that torch's users name when they shard, split or recompute it, and its training data."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from simulator.errors import InputError, UnknownNameError
from traces.capture.fx_steps import Trained
from traces.capture.network_inputs import draw
from traces.zoo.networks import Network


def build(network: Network, seed: int = 0) -> Trained:
    """The network and its loss in training mode; every rank that asks with one seed has equal parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Trained(network.build()).train()


def samples(network: Network, count: int, seed: int = 0) -> Tensor:
    """Random data of shape (count, *input shape), of a network that reads one tensor. Raises InputError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = draw(network, count, torch.device("cpu"), torch.float32)
    if not isinstance(data, Tensor):
        raise InputError("model: torch's runtimes run networks of one input tensor here; this one reads several")
    return data


def block_names(model: nn.Module) -> list[str]:
    """What users wrap one by one: a network's repeated composite modules, else the layers that hold parameters.

    A composite module is an element with modules of its own in a Sequential or ModuleList, as a transformer's block is.
    """
    blocks = [
        f"{name}.{child}" if name else child
        for name, module in model.named_modules()
        if isinstance(module, (nn.Sequential, nn.ModuleList))
        for child, part in module.named_children()
        if not isinstance(part, (nn.Sequential, nn.ModuleList)) and next(part.children(), None) is not None
    ]
    return blocks or [name for name, module in model.named_modules() if name and module._parameters]


def modules_named(model: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """The modules at these paths. Raises UnknownNameError for an absent path, InputError for one that stands twice."""
    known = dict(model.named_modules())
    for name in names:
        if name not in known:
            raise UnknownNameError.of("module", name, known)
    if len(set(names)) < len(names):
        raise InputError(f"modules are {', '.join(names)}: each is named once")
    return [known[name] for name in names]
