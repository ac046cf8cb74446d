"""Data-parallel training whose process group can change between two steps: one flat state to send and to store.

    state   parameters | momentum | step          (2 P + 1,)   the network's P parameters are views of it
    sums    gradients | loss | membership flag    (P + 2,)     what one all-reduce adds up over the ranks

The samples of a step depend on its number alone, and gradients are weighted by sample: whatever devices there are, the
losses are those of one device. Rank 0 sets the membership flag when the group is to change, and all read it after the
same step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from simulator.lowering.exchange.shard_regions import split
from traces.capture.momentum_sgd import descend
from traces.zoo.networks import load


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What is trained: `samples` random images of separable classes, `batch_size` of them a step over all ranks."""

    model: str
    batch_size: int
    samples: int = 1024
    learning_rate: float = 0.001
    momentum: float = 0.9
    seed: int = 0


def samples_of(training: TrainingJob, step: int) -> list[int]:
    """The numbers of the samples of a step: each epoch is a permutation, of which whole batches are used."""
    per_epoch = training.samples // training.batch_size
    epoch, batch = divmod(step, per_epoch)
    order = np.random.default_rng((training.seed, epoch)).permutation(training.samples)
    samples: list[int] = order[batch * training.batch_size : (batch + 1) * training.batch_size].tolist()
    return samples


def even_shares(batch_size: int, ranks: int) -> tuple[int, ...]:
    """Samples of each of `ranks` ranks, as equal as whole numbers are."""
    return tuple(last - first for first, last in split(batch_size, ranks)) if ranks else ()


class ElasticWorker:
    """One rank's replica of the network and its training state, and its process group, which may change.

    compute_s: what the passes of the last step took.
    """

    def __init__(self, training: TrainingJob) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(training.seed)
        self.training = training
        network = load(training.model)
        self._model = network.build()
        self._data, self._targets = _images(training, network.input_shape)
        parameters = list(self._model.parameters())
        self._count = sum(parameter.numel() for parameter in parameters)
        self.state = torch.zeros(2 * self._count + 1)  # (parameters | momentum | step,)
        self._sums = torch.zeros(self._count + 2)  # (gradients | loss | membership flag,)
        _share_storage(parameters, self.state[: self._count], self._sums[: self._count])
        self._group: Any = None
        self._rank, self.compute_s = 0, 0.0
        self._shares: tuple[int, ...] = (training.batch_size,)

    @property
    def step_number(self) -> int:
        """The step that comes next."""
        return int(self.state[-1])

    def join(self, group: Any, rank: int, shares: Sequence[int]) -> None:
        """Train in a process group, None for one rank alone; rank r computes shares[r] samples of each step."""
        self._group, self._rank, self._shares = group, rank, tuple(shares)

    def leave(self) -> None:
        """Take the process group down."""
        self._group = None

    def own_samples(self) -> list[int]:
        """The numbers of this rank's samples of the step that comes next."""
        edges = list(pairwise(accumulate(self._shares, initial=0)))
        return samples_of(self.training, self.step_number)[slice(*edges[self._rank])]

    def step(self, changes: bool = False) -> tuple[float, bool]:
        """One step: the mean loss over the whole batch, and whether some rank said that the group changes after it.

        Raises RuntimeError if a rank is lost.
        """
        began_s = time.perf_counter()
        samples = self.own_samples()
        self._sums.zero_()
        scores = self._model(self._data[samples])
        loss = nn.functional.cross_entropy(scores, self._targets[samples], reduction="sum") / self.training.batch_size
        loss.backward()  # type: ignore[no-untyped-call]
        self._sums[-2], self._sums[-1] = loss.detach(), changes
        self.compute_s = time.perf_counter() - began_s
        if self._group is not None:
            self._group.allreduce([self._sums]).wait()
        parameters, momenta = self.state[: self._count], self.state[self._count : -1]
        gradients = self._sums[: self._count]
        descend([parameters], [gradients], [momenta], self.training.learning_rate, self.training.momentum)
        self.state[-1] += 1
        return float(self._sums[-2]), bool(self._sums[-1] > 0)

    def move_state(self, messages: Sequence[Sequence[int]]) -> None:
        """Send and receive the state along (source, target) ranks, in order."""
        for source, target in messages:
            if source == self._rank:
                self._group.send([self.state], target, 0).wait()
            elif target == self._rank:
                self._group.recv([self.state], source, 0).wait()

    def agree(self) -> None:
        """Take the state of the rank that is ahead: one that ended a step in which the others lost their peer."""
        if self._group is None:
            return
        steps = torch.zeros(len(self._shares))  # (ranks,)
        steps[self._rank] = self.state[-1]
        self._group.allreduce([steps]).wait()
        if steps.min() < steps.max():
            options = dist.BroadcastOptions()
            options.rootRank = int(steps.argmax())
            self._group.broadcast([self.state], options).wait()


def group_over(store: Path, rank: int, ranks: int, timeout_s: float) -> Any:
    """A process group of the ranks that open `store`, None for one; timeout_s: after which a collective fails."""
    if ranks == 1:
        return None
    file_store = dist.FileStore(str(store), ranks)  # type: ignore[attr-defined]
    return dist.ProcessGroupGloo(file_store, rank, ranks, timedelta(seconds=timeout_s))


def write_state(path: Path, state: Tensor) -> None:
    """Write a checkpoint, float32 of shape (2 P + 1,) without a header; it is on the disk when this returns."""
    with open(path, "wb") as file:
        state.numpy().tofile(file)
        file.flush()
        os.fsync(file.fileno())


def read_state(path: Path, state: Tensor) -> None:
    """Read a checkpoint into `state`, (2 P + 1,)."""
    state.copy_(torch.from_numpy(np.fromfile(path, dtype=np.float32)))


def _images(training: TrainingJob, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Noise around one picture per class, of shape (samples, *shape), and the classes, of shape (samples,)."""
    source = torch.Generator().manual_seed(training.seed)
    pictures = torch.randn(10, *shape, generator=source)  # (classes, channels, height, width)
    targets = torch.randint(10, (training.samples,), generator=source)
    return pictures[targets] + torch.randn(training.samples, *shape, generator=source), targets


def _share_storage(parameters: Sequence[nn.Parameter], values: Tensor, gradients: Tensor) -> None:
    """Make parameters and their gradients views of two flat tensors."""
    edges = pairwise(accumulate((parameter.numel() for parameter in parameters), initial=0))
    for parameter, (first, last) in zip(parameters, edges, strict=True):
        values[first:last] = parameter.detach().flatten()  # (parameter's elements,)
        parameter.data = values[first:last].view_as(parameter)
        parameter.grad = gradients[first:last].view_as(parameter)
