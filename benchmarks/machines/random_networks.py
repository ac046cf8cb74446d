"""Networks drawn from a grammar, so that nobody can tune a simulator to them: NETWORK_SEED_NUMBER is one of them.

    network      normalised convolutions | attention | embedded words | perceptron          in turn, by number
    convolutions stem (width) stage{2,3}: conv-norm-relu{1,2} [residual]                     batch norm, stride 2
    attention    patches, positions, block{1,3}: norm, attention, norm, perceptron           images
    words        embedding, positions, block{1,2}, norm, head                                sequences
    perceptron   linear-relu{2,4}, linear                                                    up to 10 million parameters

A process that runs one finds it by its name, as any `package.module:attribute`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from torch import Tensor, nn

from traces.zoo.blocks import Add, Positions, dense, initialised, joined, normalised
from traces.zoo.networks import Network, TransformerBlock

_NAME = re.compile(r"NETWORK_(\d+)_(\d+)")
CLASSES = 10


def network_name(seed: int, number: int) -> str:
    """What `zoo.load` knows a drawn network by."""
    return f"{__name__}:NETWORK_{seed}_{number}"


def __getattr__(name: str) -> Network:
    match = _NAME.fullmatch(name)
    if match is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return drawn(*map(int, match.groups()))


def drawn(seed: int, number: int) -> Network:
    """Network `number` of a seed; four in a row are one of each kind."""
    random = Random(f"{seed} {number}")
    return (_convolutions, _attention, _words, _perceptron)[number % 4](random)


def _network(build: Callable[[], nn.Module], input_shape: tuple[int, ...], vocabulary: int | None = None) -> Network:
    return Network(build=build, input_shape=input_shape, vocabulary=vocabulary)


def _convolutions(random: Random) -> Network:
    width, side = random.choice((16, 24, 32)), random.choice((24, 32))
    stages = [(random.randint(1, 2), random.random() < 0.5) for _ in range(random.randint(2, 3))]

    def build() -> nn.Module:
        parts: list[nn.Module] = [*normalised(3, width, 3, 1, 1)]
        channels = width
        for count, residual in stages:
            parts += normalised(channels, 2 * channels, 3, 2, 1)
            channels *= 2
            for _ in range(count):
                parts += [_Residual(channels)] if residual else normalised(channels, channels, 3, 1, 1)
        parts += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, CLASSES)]
        return initialised(nn.Sequential(*parts))

    return _network(build, (3, side, side))


class _Residual(nn.Module):
    """Two normalised convolutions around which their input passes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *normalised(channels, channels, 3, 1, 1), *normalised(channels, channels, 3, 1, 1)[:-1]
        )
        self.add, self.relu = Add(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.add(self.main(x), x))  # type: ignore[no-any-return]


def _attention(random: Random) -> Network:
    heads, depth, patch = random.choice((2, 4)), random.randint(1, 3), random.choice((4, 8))
    width = 32 * random.randint(3, 6)

    def build() -> nn.Module:
        return joined(
            patches=nn.Conv2d(3, width, patch, patch),
            sequence=_Sequence(),
            positions=Positions(width, (32 // patch) ** 2),
            blocks=nn.Sequential(*(TransformerBlock(width, heads, causal=False) for _ in range(depth))),
            norm=nn.LayerNorm(width),
            flatten=nn.Flatten(),
            head=nn.Linear(width * (32 // patch) ** 2, CLASSES),
        )

    return _network(build, (3, 32, 32))


class _Sequence(nn.Module):
    """Positions of a plane in a row: (samples, channels, height, width) -> (samples, height x width, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2)  # (samples, height x width, channels)


def _words(random: Random) -> Network:
    heads, depth, positions = random.choice((2, 4)), random.randint(1, 2), random.choice((16, 32, 64))
    width, vocabulary = 32 * random.randint(2, 5), random.choice((500, 2000, 8000))

    def build() -> nn.Module:
        return joined(
            embedding=nn.Embedding(vocabulary, width),
            positions=Positions(width, positions),
            blocks=nn.Sequential(*(TransformerBlock(width, heads, causal=True) for _ in range(depth))),
            norm=nn.LayerNorm(width),
            head=nn.Linear(width, vocabulary // 4),
        )

    return _network(build, (positions,), vocabulary)


def _perceptron(random: Random) -> Network:
    widths = [random.choice((500, 1000, 1500, 2000, 2500)) for _ in range(random.randint(2, 4))]
    inputs = random.choice((256, 1024))

    def build() -> nn.Module:
        pairs = zip([inputs, *widths], widths, strict=False)
        layers = [layer for before, after in pairs for layer in dense(before, after)]
        return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))

    return _network(build, (inputs,))
