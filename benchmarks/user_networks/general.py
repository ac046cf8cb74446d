"""Recurrent and convolutional networks, U-Nets, several towers, control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential

from traces.zoo.networks import Network, NetworkInput

WORDS = 1000


class LanguageLSTM(nn.Module):
    """Its recurrent layer returns nested tuples."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(WORDS, width), nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor) -> Any:
        hidden, (last, cell) = self.lstm(self.words(tokens))
        return self.head(hidden), {"last": last, "cell": cell}


class BidirectionalGRU(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Any:
        _, last = self.gru(x)
        return self.classes(torch.cat((last[0], last[1]), -1))


class CellLoop(nn.Module):
    """A cell called once for every position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell, self.classes = nn.LSTMCell(width, width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        state = (x.new_zeros(len(x), x.shape[2]), x.new_zeros(len(x), x.shape[2]))
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
        return self.classes(state[0])


class Wave(nn.Module):
    """Dilated 1-dimensional convolutions with gates and weight norm, skips summed in a list."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(width, 2 * width, 3, dilation=2**i, padding=2**i))
            for i in range(3)
        )
        self.norm, self.head = nn.BatchNorm1d(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        x, skips = self.stem(x), []
        for layer in self.gated:
            signal, gate = layer(x).chunk(2, 1)
            skips.append(torch.tanh(signal) * torch.sigmoid(gate))
            x = x + skips[-1]
        return self.head(functional.relu(self.norm(sum(skips))).mean(2))


class Video(nn.Module):
    """3-dimensional convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv3d(3, width, 3, padding=1), nn.BatchNorm3d(width), nn.ReLU(inplace=True), nn.MaxPool3d(2)),
            *(nn.Conv3d(width, 2 * width, 3, padding=1), nn.ReLU(inplace=True)),
        )
        self.classes = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Any:
        return self.classes(self.features(x).mean((2, 3, 4)))


class UNet(nn.Module):
    """Skips by name, transposed convolutions, sides made to fit in forward; a map of classes, or two."""

    def __init__(self, width: int, deep: bool = False) -> None:
        super().__init__()
        self.deep = deep
        self.down1, self.down2 = self._pair(3, width), self._pair(width, 2 * width)
        self.bottom = self._pair(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join2, self.join1 = self._pair(4 * width, 2 * width), self._pair(2 * width, width)
        self.classes, self.middle = nn.Conv2d(width, 5, 1), nn.Conv2d(2 * width, 5, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

    def forward(self, x: Tensor) -> Any:
        skips = {"one": self.down1(x)}
        skips["two"] = self.down2(functional.max_pool2d(skips["one"], 2))
        x = self.up2(self.bottom(functional.max_pool2d(skips["two"], 2)))
        if x.shape != skips["two"].shape:
            x = functional.interpolate(x, size=skips["two"].shape[2:])
        half = self.join2(torch.cat((skips["two"], x), 1))
        x = self.join1(torch.cat((skips["one"], self.up1(half)), 1))
        if self.deep:
            larger = functional.interpolate(self.middle(half), scale_factor=2.0, mode="bilinear", align_corners=False)
            return {"out": self.classes(x) + 0.4 * larger, "half": half}
        return self.classes(x)


class Mobile(nn.Module):
    """Depthwise convolutions and squeeze-and-excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, width, 3, 2, 1), nn.Conv2d(width, 4 * width, 1)
        self.depthwise = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.squeeze, self.excite = nn.Conv2d(4 * width, width, 1), nn.Conv2d(width, 4 * width, 1)
        self.narrow, self.classes = nn.Conv2d(4 * width, width, 1), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        x = functional.hardswish(self.stem(x))
        y = functional.hardswish(self.depthwise(self.wide(x)))
        share = functional.hardsigmoid(self.excite(functional.relu(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))))
        x = x + self.narrow(y * share)
        return self.classes(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


class Residual(nn.Module):
    """In the style of torchvision: one ReLU module for all, additions in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.fc = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        identity = self.relu(self.bn1(self.conv1(x)))
        out = self.conv3(self.relu(self.bn2(self.conv2(identity))))
        out += identity
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(self.relu(out), 1), 1))


class CheckpointedChain(nn.Module):
    """checkpoint_sequential over a chain of convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.chain = nn.Sequential(*(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(4)))
        self.classes = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        deep = checkpoint_sequential(self.chain, 2, self.stem(x), use_reentrant=False)  # type: ignore[no-untyped-call]
        return self.classes(deep.mean((2, 3)))


class EarlyExit(nn.Module):
    """Which branch is taken depends on what it computed, in the network's own forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.more, self.classes = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        x = torch.relu(self.stem(x))
        for _ in range(3):
            if x.abs().mean() > 1e-6:
                x = torch.relu(self.more(x))
        return self.classes(x)


class BranchingBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x) if x.mean().item() > -1e6 else x


class Branching(nn.Module):
    """A block that looks at values: it becomes one layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.block, self.classes = nn.Linear(width, width), BranchingBlock(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Any:
        return self.classes(self.block(torch.relu(self.stem(x))))


class Recommender(nn.Module):
    """Three inputs of different kinds; one number per sample."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(WORDS, width), nn.EmbeddingBag(WORDS, width, mode="sum")
        self.top = nn.Sequential(nn.Linear(2 * width + 8, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, user: Tensor, items: Tensor, features: Tensor) -> Any:
        return self.top(torch.cat((self.users(user[:, 0]), self.items(items), features), 1)).squeeze(1)


class Siamese(nn.Module):
    """One tower, run on two inputs; a tuple of scores and an embedding."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1))
        self.classes = nn.Linear(2 * width, 10)

    def forward(self, left: Tensor, right: Tensor) -> Any:
        left, right = (self.tower(each).mean((2, 3)) for each in (left, right))
        return self.classes(torch.cat((left - right, left * right), 1)), left


class Autoencoder(nn.Module):
    """Draws a sample in forward and returns its own loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(width, width), nn.Linear(width // 2, width)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        mean, spread = self.encoder(x).chunk(2, -1)
        decoded = self.decoder(mean + torch.randn_like(mean) * (spread / 2).exp())
        divergence = (mean.square() + spread.exp() - 1 - spread).mean() / 2
        return {"loss": functional.mse_loss(decoded, x) + 1e-3 * divergence}


class Graph(nn.Module):
    """Messages along a dense adjacency matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.classes = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 10)

    def forward(self, features: Tensor, adjacency: Tensor) -> Any:
        neighbours = adjacency.softmax(-1)
        x = functional.relu(torch.einsum("nij,njc->nic", neighbours, self.first(features)))
        return self.classes((neighbours @ self.second(x)).amax(1))


class _Clamped(torch.autograd.Function):
    """Straight through: rounding forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class Quantised(nn.Module):
    """A function with a backward pass of its own, and an average kept without gradients."""

    average: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 10)
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        with torch.no_grad():
            centre = x.mean(0) * 0.1 + self.average * 0.9
        return self.second(_Clamped.apply((x - centre) * 8) / 8)  # type: ignore[no-untyped-call]


class Teacher(nn.Module):
    """A frozen copy without gradients beside the one that is trained."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(width, width), nn.Linear(width, width).requires_grad_(False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            target = self.teacher(x)
        return {"loss": functional.mse_loss(self.student(x), target)}


def _plane(build: Callable[[], nn.Module], *shape: int) -> Network:
    return Network(build=build, input_shape=shape)


def _several(build: Callable[[], nn.Module], *inputs: NetworkInput) -> Network:
    return Network(build=build, input_shape=inputs[0].shape, inputs=inputs)


def _recommender(width: int) -> Network:
    words = (NetworkInput(shape=(1,), vocabulary=WORDS), NetworkInput(shape=(20,), vocabulary=WORDS))
    return _several(lambda: Recommender(width), *words, NetworkInput(name="features", shape=(8,)))


BUILDERS: dict[str, Callable[[int], Network]] = {
    "lstm_nested_outputs": lambda width: Network(
        build=lambda: LanguageLSTM(width), input_shape=(32,), vocabulary=WORDS
    ),
    "gru_bidirectional": lambda width: _plane(lambda: BidirectionalGRU(width), 32, width),
    "cell_loop": lambda width: _plane(lambda: CellLoop(width), 6, width),
    "convolution_1d": lambda width: _plane(lambda: Wave(width), 1, 256),
    "convolution_3d": lambda width: _plane(lambda: Video(width // 4), 3, 8, 16, 16),
    "unet": lambda width: _plane(lambda: UNet(width // 4), 3, 32, 32),
    "unet_two_outputs": lambda width: _plane(lambda: UNet(width // 4, deep=True), 3, 32, 32),
    "mobile_squeeze": lambda width: _plane(lambda: Mobile(width // 2), 3, 64, 64),
    "residual_functional": lambda width: _plane(lambda: Residual(width), 3, 32, 32),
    "checkpoint_sequential": lambda width: _plane(lambda: CheckpointedChain(width // 2), 3, 32, 32),
    "control_flow_root": lambda width: _plane(lambda: EarlyExit(4 * width), 64, 4 * width),
    "control_flow_block": lambda width: _plane(lambda: Branching(4 * width), 64, 4 * width),
    "recommender_three_inputs": _recommender,
    "siamese_two_inputs": lambda width: _several(
        lambda: Siamese(width), *(NetworkInput(name=name, shape=(3, 32, 32)) for name in ("left", "right"))
    ),
    "autoencoder_own_loss": lambda width: _plane(lambda: Autoencoder(4 * width), 64, 4 * width),
    "graph_two_inputs": lambda width: _several(
        lambda: Graph(2 * width), NetworkInput(shape=(64, 2 * width)), NetworkInput(name="adjacency", shape=(64, 64))
    ),
    "own_backward": lambda width: _plane(lambda: Quantised(8 * width), 64, 8 * width),
    "frozen_teacher": lambda width: _plane(lambda: Teacher(8 * width), 64, 8 * width),
}
