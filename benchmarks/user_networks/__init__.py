"""Networks as users bring them: written for training, not for tracing.

attention   transformers as people write them: tied, masked, several inputs, mixtures of experts, checkpointed
general     recurrent and convolutional networks, U-Nets, several towers, control flow
libraries   HuggingFace's families, built from a configuration; empty where `transformers` is not installed

Each takes a `width` in channels, so that tests run small ones.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.user_networks import attention, general, libraries
from traces.zoo.networks import Network

BUILDERS: dict[str, Callable[[int], Network]] = {
    **libraries.BUILDERS,
    **attention.BUILDERS,
    **general.BUILDERS,
}
