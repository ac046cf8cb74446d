"""A network as torch's runtimes train it, and its training data."""

from __future__ import annotations

import torch
from torch import Tensor

from simulator.errors import InputError
from traces.capture.fx_steps import Trained
from traces.capture.network_inputs import draw
from traces.zoo.networks import Network


def build(network: Network, seed: int = 0) -> Trained:
    """The network and its loss in training mode; every rank that asks with one seed has equal parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Trained(network.build()).train()


def samples(network: Network, count: int, seed: int = 0) -> Tensor:
    """Random data of shape (count, *input shape), of a network that reads one tensor. Raises InputError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        data = draw(network, count, torch.device("cpu"), torch.float32)
    if not isinstance(data, Tensor):
        raise InputError("model: torch's runtimes run networks of one input tensor here; this one reads several")
    return data
