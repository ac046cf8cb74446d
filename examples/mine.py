"""A network of one's own, for docs/tutorial.md: convolutions with a skip, and two fully connected layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Small(nn.Module):
    """(samples, 3, 32, 32) -> (samples, 10)"""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.second, self.hidden = nn.Conv2d(32, 64, 3, 2, 1), nn.Linear(64 * 8 * 8, 128)
        self.classes = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.stem(x)), 2)
        x = x + functional.relu(self.first(x))
        x = functional.relu(self.second(x))
        return self.classes(functional.relu(self.hidden(torch.flatten(x, 1))))  # type: ignore[no-any-return]


def net() -> nn.Module:
    """What `shardscope capture mine:net` builds."""
    return Small()
