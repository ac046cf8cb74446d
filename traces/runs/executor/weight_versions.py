"""Versions of a device's weights, where a schedule stashes them: a pass runs with those of its mini-batch.

    version         0     1     2     3        after so many updates of the step
    mini-batch      0 1   2     3     4        of two versions: forward and backward, whatever is updated between them

A device of d versions runs mini-batch b with the version after update b - d (PipeDream: Narayanan et al., SOSP 2019,
section 3.3, d stages from here to the last; PipeDream-2BW: ICML 2021, section 3.1, d = 2).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from simulator.lowering.sharded_model import ShardedModel
from simulator.lowering.tasks.weight_stashing import weight_versions


def versions_on(model: ShardedModel, rank: int) -> int:
    """How many versions of its weights device `rank` has, which updates some under a schedule that stashes them."""
    stage = next(i for i, layers in enumerate(model.stages) if rank in model.placements[layers[0]].device_set)
    return weight_versions(model, stage)


class WeightVersions:
    """`count` versions of `tensors`; what a tensor holds is one of them, and an update changes none of the others.

    Autograd does not count a tensor's change to another version: what it has kept of a parameter for the backward pass
    is either the tensor, which `use` sets back, or values of the version itself.
    """

    def __init__(self, tensors: Sequence[Tensor], count: int) -> None:
        self._tensors, self._count = tensors, count
        self.begin()

    def begin(self) -> None:
        """Begin a step with the newest version, which is the one in place."""
        self._updates = 0
        self._kept = {0: [tensor.data for tensor in self._tensors]}

    def use(self, minibatch: int) -> None:
        """Put in place what a mini-batch of the step runs with."""
        self._put(max(0, minibatch + 1 - self._count))

    def advance(self) -> None:
        """Put a copy of the newest version in place, to be updated, and drop what no mini-batch runs with any more."""
        newest = self._kept[self._updates]
        self._updates += 1
        self._kept[self._updates] = [values.clone() for values in newest]
        self._put(self._updates)
        for number in [number for number in self._kept if number < self._updates + 1 - self._count]:
            del self._kept[number]

    def _put(self, number: int) -> None:
        for tensor, values in zip(self._tensors, self._kept[number], strict=True):
            tensor.data = values
