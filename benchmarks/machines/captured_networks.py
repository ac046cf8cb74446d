"""Networks as users bring them: captured or not, and layers over the measured step. Usage: python -m
benchmarks.machines.captured_networks [--width 256] [--batch-size 8] [--repeats 10] [--only TEXT] [--export]

HuggingFace's families take part where `transformers` is installed. --export also says which of them torch.export
follows, and what that took; nothing is measured by it.
"""

from __future__ import annotations

import argparse
import time
import warnings

from benchmarks.pages.published import table
from benchmarks.user_networks import BUILDERS
from simulator.errors import ShardscopeError
from simulator.workload import Profile
from traces.capture.command import capture
from traces.capture.measurement_rounds import trained_on
from traces.capture.recorded_steps import RECORDED
from traces.zoo.networks import Network
from traces.zoo.own_network import NetworkInputs, draw

BAND = (0.9, 1.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256, help="channels")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", default="", help="networks whose names contain this")
    parser.add_argument("--export", action="store_true", help="try torch.export on each as well")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows, ratios, refused = [], [], 0
    for name, builder in BUILDERS.items():
        if options.only not in name:
            continue
        network = builder(options.width)
        try:
            profile = capture(network, options.batch_size, repeats=options.repeats, fractions=())
        except ShardscopeError as error:
            rows.append([name, "refused", str(error), "", "", ""])
            refused += 1
            continue
        ratios.append(profile.layers_to_step or 0.0)
        exported = _exported(network, options.batch_size) if options.export else ""
        rows.append([name, *_cells(profile), exported])
    header = ["network", "how", "layers", "step", "layers / step", *(["torch.export"] if options.export else [])]
    print(table(header, [row[: len(header)] for row in rows]))
    within = sum(BAND[0] <= ratio <= BAND[1] for ratio in ratios)
    print(
        f"\n{len(ratios)} of {len(ratios) + refused} captured; layers / step within {BAND[0]} to {BAND[1]} for {within}"
    )


def _cells(profile: Profile) -> tuple[str, str, str, str]:
    how = "recorded" if RECORDED in profile.notes else "traced"
    step_ms = (profile.step_s or 0.0) * 1e3
    return how, str(len(profile.layers)), f"{step_ms:.1f} ms", f"{profile.layers_to_step:.3f}"


def _exported(network: Network, batch_size: int) -> str:
    """How long torch.export takes for the model, or the kind of error it ends with."""
    import torch

    trained = trained_on(network, torch.device("cpu"), torch.float32)
    data = draw(network, batch_size, torch.device("cpu"), torch.float32)
    positional, keywords = (data.positional, dict(data.keywords)) if isinstance(data, NetworkInputs) else ((data,), {})
    began = time.perf_counter()
    try:
        torch.export.export(trained.model, positional, keywords)
    except Exception as error:  # whatever it ends with is the answer
        return type(error).__name__
    return f"{time.perf_counter() - began:.1f} s"


if __name__ == "__main__":
    main()
