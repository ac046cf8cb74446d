"""Stochastic gradient descent with momentum, as torch.optim.SGD does it by default.

momentum  <-  MOMENTUM x momentum + gradient
parameter <-  parameter - learning rate x momentum          (Sutskever et al., ICML 2013, without Nesterov's step)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

LEARNING_RATE = 1e-4
MOMENTUM = 0.9


def optimizer(
    parameters: Iterable[Tensor], learning_rate: float = LEARNING_RATE, momentum: float = MOMENTUM
) -> torch.optim.SGD:
    """torch's optimizer of `parameters`, whose steps do nothing where there are none."""
    return torch.optim.SGD([{"params": list(parameters)}], lr=learning_rate, momentum=momentum)


@torch.no_grad()
def descend(
    parameters: Sequence[Tensor | nn.Parameter],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor],
    learning_rate: float = LEARNING_RATE,
    momentum: float = MOMENTUM,
) -> None:
    """One step in place; gradients and momenta have their parameters' shapes, momenta are zero at first.

    For layers whose update is timed one by one, and for flat rows of many parameters. The kernels are those of the
    optimizer; on a GPU one of them updates all parameters together.
    """
    sgd(
        list(parameters),
        list(gradients),
        list(momenta),
        weight_decay=0.0,
        momentum=momentum,
        lr=learning_rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        has_sparse_grad=False,
    )
