"""Even and balanced shares of a batch on devices of unequal speed, for real.

    sudo python -m benchmarks.studies.balanced_shares

Four processes on this machine are held to shares of its cores that stand as 1 : 1 : 1/2 : 1/4. Their passes are timed
at two numbers of samples, which gives a_i + b_i x for each; `lowering/costs/sample_shares.py` splits the batch by it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.studies.cpu_throttle import Throttle
from simulator.lowering.costs.sample_shares import Seconds, split_by_time
from simulator.units import format_time
from traces.elastic.elastic_worker import TrainingJob
from traces.elastic.process_group import ElasticProcessGroup
from traces.lab.child_processes import usable_cores

SPEEDS = (1.0, 1.0, 0.5, 0.25)
FREE = 0.9
"""The share of the cores that devices get; the rest is for the system and for sending and receiving."""
STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredShares:
    """Samples of a step by device; the median seconds of each device's passes, and of the step."""

    shares: tuple[int, ...]
    compute_s: tuple[float, ...]
    step_s: float

    @property
    def load_balance_ratio(self) -> float:
        """The slowest device's seconds of passes over the mean of all."""
        return max(self.compute_s) / statistics.mean(self.compute_s)


def measure_shares(
    training: TrainingJob, shares: Sequence[int], speeds: Sequence[float] = SPEEDS, steps: int = STEPS
) -> MeasuredShares:
    """Train with these shares on throttled processes. Raises RunError where none can be throttled."""
    cores = len(usable_cores()) * FREE / sum(speeds)
    devices = tuple(range(len(speeds)))
    with ExitStack() as stack:
        throttles = [stack.enter_context(Throttle(str(i), speed * cores)) for i, speed in enumerate(speeds)]
        group = stack.enter_context(ElasticProcessGroup(training))
        group.start(devices, shares=shares)
        for throttle, device in zip(throttles, devices, strict=True):
            throttle.add(group.processes[device].pid)
        group.await_steps(steps)
        group.finish()
        logs = [[line for line in group.lines(device) if line["what"] == "step"][2:] for device in devices]
    return MeasuredShares(
        shares=tuple(shares),
        compute_s=tuple(statistics.median(line["compute_s"] for line in lines) for lines in logs),
        step_s=statistics.median(line["at_s"] - line["began_s"] for line in logs[0]),
    )


def fitted(first: MeasuredShares, second: MeasuredShares) -> list[Seconds]:
    """The line a_i + b_i x of each device through its passes in two measurements, as seconds of x samples."""
    lines: list[Seconds] = []
    for x0, x1, t0, t1 in zip(first.shares, second.shares, first.compute_s, second.compute_s, strict=True):
        each_s = max((t1 - t0) / (x1 - x0), 0.0)
        lines.append(lambda count, t0=t0, x0=x0, each_s=each_s: t0 + each_s * (count - x0))  # type: ignore[misc]
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.balanced_shares", description=__doc__)
    parser.add_argument("--model", metavar="NAME", default="resnet_small")
    parser.add_argument("--batch-size", metavar="B", type=int, default=176)
    args = parser.parse_args(argv)
    training = TrainingJob(model=args.model, batch_size=args.batch_size)
    quarter = args.batch_size // 4
    even = measure_shares(training, (quarter,) * 4)
    rough = split_by_time(args.batch_size, [_through_zero(even, device) for device in range(4)])
    first = measure_shares(training, rough)
    seconds = fitted(even, first) if all(a != b for a, b in zip(even.shares, rough, strict=True)) else []
    shares = split_by_time(args.batch_size, seconds) if seconds else rough
    balanced = measure_shares(training, shares)
    bound_s = args.batch_size / sum(
        share / took for share, took in zip(balanced.shares, balanced.compute_s, strict=True)
    )
    for name, measured in (("even", even), ("balanced", balanced)):
        samples, passes = ", ".join(map(str, measured.shares)), ", ".join(map(format_time, measured.compute_s))
        ratio, excess = measured.load_balance_ratio, f"{max(measured.compute_s) / bound_s - 1:+.1%}"
        print(f"| {name} | {samples} | {passes} | {ratio:.3f} | {excess} | {format_time(measured.step_s)} |")
    print(f"bound (batch / sum of samples per second): {format_time(bound_s)}")
    return 0


def _through_zero(measured: MeasuredShares, device: int) -> Seconds:
    """Seconds in proportion to samples, as far as one measurement tells."""
    return lambda count: measured.compute_s[device] / measured.shares[device] * count


if __name__ == "__main__":
    sys.exit(main())
