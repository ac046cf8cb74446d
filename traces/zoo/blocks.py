"""Pieces that the networks of the zoo are made of. Joins are modules, so that every layer has a name."""

from __future__ import annotations

from collections import OrderedDict

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
    return nn.Sequential(OrderedDict(parts))


def initialised(model: nn.Module) -> nn.Module:
    """`model` with He initialisation of its convolutions, so that activations neither vanish nor blow up."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class Add(nn.Module):
    """The sum of its inputs, which are of one shape: the join of a residual block."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


class Concat(nn.Module):
    """Its inputs (samples, channels, height, width) joined along channels."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.cat(inputs, 1)


class Attention(nn.Module):
    """Scaled dot-product attention of queries, keys and values that lie side by side, head by head.

    (samples, positions, heads x 3 x d) -> (samples, positions, heads x d); each head sees its own channels only.
    """

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        split = x.view(*x.shape[:2], self.heads, 3, -1).permute(3, 0, 2, 1, 4)  # (q k v, samples, heads, positions, d)
        mixed = nn.functional.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=self.causal)
        return mixed.transpose(1, 2).flatten(2)  # (samples, heads, positions, d) -> (samples, positions, heads x d)


class QueryKeyValueAttention(nn.Module):
    """Scaled dot-product attention of queries, keys and values of layers of their own, whose heads lie side by side.

    (samples, queries, channels), (samples, positions, channels) twice -> (samples, queries, channels). The queries may
    be a part of the sequence that begins at position `first_query`.
    """

    def __init__(self, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, first_query: int = 0) -> Tensor:
        # (samples, positions, heads x d) -> (samples, heads, positions, d)
        q, k, v = (x.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for x in (queries, keys, values))
        seen = None
        if self.causal:  # query i sees keys up to its own position
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(first_query)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return mixed.transpose(1, 2).flatten(2)  # (samples, heads, queries, d) -> (samples, queries, heads x d)


class Tokens(nn.Module):
    """Patches as a sequence behind a class token, with learned positions added.

    (samples, channels, height, width) -> (samples, 1 + height x width, channels)
    """

    def __init__(self, width: int, patches: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, patches + 1, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.flatten(2).transpose(1, 2)  # (samples, height x width, channels)
        tokens = torch.cat((self.first.expand(len(x), -1, -1), patches), 1)  # (samples, 1 + height x width, channels)
        return tokens + self.positions


class Positions(nn.Module):
    """A sequence (samples, positions, channels) with learned positions added."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.positions


class First(nn.Module):
    """The first position of a sequence: (samples, positions, channels) -> (samples, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]  # (samples, positions, channels) -> (samples, channels)
