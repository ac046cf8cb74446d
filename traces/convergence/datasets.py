"""Data sets small enough to train on until a target accuracy, in seconds on one core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simulator.errors import needing, require_name

HELD_OUT = 517
"""Of the 1797 digits, those that nobody trains on; the rest are 1280."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Samples to train on and samples held out, of shape (samples, channels, height, width), each with its class."""

    name: str
    samples: Tensor
    classes: Tensor
    held_samples: Tensor
    held_classes: Tensor

    def batches(self, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches without end: (batch_size, channels, height, width) and (batch_size,). One seed gives one order of
        samples for every batch size: epoch after epoch, each drawn anew, and cut where batches end."""
        source = torch.Generator().manual_seed(seed)
        left = torch.empty(0, dtype=torch.int64)
        while True:
            while len(left) < batch_size:
                left = torch.cat([left, torch.randperm(len(self.classes), generator=source)])
            batch, left = left[:batch_size], left[batch_size:]
            yield self.samples[batch], self.classes[batch]

    @torch.no_grad()
    def accuracy(self, model: nn.Module) -> float:
        """The share of the held-out samples, from 0 to 1, of which `model` gives their class the highest score."""
        return float((model(self.held_samples).argmax(1) == self.held_classes).double().mean())


def load(name: str) -> Dataset:
    """The data set of that name. Raises UnknownNameError, or MissingExtraError for what is not installed."""
    require_name("dataset", name, DATASETS)
    return DATASETS[name]()


def digits() -> Dataset:
    """1797 grey 8x8 images of handwritten digits that come with scikit-learn, standardised; writers are mixed."""
    with needing("scikit-learn", "the digits", module="sklearn"):
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    bundle = load_digits()
    order = torch.randperm(len(bundle.target), generator=torch.Generator().manual_seed(0))
    samples = torch.tensor(bundle.images).unsqueeze(1)[order]  # (samples, channels, height, width)
    classes = torch.tensor(bundle.target)[order]  # (samples,)
    trained = samples[:-HELD_OUT]
    samples = ((samples - trained.mean()) / trained.std()).float()
    return Dataset(
        name="digits",
        samples=samples[:-HELD_OUT],
        classes=classes[:-HELD_OUT],
        held_samples=samples[-HELD_OUT:],
        held_classes=classes[-HELD_OUT:],
    )


DATASETS = {"digits": digits}
