"""The modules of a network that torch's users name when they shard, split or recompute it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from simulator.errors import InputError, UnknownNameError


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
