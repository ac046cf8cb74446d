"""Networks of a few parameters that hold every kind of layer a shard can be of, and their profiles, untimed."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch import Tensor, nn

from simulator.workload import Profile
from traces.capture.fx_steps import Trained, trace
from traces.capture.layer_survey import survey
from traces.zoo.blocks import Add, Concat, Positions, QueryKeyValueAttention
from traces.zoo.networks import Network

BATCH = 6
torch.set_num_threads(1)  # operators this small only wait for each other's threads


class Mixed(nn.Module):
    """Convolutions (plain, grouped, depthwise, strided), batch norm, a residual, two branches, poolings, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.norm, self.relu = nn.BatchNorm2d(6), nn.ReLU(inplace=True)
        self.grouped = nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.depthwise = nn.Conv2d(6, 12, (3, 1), padding=(1, 0), groups=6, bias=False)
        self.point = nn.Conv2d(12, 6, 1)
        self.add = Add()
        self.wide, self.strided = nn.Conv2d(6, 5, 3, stride=2, padding=1), nn.Conv2d(6, 3, 3, stride=2, padding=1)
        self.join = Concat()
        self.smooth = nn.AvgPool2d(3, 1, 1)
        self.top = nn.MaxPool2d(2, 1)
        self.flatten = nn.Flatten()
        self.hidden, self.classes = nn.Linear(8 * 3 * 3, 7), nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        stem = self.relu(self.norm(self.stem(x)))
        kept = self.add(self.point(self.depthwise(self.grouped(stem))), stem)
        joined = self.join(self.wide(kept), self.strided(kept))
        flat = self.flatten(self.top(self.smooth(joined)))
        return self.classes(self.hidden(flat).tanh())  # type: ignore[no-any-return]


class Functional(nn.Module):
    """The same as people write it: functions, methods, in-place sums, poolings with odd borders, group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.Conv2d(6, 6, 3, padding=2, dilation=2)
        self.norm = nn.GroupNorm(3, 6)
        self.classes = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = torch.nn.functional.gelu(self.norm(self.down(x)))
        y += x
        y = torch.nn.functional.avg_pool2d(y, 3, stride=2, padding=1, count_include_pad=False)
        y = torch.nn.functional.max_pool2d(y - 2, 3, stride=2, ceil_mode=True)
        halves = torch.nn.functional.adaptive_avg_pool2d(y, (2, 1))
        wide = torch.cat([halves, torch.nn.functional.adaptive_max_pool2d(y, (2, 1))], 1)
        return self.classes(wide.view(wide.size(0), -1))  # type: ignore[no-any-return]


class Words(nn.Module):
    """Words in, the next word out: an embedding, a layer norm and linear layers at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(11, 6), nn.LayerNorm(6)
        self.hidden, self.activation, self.scores = nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 11)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.activation(self.hidden(self.norm(self.embedding(x)))))  # type: ignore[no-any-return]


class TinyTransformer(nn.Module):
    """A decoder of one block: learned positions, queries apart from keys and values, a head of the embedding's matrix
    if `tied`."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        width, words = 8, 12
        self.embedding, self.positions = nn.Embedding(words, width), Positions(width, 6)
        self.norm1 = nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.attention, self.out, self.add1 = QueryKeyValueAttention(4, causal=True), nn.Linear(width, width), Add()
        self.norm2, self.fc, self.gelu = nn.LayerNorm(width), nn.Linear(width, 16), nn.GELU()
        self.proj, self.add2, self.head = nn.Linear(16, width), Add(), nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:
        x = self.positions(self.embedding(words))
        y = self.norm1(x)
        x = self.add1(x, self.out(self.attention(self.q(y), self.k(y), self.v(y))))
        return self.head(self.add2(x, self.proj(self.gelu(self.fc(self.norm2(x))))))  # type: ignore[no-any-return]


def partly_frozen() -> nn.Module:
    """Four linear layers that are not trained before one that is."""
    frozen = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).requires_grad_(False)
    return nn.Sequential(*frozen, nn.Linear(64, 4))


MIXED = Network(build=Mixed, input_shape=(2, 8, 8))
FUNCTIONAL = Network(build=Functional, input_shape=(2, 8, 8))
WORDS = Network(build=Words, input_shape=(5,), vocabulary=11)
TIED = Network(build=TinyTransformer, input_shape=(6,), vocabulary=12)
FROZEN = Network(build=partly_frozen, input_shape=(64,))
UNTIED = Network(build=functools.partial(TinyTransformer, tied=False), input_shape=(6,), vocabulary=12)


@functools.cache
def profile_of(network: Network, batch_size: int = BATCH, dtype: str = "float64") -> Profile:
    """What a capture would say but for the times, which stand in proportion to output and parameters."""
    number = getattr(torch, dtype)
    with torch.random.fork_rng(devices=[]):
        trained = Trained(network.build().to(number))
        words = network.vocabulary is not None
        data = torch.zeros(batch_size, *network.input_shape, dtype=torch.int64 if words else number)
        layers = survey(trace(trained), data, [*trained.parameters(), *trained.buffers()], ()).layers
    return Profile(
        model="tiny",
        device="none",
        batch_size=batch_size,
        dtype=dtype,
        layers=tuple(
            replace(
                layer,
                forward_s=1e-9 * (layer.output_bytes + 10 * layer.parameter_bytes),
                backward_s=2e-9 * (layer.output_bytes + 10 * layer.parameter_bytes),
                update_s=1e-10 * layer.parameter_bytes,
            )
            for layer in layers
        ),
    )
