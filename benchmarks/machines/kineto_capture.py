"""Layers out of torch.profiler's traces against `capture` of the same network on this machine's CPU.

    python -m benchmarks.machines.kineto_capture

Steps are recorded and captured in turns, because a shared machine drifts; the goal is a median difference of 5 %.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch

from traces.capture.command import capture
from traces.capture.fx_steps import Trained
from traces.imports._imported import ImportOptions
from traces.imports.kineto import read
from traces.zoo.networks import ZOO, Network

NETWORKS = (("alexnet", 8), ("vgg_small", 32))
TURNS = 10


def main() -> None:
    for name, batch_size in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            differences = layer_differences(name, batch_size, Path(folder), TURNS)
        median, worst = statistics.median(map(abs, differences)), max(differences, key=abs)
        print(
            f"{name}, batch {batch_size}: median difference of {len(differences)} layers {median:.1%}, "
            f"worst {worst:+.1%}"
        )


def layer_differences(name: str, batch_size: int, folder: Path, turns: int) -> list[float]:
    """Imported over captured seconds, less 1, of the layers that take at least a hundredth of the step.

    Medians of steps recorded and captured in turns. In shorter layers the boundaries between captured ones, some 0.1 ms
    on a CPU, are a part of the time.
    """
    paths, captures = [], []
    for turn in range(turns):
        paths.append(recorded(ZOO[name], batch_size, folder / f"{turn}.json", 2))
        captures.append(capture(name, batch_size, repeats=2, warmup=1, fractions=()))
    imported = read(paths, ImportOptions(model=name, force=True)).profile
    assert imported is not None
    differences = []
    for i, layer in enumerate(imported.layers):
        expected = statistics.median(each.layers[i].forward_s + each.layers[i].backward_s for each in captures)
        if expected > imported.layers_s / 100:
            differences.append((layer.forward_s + layer.backward_s) / expected - 1)
    return differences


def recorded(network: Network, batch_size: int, path: Path, steps: int) -> Path:
    """A trace of ordinary training steps on this CPU, with one thread."""
    trained = Trained(network.build().train())
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-4, momentum=0.9)
    inputs = torch.randn(batch_size, *network.input_shape)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(2):
            _train(trained, optimizer, inputs)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, acc_events=True
        ) as profiler:
            for _ in range(steps):
                _train(trained, optimizer, inputs)
                profiler.step()
    finally:
        torch.set_num_threads(threads)
    profiler.export_chrome_trace(str(path))
    return path


def _train(trained: Trained, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    trained(inputs).backward()
    optimizer.step()
    optimizer.zero_grad()


if __name__ == "__main__":
    main()
