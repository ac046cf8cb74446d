"""Pieces that the networks of the zoo are made of. Joins are modules, so that every layer has a name."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Side = int | tuple[int, int]


def normalised(
    inputs: int, outputs: int, kernel: Side, stride: int = 1, padding: Side = 0, epsilon: float = 1e-5
) -> list[nn.Module]:
    """Convolution, batch norm and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return [convolution, nn.BatchNorm2d(outputs, eps=epsilon), nn.ReLU(inplace=True)]


def convolution(inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> list[nn.Module]:
    """Convolution and ReLU."""
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]


def dense(inputs: int, outputs: int) -> list[nn.Module]:
    """Fully connected layer and ReLU."""
    return [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]


def joined(**parts: nn.Module) -> nn.Sequential:
    """A chain whose parts keep their names."""
    chain = nn.Sequential()
    for name, part in parts.items():
        chain.add_module(name, part)
    return chain


def initialised(model: nn.Module) -> nn.Module:
    """`model` with He initialisation of its convolutions, so that activations neither vanish nor blow up."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class Add(nn.Module):
    """The sum of its inputs: the join of a residual block."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Concat(nn.Module):
    """Its inputs joined along channels."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, 1)
