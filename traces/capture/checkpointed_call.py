"""Activation checkpointing: modules that keep only their inputs, and run again in their backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch import nn
from torch.utils import checkpoint

from traces.capture.device_clocks import Clock

GENERATOR, REENTRANT = "_checkpoint_without_reentrant_generator", "CheckpointFunction"
"""What torch.utils.checkpoint.checkpoint looks up in its module when it is called, however a network imported it."""


class CheckpointedCall:
    """Calls a module under activation checkpointing."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.__name__ = type(module).__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return checkpoint.checkpoint(self.module, *args, use_reentrant=False, **kwargs)


@dataclass(slots=True, kw_only=True)
class Recomputation:
    """What was checkpointed: how many regions ran, and (start, end) of every second run by the clock."""

    regions: int = 0
    repeats: list[tuple[Any, Any]] = field(default_factory=list)


@contextmanager
def watched(clock: Clock | None) -> Iterator[Recomputation]:
    """While it lasts, checkpointed regions are counted, and their second runs are timed by `clock`.

    Regions of the older, reentrant kind run as the newer one: their backward pass cannot run layer by layer.
    """
    watch, original = Recomputation(), getattr(checkpoint, GENERATOR)

    def generated(function: Callable[..., Any], *rest: Any, **kwargs: Any) -> Any:
        watch.regions += 1
        return original(functools.partial(_timed, function, clock, watch) if clock else function, *rest, **kwargs)

    class NotReentrant:
        @staticmethod
        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            return checkpoint.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)

    hooks: dict[str, Any] = {GENERATOR: generated, REENTRANT: NotReentrant}
    with mock.patch.multiple(checkpoint, **hooks):
        yield watch


def _timed(function: Callable[..., Any], clock: Clock, watch: Recomputation, *args: Any, **kwargs: Any) -> Any:
    """torch calls what it was passed for the second run only."""
    start = clock.mark()
    try:
        return function(*args, **kwargs)
    finally:  # the run ends by an exception once it has made what the backward pass needs
        watch.repeats.append((start, clock.mark()))
