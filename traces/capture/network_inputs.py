"""What a network reads: random data for it, of one tensor or of several, by position and by keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from traces.zoo.networks import Network, NetworkInput


@dataclass(frozen=True, slots=True)
class NetworkInputs:
    """The arguments of a forward pass, each of shape (samples, ...); its length is the number of samples."""

    positional: tuple[Tensor, ...] = ()
    keywords: Mapping[str, Tensor] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Tensor]:
        """The tensors, those by position first."""
        yield from self.positional
        yield from self.keywords.values()

    def __len__(self) -> int:
        return len(next(iter(self)))

    def __getitem__(self, samples: slice) -> NetworkInputs:
        """The same inputs for some of the samples."""
        keywords = {name: tensor[samples] for name, tensor in self.keywords.items()}
        return NetworkInputs(tuple(tensor[samples] for tensor in self.positional), keywords)

    def chunk(self, parts: int) -> tuple[NetworkInputs, ...]:
        """The inputs in at most so many parts of equally many samples, the last perhaps of fewer."""
        size = -(-len(self) // parts)
        return tuple(self[first : first + size] for first in range(0, len(self), size))

    def applied(self, model: Callable[..., Any]) -> Any:
        """What `model` makes of them."""
        return model(*self.positional, **self.keywords)


Data = Tensor | NetworkInputs
"""The training data: of a network with one input a tensor, (samples, *input shape)."""


def data_tensors(data: Data) -> list[Tensor]:
    """The tensors of training data, in the order in which a traced network has its placeholders."""
    return [data] if isinstance(data, Tensor) else list(data)


def draw(network: Network, batch_size: int, torch_device: torch.device, dtype: torch.dtype) -> Data:
    """Random data of shape (batch_size, *input shape), as zeros may be faster than real data."""
    drawn = [(each.name, _drawn(each, batch_size, torch_device, dtype)) for each in network.all_inputs]
    if len(drawn) == 1 and not drawn[0][0]:
        return drawn[0][1]
    return NetworkInputs(
        tuple(tensor for name, tensor in drawn if not name), {name: tensor for name, tensor in drawn if name}
    )


def _drawn(each: NetworkInput, batch_size: int, torch_device: torch.device, dtype: torch.dtype) -> Tensor:
    shape = (batch_size, *each.shape)
    if each.vocabulary is not None:
        return torch.randint(each.vocabulary, shape, device=torch_device)
    return torch.randn(shape, device=torch_device, dtype=dtype)
