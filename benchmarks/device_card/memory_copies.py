"""How long copies take between the host's memory and a GPU's, and within a GPU's."""

from __future__ import annotations

import torch

from traces.capture.device_clocks import clock_of
from traces.capture.measurement_rounds import median

DIRECTIONS = {
    "host to device": ("host", "device"),
    "device to host": ("device", "host"),
    "within the device": ("device", "device"),
}


def curve(torch_device: torch.device, direction: str, sizes: list[int], repeats: int) -> tuple[tuple[int, float], ...]:
    """Median (bytes, seconds) of copies of random bytes, launched ahead; the host's side is page-locked memory."""
    clock = clock_of(torch_device)
    ends = DIRECTIONS[direction]
    points = []
    for size in sizes:
        source, target = (_memory(end, size, torch_device) for end in ends)
        times = []
        for _ in range(2 + repeats):
            clock.lead()
            start = clock.mark()
            target.copy_(source, non_blocking=True)
            end = clock.mark()
            clock.settle()
            times.append(clock.seconds(start, end))
        points.append((size, median(times[2:])))
    return tuple(points)


def _memory(end: str, size: int, torch_device: torch.device) -> torch.Tensor:
    content = torch.randint(256, (size,), dtype=torch.uint8, device=torch_device if end == "device" else "cpu")
    return content.pin_memory() if end == "host" and torch_device.type == "cuda" else content
