"""Real trainings with gradients of a chosen age, against recurrences written out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")
pytest.importorskip("sklearn", reason="scikit-learn is not installed; make test installs it")

import torch
from torch import Tensor, nn

from simulator import cli
from simulator.convergence.curve_files import CURVES, read_curves
from simulator.convergence.curves import Regime
from simulator.errors import InputError, UnknownNameError
from traces.convergence import datasets
from traces.convergence.curve_measurement import MOMENTUM_OF, Recipe, converge, delays, noises, train_stale
from traces.convergence.datasets import Dataset
from traces.zoo.networks import Network, load

torch.set_num_threads(1)  # operators this small only wait for each other's threads


class Line(nn.Module):
    """Scores of two classes, w x and 0: one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.weight * x, torch.zeros_like(x)], 1)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.load("digits")


@pytest.fixture
def line() -> Recipe:
    samples, classes = torch.tensor([[1.0], [-2.0], [0.5], [-1.0]]), torch.tensor([0, 1, 1, 0])
    parts = {"samples": samples, "classes": classes, "held_samples": samples, "held_classes": classes}
    network = Network(build=Line, input_shape=(1,))
    return Recipe(network=network, dataset=Dataset(name="line", **parts), target=0.99, every=1, most_samples=12)


def slope(weight: float, samples: Tensor, classes: Tensor) -> float:
    """The derivative of the mean cross entropy of `Line` by its weight, by hand."""
    x = samples[:, 0].double()
    return float(((torch.sigmoid(weight * x) - (classes == 0).double()) * x).mean())


def by_hand(recipe: Recipe, delay: int, rate: float, momentum: float, updates: int) -> Iterator[float]:
    """The weight after each update with gradients `delay` updates old."""
    weights, velocity = [0.5], 0.0
    for samples, classes in islice(recipe.dataset.batches(2, seed=3), updates):
        velocity = momentum * velocity + slope(weights[max(0, len(weights) - 1 - delay)], samples, classes)
        weights.append(weights[-1] - rate * velocity)
        yield weights[-1]


@pytest.mark.parametrize(
    ("regime", "delay"),
    [
        (Regime(batch_size=2), 0),
        (Regime(batch_size=2, method="asynchronous", staleness=1), 1),
        (Regime(batch_size=2, method="asynchronous", staleness=3), 3),
        (Regime(batch_size=2, method="stashing", staleness=2), 2),
    ],
    ids=str,
)
def test_an_update_uses_the_gradient_of_the_weight_so_many_updates_ago(
    line: Recipe, regime: Regime, delay: int
) -> None:
    trained = train_stale(line, regime, learning_rate=0.4, seed=3)
    weights = [next(model.parameters()).item() for *_, model in trained]
    assert weights[0] == 0.5 and len(weights) == 7
    assert weights[1:] == pytest.approx(list(by_hand(line, delay, 0.4, MOMENTUM_OF[regime.method], 6)), rel=1e-5)


def test_a_pipeline_delays_its_stages_one_less_each_and_servers_all_alike() -> None:
    chain = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(6)))
    stashing = Regime(batch_size=1, method="stashing", staleness=2)
    assert [delay for _, delay in delays(chain, stashing)] == [2, 2, 1, 1, 0, 0]
    served = Regime(batch_size=1, method="asynchronous", staleness=2)
    assert [delay for _, delay in delays(chain, served)] == [2] * 6


def test_the_digits_are_split_and_every_batch_size_reads_them_in_one_order(digits: Dataset) -> None:
    assert digits.samples.shape == (1280, 1, 8, 8) and digits.held_samples.shape == (517, 1, 8, 8)
    small = torch.cat([classes for _, classes in islice(digits.batches(100, seed=1), 16)])
    large = torch.cat([classes for _, classes in islice(digits.batches(400, seed=1), 4)])
    assert torch.equal(small, large)
    assert torch.equal(small[:1280].sort()[0], digits.classes.sort()[0])
    with pytest.raises(UnknownNameError):
        datasets.load("digit")


def test_the_noise_of_drawn_samples_is_their_variance(line: Recipe) -> None:
    """With rate 0 the weight stays, and |G|^2 and the variance of one sample's gradient are known."""
    samples, classes = line.dataset.samples, line.dataset.classes
    each = [slope(0.5, samples[i : i + 1], classes[i : i + 1]) for i in range(4)]
    mean = sum(each) / 4
    estimates = noises(replace(line, most_samples=2), Regime(batch_size=2), learning_rate=0.0, seed=0)
    assert [noise.samples for noise in estimates] == [0, 2]
    for noise in estimates:  # local batches of whole epochs hold every sample equally often: no noise at all
        assert noise.squared_norm == pytest.approx(mean**2, rel=1e-5) and noise.variance == pytest.approx(0, abs=1e-9)


def test_training_on_digits_repeats_itself_and_stops_at_the_target(digits: Dataset) -> None:
    recipe = Recipe(network=load("vgg_digits"), dataset=digits, target=0.6, every=128)
    regime = Regime(batch_size=32)
    first, second = ([point[:2] for point in train_stale(recipe, regime, learning_rate=0.02, seed=1)] for _ in range(2))
    assert first == second and first[-1][1] >= 0.6 > max(accuracy for _, accuracy in first[:-1])
    assert all(noise.variance > 0 for noise in noises(recipe, regime, learning_rate=0.02, seed=1))


def test_converge_tunes_measures_and_says_where_it_all_came_from() -> None:
    said: list[str] = []
    curves = converge(
        "vgg_digits", "digits", batch_sizes=(128,), staleness=(1,), stale_batch_size=128, target=0.4, seeds=2,
        epochs=1, command="as typed", say=said.append,
    )  # fmt: skip
    served = Regime(batch_size=128, method="asynchronous", staleness=1)
    assert list(curves.by_regime) == [Regime(batch_size=128), served, replace(served, method="stashing")]
    assert len(said) == 3
    assert all([trial.seed for trial in trials] == [0, 1] for trials in curves.by_regime.values())
    assert (
        curves.command == "as typed" and curves.software["torch"] and curves.device.endswith("1 thread") and curves.date
    )
    assert len(curves.noise) == len(curves.trials[0].points)
    with pytest.raises(InputError, match="at least 2"):
        converge("vgg_digits", "digits", batch_sizes=(64,), target=0.5, seeds=1)


def test_the_command_writes_a_file_that_reads_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "curves.json"
    argv = f"converge vgg_digits --batch-sizes 128 --target 0.3 --seeds 2 --epochs 1 --output {path}".split()
    assert cli.main(argv) == 0
    assert "2 trials" in capsys.readouterr().out
    assert read_curves(path).command == "shardscope " + " ".join(argv)
    assert cli.main(["converge", "vgg_digits", "--dataset", "letters", "--output", str(path)]) == 2


def test_what_cannot_be_measured_or_written_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["converge", "vgg_digits", "--output", str(tmp_path / "no" / "curves.json")]) == 2
    assert "is not there; name another" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SystemExit):
        cli.main(["converge", "vgg_digits", "--batch-sizes", "64..16", "--output", str(tmp_path / "curves.json")])
    assert "'64..16' is empty: write the smaller number first" in capsys.readouterr().err
    with pytest.raises(InputError, match="an accuracy between 0 and 1"):
        read_curves("vgg_digits").samples_to(97, Regime(batch_size=64))


@pytest.mark.parametrize("name", CURVES.names())
def test_stored_curves_are_whole_and_reach_their_target(name: str) -> None:
    curves = read_curves(name)
    assert curves.model == name and curves.command.startswith("shardscope converge") and curves.date and curves.noise
    sizes = [regime.batch_size for regime in curves.measured("synchronous")]
    samples = [curves.samples_to(curves.target, Regime(batch_size=size)).interval.median for size in sizes]
    assert sizes[0] <= 16 and sizes[-1] >= 1024 and samples[-1] > 2 * samples[0]
    ages = [regime.staleness for regime in (*curves.measured("asynchronous"), *curves.measured("stashing"))]
    assert ages == [1, 2, 4, 8] * 2
