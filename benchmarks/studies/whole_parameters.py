"""A network's parameters as one, joined from what the ranks of an executed plan hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from traces.runs.executor.run_setup import Script
from traces.runs.executor.shard_operators import Slot, slot_boxes


def whole_parameters(script: Script, ranks: Sequence[Mapping[Slot, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """The network's parameters as "layer.name", joined from the slots that ranks hold; NaN is what others have."""
    parameters: dict[str, Tensor] = {}
    steps = script.build()
    for slot, tensors in (entry for slots in ranks for entry in slots.items()):
        name_of_layer, boxes = script.profile.layers[slot[0]].name, slot_boxes(script, steps, slot)
        module = steps.by_name[name_of_layer].module
        for name, parameter in module.named_parameters() if module is not None else ():
            whole = parameters.setdefault(f"{name_of_layer}.{name}", torch.full_like(parameter.detach(), torch.nan))
            part = whole[tuple(slice(low, high) for low, high in boxes[name])]  # a view of the slot's elements
            part.copy_(torch.where(tensors[name].isnan(), part, tensors[name].detach()))
    return parameters
