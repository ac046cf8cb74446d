"""Bytes that operators hold at once, without a profiler or a device's own count."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from traces.capture.fx_steps import tensors


class Allocations(TorchDispatchMode):
    """Counts the storage of what operators make while it is entered, each until it is freed.

    What one operator allocates within itself is not seen, such as a convolution's workspace.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most_bytes = self._bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {tensor.untyped_storage()._cdata for tensor in tensors((args, kwargs or {}))}
        result = function(*args, **(kwargs or {}))
        for tensor in tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return result

    def _add(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self._bytes)
