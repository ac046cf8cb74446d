"""Measure convergence: train for real in many regimes, with several seeds, and keep every curve.

for each regime: the learning rate that reaches the target soonest with a seed of its own, then a trial per seed
gradient noise along one training at the middle batch size

A training runs in one process, with gradients as old as its regime says, until a target accuracy. Staleness is a delay
per parameter: its gradient is computed with the value that it had `delay` updates ago (its first value while there are
fewer) and applied to the newest.

    synchronous      0 everywhere
    asynchronous     s everywhere: s + 1 workers in turn, each pulls after its own push
    stashing         of p stages, stage k has p - 1 - k, in forward and backward alike: a stage stashes the weights of
                     its forward pass, and k' = p - 1 - k later stages' mini-batches are in flight behind it
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

import torch
from torch import Tensor, nn

from simulator.convergence.curves import Curves, Method, Regime, Trial
from simulator.convergence.noise_scale import GradientNoise, estimated
from simulator.errors import require
from traces.capture import machine_settings
from traces.capture.momentum_sgd import optimizer
from traces.convergence import datasets
from traces.convergence.datasets import Dataset
from traces.zoo.networks import Network, load

LOCAL_BATCHES = 16
"""Gradients that an estimate of the noise compares, each over 16 samples."""
LOCAL_SIZE = 16


MOMENTUM_OF: dict[Method, float] = {"synchronous": 0.9, "asynchronous": 0.0, "stashing": 0.0}
"""Old gradients are a momentum of their own (Mitliagkas et al., arXiv 1605.09774), and diverge with more of it."""
FIRST_LEARNING_RATE: dict[Method, float] = {"synchronous": 0.02, "asynchronous": 0.1, "stashing": 0.1}
"""Where tuning begins, in the regime with the smallest batch or the least staleness of each method."""
TUNING_SEED = 1000
"""No trial has it, so that no learning rate was chosen for the luck of a trial."""


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


def converge(
    model: str,
    dataset: str,
    *,
    batch_sizes: Sequence[int],
    target: float,
    staleness: Sequence[int] = (),
    stale_batch_size: int = 64,
    seeds: int = 5,
    epochs: int = 100,
    command: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> Curves:
    """Train `model` to accuracy `target` at every batch size, and stale at one batch size in both ways.

    staleness: ages of gradients in updates, for asynchronous parameter servers and for PipeDream's weight versions.
    epochs: after which a training gives up. say: called with a line about every regime that is done. Raises
    UnknownNameError for an unknown name, InputError for a network of other inputs than the data set's, a batch larger
    than the data set, or gradients older than a training has updates.
    """
    require(0 < target < 1, "target", target, "it is an accuracy between 0 and 1")
    require(seeds >= 2, "seeds", seeds, "at least 2 show a spread")
    network, data = load(model), datasets.load(dataset)
    recipe = Recipe(network=network, dataset=data, target=target, most_samples=epochs * len(data.classes))
    _check_fits(model, recipe, (*batch_sizes, stale_batch_size), max(staleness, default=0) * stale_batch_size)
    regimes = [Regime(batch_size=size) for size in sorted(set(batch_sizes))]
    middle = regimes[len(regimes) // 2]
    regimes += [
        Regime(batch_size=stale_batch_size, method=method, staleness=age)
        for method in ("asynchronous", "stashing")
        for age in sorted(set(staleness))
    ]
    trials, rates = list[Trial](), dict(FIRST_LEARNING_RATE)
    with machine_settings.settings():
        for regime in regimes:
            rate = rates[regime.method] = tuned(recipe, regime, rates[regime.method])
            trials += [trial(recipe, regime, rate, seed) for seed in range(seeds)]
            say(f"{regime}: learning rate {rate:g}, samples {_samples_to(trials[-seeds:], target)}")
        rate = next(each.learning_rate for each in trials if each.regime == middle)
        noise = noises(recipe, middle, learning_rate=rate, seed=0)
    return Curves(
        model=model,
        dataset=dataset,
        device=machine_settings.device_name(),
        target=target,
        software=machine_settings.software(),
        command=command,
        date=datetime.date.today().isoformat(),
        notes=f"SGD, rates tuned with seed {TUNING_SEED}; a training ends at the target or after {epochs} epochs "
        f"of {len(data.classes)} samples; accuracy on {len(data.held_classes)} others every {recipe.every} samples; "
        f"gradient noise at batch {middle.batch_size}",
        trials=tuple(trials),
        noise=noise,
    )


def _check_fits(model: str, recipe: Recipe, batch_sizes: Sequence[int], oldest: int) -> None:
    """Raise InputError where the data set cannot train the network. oldest: samples that a gradient may wait for."""
    data, reads = recipe.dataset, recipe.network.input_shape
    shape = tuple(data.samples.shape[1:])
    rule = f"the samples of {data.name} are {'x'.join(map(str, shape))}, and it reads {'x'.join(map(str, reads))}"
    require(reads == shape, "model", model, f"{rule}; name a network of such samples")
    largest, count = max(batch_sizes), len(data.classes)
    require(largest <= count, "batch_size", largest, f"{data.name} has {count:,} samples to train on")
    rule = f"older than all {recipe.most_samples:,} samples of a training; take less staleness or more epochs"
    require(oldest < recipe.most_samples, "staleness x stale_batch_size", oldest, rule)


def tuned(recipe: Recipe, regime: Regime, near: float) -> float:
    """Of learning rate `near`, its half and its double the one that reaches the target after the fewest samples.

    Where none does, the one with the best accuracy. A trial ends once it has taken more samples than the best so far.
    """
    best = (inf, 0.0, near)
    for rate in (near, near / 2, near * 2):
        most = recipe.most_samples if best[0] == inf else round(best[0])
        attempt = trial(recipe, regime, rate, TUNING_SEED, most)
        best = min(best, (attempt.samples_to(recipe.target), -attempt.best, rate))
    return best[2]


def trial(recipe: Recipe, regime: Regime, learning_rate: float, seed: int, most_samples: int | None = None) -> Trial:
    """One training until the target or `most_samples`, as `train_stale` makes it."""
    course = train_stale(recipe, regime, learning_rate=learning_rate, seed=seed, most_samples=most_samples)
    points = tuple((seen, accuracy) for seen, accuracy, _ in course)
    momentum = MOMENTUM_OF[regime.method]
    return Trial(regime=regime, learning_rate=learning_rate, momentum=momentum, seed=seed, points=points)


def _samples_to(trials: Sequence[Trial], target: float) -> str:
    counts = sorted(trial.samples_to(target) for trial in trials)
    return ", ".join("never" if count == inf else f"{count:,.0f}" for count in counts)
