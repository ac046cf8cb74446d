"""Train a network for real in one process, with gradients as old as a regime says, until a target accuracy.

Staleness is a delay per parameter: its gradient is computed with the value that it had `delay` updates ago (its first
value while there are fewer) and applied to the newest.

    synchronous      0 everywhere
    asynchronous     s everywhere: s + 1 workers in turn, each pulls after its own push
    stashing         of p stages, stage k has p - 1 - k, in forward and backward alike: a stage stashes the weights of
                     its forward pass, and k' = p - 1 - k later stages' mini-batches are in flight behind it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn

from simulator.convergence.curves import Method, Regime
from simulator.convergence.noise_scale import GradientNoise, estimated
from traces.capture.momentum_sgd import optimizer
from traces.convergence.datasets import Dataset
from traces.zoo.networks import Network

LOCAL_BATCHES = 16
"""Gradients that an estimate of the noise compares, each over 16 samples."""
LOCAL_SIZE = 16


MOMENTUM_OF: dict[Method, float] = {"synchronous": 0.9, "asynchronous": 0.0, "stashing": 0.0}
"""Old gradients are a momentum of their own (Mitliagkas et al., arXiv 1605.09774), and diverge with more of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is trained, beside regime and seed: cross entropy, by SGD.

    Accuracy is taken at the first update after every `every` samples; after `most_samples` a training gives up.
    """

    network: Network
    dataset: Dataset
    target: float
    every: int = 512
    most_samples: int = 128_000


def train_stale(
    recipe: Recipe, regime: Regime, *, learning_rate: float, seed: int, most_samples: int | None = None
) -> Iterator[tuple[int, float, nn.Module]]:
    """(samples trained on, accuracy from 0 to 1, the network itself), each time that the accuracy is taken.

    From before the first update until the target is reached, or `most_samples` (by default the recipe's), or a loss
    that is not finite.
    """
    model = recipe.network.built(seed)
    descent = optimizer(model.parameters(), learning_rate, MOMENTUM_OF[regime.method])
    versions = Versions(model, regime)
    accuracy, seen, asked = recipe.dataset.accuracy(model), 0, recipe.every
    yield seen, accuracy, model
    for samples, classes in recipe.dataset.batches(regime.batch_size, seed):
        versions.go_back()
        descent.zero_grad()
        loss = nn.functional.cross_entropy(model(samples), classes)
        loss.backward()  # type: ignore[no-untyped-call]
        versions.return_to_newest()
        descent.step()
        versions.keep()
        seen += regime.batch_size
        if seen >= asked:
            asked = seen - seen % recipe.every + recipe.every
            accuracy = recipe.dataset.accuracy(model)
            yield seen, accuracy, model
            if accuracy >= recipe.target or seen >= (most_samples or recipe.most_samples) or not loss.isfinite():
                return


class Versions:
    """The values that parameters had in the last updates, as many as their delays ask for."""

    def __init__(self, model: nn.Module, regime: Regime) -> None:
        self._kept: list[tuple[nn.Parameter, Tensor, deque[Tensor]]] = []
        for parameter, delay in delays(model, regime):
            if delay:
                self._kept.append((parameter, parameter.data, deque([parameter.data.clone()], maxlen=delay + 1)))

    def go_back(self) -> None:
        """Give every parameter the value, some updates old, that its gradient is to be computed with."""
        for parameter, _, values in self._kept:
            parameter.data = values[0]

    def return_to_newest(self) -> None:
        for parameter, newest, _ in self._kept:
            parameter.data = newest

    def keep(self) -> None:
        """Keep the newest values as one version more."""
        for _, newest, values in self._kept:
            values.append(newest.clone())


def delays(model: nn.Module, regime: Regime) -> Iterator[tuple[nn.Parameter, int]]:
    """Each parameter with its delay in updates; a pipeline's stages are equal numbers of operators, in order."""
    operators = [module for module in model.modules() if not list(module.children())]
    for position, operator in enumerate(operators):
        stage = (regime.staleness + 1) * position // len(operators)
        delay = regime.staleness - (stage if regime.method == "stashing" else 0)
        for parameter in operator.parameters():
            yield parameter, delay


def noises(recipe: Recipe, regime: Regime, *, learning_rate: float, seed: int) -> tuple[GradientNoise, ...]:
    """The gradient noise along one training, each time that its accuracy is taken; of samples in another order.

    Two-batch estimator of McCandlish et al., arXiv 1812.06162, appendix A.1.
    """
    batches = recipe.dataset.batches(LOCAL_SIZE, seed + 1)
    estimates = []
    for seen, _, model in train_stale(recipe, regime, learning_rate=learning_rate, seed=seed):
        local = [_gradient(model, *batch) for batch in islice(batches, LOCAL_BATCHES)]
        squares = [float(gradient @ gradient) for gradient in local]
        whole = torch.stack(local).mean(0)  # (batches, elements) -> (elements,)
        squared_norm, variance = estimated([LOCAL_SIZE] * LOCAL_BATCHES, squares, float(whole @ whole))
        estimates.append(GradientNoise(samples=seen, squared_norm=squared_norm, variance=variance))
    return tuple(estimates)


def _gradient(model: nn.Module, samples: Tensor, classes: Tensor) -> Tensor:
    """All parameters' gradients of the mean loss, as one row of shape (elements,)."""
    loss = nn.functional.cross_entropy(model(samples), classes)
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(model.parameters()))])  # (elements,)
