"""Recomputation as users switch it on: torch.utils.checkpoint around modules, or around a part of their operators.

    full        a module keeps its input only; its forward pass runs again before its backward pass
    selective   it keeps what matrix products made; everything else runs again (Korthikanti et al., arXiv 2205.05198,
                keep all but the attention core; torch's own policy chooses by operator)

A module inside fully_shard is gathered again for it with the parameters that its backward pass needs anyway, so that
recomputation sends nothing more there. Under tensor parallelism the collectives of the forward pass run again too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from benchmarks.parallel_runtimes.network_blocks import modules_named

Kept = Literal["input", "products"]

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
             torch.ops.aten.convolution.default)  # fmt: skip


def recompute(model: nn.Module, names: Sequence[str], keep: Kept = "input") -> None:
    """Let the modules at these paths keep for their backward pass only their input, or also what products made.

    Call it before `fully_shard`. Raises UnknownNameError for a path that the network lacks.
    """
    for module in modules_named(model, names):
        module.forward = _recomputing(module.forward, keep)


def _recomputing(forward: Callable[..., Any], keep: Kept) -> Callable[..., Any]:
    options: dict[str, Any] = {"use_reentrant": False}
    if keep == "products":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    return partial(checkpoint, forward, **options)


def _policy(_: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE
