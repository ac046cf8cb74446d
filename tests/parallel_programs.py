"""What the ranks of the tests of torch's own parallelisms do, and the networks that they train."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from benchmarks.parallel_runtimes import fsdp, tensor_parallel
from benchmarks.parallel_runtimes.tensor_parallel import Split
from simulator import files
from traces.calibrate import runtime_overheads
from traces.capture.fx_steps import Trained
from traces.lab.rank import Rank
from traces.runs.torch_runtimes.measured_steps import build, samples
from traces.runs.torch_runtimes.stage_modules import Stage
from traces.zoo.networks import Decoder, Network, load

SENTENCES = Network(
    build=lambda: Decoder(vocabulary=40, context=8, width=16, depth=2, heads=4), input_shape=(8,), vocabulary=40
)


def perceptron(width: int) -> nn.Module:
    """Three linear layers, 11 x width^2 + 6 x width parameters, which 2 to 4 ranks share evenly."""
    return nn.Sequential(
        nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width)
    )


PERCEPTRON = Network(build=lambda: perceptron(12), input_shape=(12,))
WIDE = Network(build=lambda: perceptron(192), input_shape=(192,))


class MeanSquare(nn.Module):
    """A loss without targets: the mean over samples of the mean square of their scores."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.square().mean()


def gradient_errors(rank: Rank, batch_size: int, runs: Sequence[dict[str, Any]]) -> list[float]:
    """By how much each run's gradients differ from those of one device, as a share of the largest.

    A run has a model, and `settings` of FSDP2 or `splits` of tensor parallelism with `recomputed`.
    """
    return [_fsdp(rank, batch_size, **run) if "settings" in run else _split(rank, batch_size, **run) for run in runs]


def _fsdp(rank: Rank, batch_size: int, model: str, settings: dict[str, Any]) -> float:
    sharding = fsdp.FsdpSettings(**settings)
    trained, data = _trained(model), _data(model, batch_size)
    fsdp.shard(trained, rank.ranks, sharding)
    own = data.tensor_split(rank.ranks)[rank.number]
    fsdp.accumulate(trained, own.tensor_split(sharding.microbatches), batch_size / rank.ranks, sharding.reduce_once)
    return _error(trained, model, data)


def _split(
    rank: Rank, batch_size: int, model: str, splits: Mapping[str, Split], recomputed: Sequence[str] = ()
) -> float:
    trained, data = _trained(model), _data(model, batch_size)
    tensor_parallel.split_layers(trained, rank.ranks, splits, recomputed)
    trained(data).backward()
    return _error(trained, model, data)


def volumes(rank: Rank, runs: Sequence[dict[str, Any]]) -> list[float | None]:
    """The payload that this rank sends per step of each run, which has the arguments of one of the runtimes."""
    runtimes = ((fsdp if "settings" in run else tensor_parallel).train_rank(rank, **run, steps=2) for run in runs)
    return [result["sent_bytes"] for result in runtimes]


def _trained(model: str) -> Trained:
    trained = build(load(model)).double()
    trained.loss = MeanSquare()  # type: ignore[assignment]
    return trained


def _data(model: str, batch_size: int) -> Tensor:
    data = samples(load(model), batch_size, seed=5)
    return data.double() if data.is_floating_point() else data


def _error(trained: Trained, model: str, data: Tensor) -> float:
    alone = _trained(model)
    alone(data).backward()
    expected = {name: parameter.grad for name, parameter in alone.named_parameters()}
    largest = max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None)
    errors = [_whole(p.grad) - expected[name] for name, p in trained.named_parameters()]  # type: ignore[operator]
    return max(float(error.abs().max()) for error in errors) / largest


def _whole(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


class Bottleneck(nn.Module):
    """A linear layer to four times the width, tanh, and one back."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide, self.tanh, self.narrow = nn.Linear(width, 4 * width), nn.Tanh(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.tanh(self.wide(x)))  # type: ignore[no-any-return]


def pass_cost(rank: Rank, path: str, posting_s: float, repeats: int) -> tuple[float, float]:
    """The cost of a pass in a pipeline where posting each message takes `posting_s` of the processor."""

    def posted(messages: list[dist.P2POp]) -> list[dist.P2POp]:
        end_s = time.thread_time() + posting_s * bool(messages)
        while time.thread_time() < end_s:
            pass
        return messages

    class Slow(Stage):
        def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
            return posted(super().get_fwd_send_ops(fwd_chunk_id))

        def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
            return posted(super().get_bwd_send_ops(bwd_chunk_id))

    runtime_overheads.Stage, runtime_overheads.WARMUP, runtime_overheads.MICROBATCHES = Slow, 1, 4  # type: ignore[misc]
    return runtime_overheads.pass_cost(files.read_profile(path), rank.number, repeats=repeats)
