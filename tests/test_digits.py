"""A hypergraph plan trains a real network on real images as well as one process does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; make test installs it")

import torch
from plans import planned
from sklearn.datasets import load_digits
from small_networks import switched
from tiny_networks import profile_of
from torch import Tensor, nn
from training import descend, in_threads

from benchmarks.studies.whole_parameters import whole_parameters
from traces.runs.executor.run_setup import Script
from traces.runs.executor.worker import Worker
from traces.zoo.networks import Network

BATCH, TRAINED, EPOCHS = 60, 1380, 5


def reader_of_digits() -> nn.Module:
    """Two convolutions and two linear layers for 8 x 8 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(24 * 4 * 4, 48), nn.ReLU(), nn.Linear(48, 10)),
    )


def digits() -> tuple[Tensor, Tensor]:
    """1797 grey images of handwritten digits, from 0 to 1, and what they show; writers are mixed."""
    dataset = load_digits()
    order = torch.randperm(len(dataset.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(dataset.images / 16).unsqueeze(1)[order], torch.tensor(dataset.target)[order]


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    images, shown = digits()
    for _ in range(EPOCHS):
        for first in range(0, TRAINED, BATCH):
            yield images[first : first + BATCH], shown[first : first + BATCH]


def accuracy(model: nn.Module) -> float:
    """Of the images that were not trained on."""
    images, shown = digits()
    with torch.no_grad():
        return float((model(images[TRAINED:]).argmax(1) == shown[TRAINED:]).double().mean())


def trained_alone(seed: int, learning_rate: float) -> tuple[nn.Module, float]:
    """The network after all batches in one process, and the loss of the last."""
    torch.manual_seed(seed)
    model = reader_of_digits().double()
    *_, loss = descend(model, batches(), learning_rate)
    return model, loss


def test_a_hypergraph_plan_learns_to_read_digits() -> None:
    network, cluster = Network(build=reader_of_digits, input_shape=(1, 8, 8)), switched([1.0] * 3)
    profile = profile_of(network, BATCH)
    plan = planned(
        "hypergraph", profile, cluster, batch_size=BATCH, grid=(4, 2), imbalance=0.1, others=False, effort=0.01
    )
    script = Script(
        profile=profile, cluster=cluster, plan=plan, network=network, dtype="float64", learning_rate=0.1, seed=1
    )

    def work(worker: Worker) -> tuple[float, dict[tuple[int, int], dict[str, Tensor]]]:
        losses = [worker.step(*batch).loss for batch in batches()]
        return losses[-1], {key: dict(slot) for key, slot in worker.shards.parameters.items()}

    ranks = in_threads(script, work)
    model = reader_of_digits().double()
    model.load_state_dict(whole_parameters(script, [slots for _, slots in ranks]))
    expected, loss = trained_alone(script.seed, script.learning_rate)
    assert len(plan.devices) == 3 and script.graph.is_transfer.sum() > 3
    assert sum(part for part, _ in ranks) == pytest.approx(loss, rel=1e-6)
    assert accuracy(model) == accuracy(expected) > 0.95
