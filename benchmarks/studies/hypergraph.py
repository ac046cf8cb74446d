"""Hypergraph-partitioned model parallelism (Bilkent thesis, 2019): how much less its cuts communicate, how balanced."""

from __future__ import annotations

from benchmarks.pages.published import BATCH, MIB, TITLES, profile, switch, table
from partitioners import make_plan, options
from simulator.errors import ShardscopeError
from simulator.plan import StepSettings
from simulator.report.metrics import Report
from simulator.run import run

DEVICES = (2, 4, 8, 16)


def section() -> str:
    return "\n\n".join(
        [
            "## Hypergraph partitioning cuts data parallelism's communication by 93 % (Bilkent thesis, 2019)",
            "PipeDream's V100 profiles. Volume: MiB per step of data parallelism (ring) and of the least-volume "
            "hypergraph plan whose load balance ratio is at most 1.03.",
            _volumes(),
        ]
    )


def _volumes() -> str:
    rows = []
    for name, title in TITLES.items():
        for devices in DEVICES:
            data, cut = (_report(name, devices, 10, s, o) for s, o in (("data", ""), ("hypergraph", "volume")))
            if isinstance(data, str) or isinstance(cut, str):
                rows.append([title, devices, data if isinstance(data, str) else "", cut, "", ""])
                continue
            volumes = data.communication_bytes.total, cut.communication_bytes.total
            rows.append(
                [
                    title,
                    devices,
                    f"{volumes[0] / MIB:.1f}",
                    f"{volumes[1] / MIB:.1f}",
                    f"{volumes[1] / volumes[0] - 1:+.1%}",
                    f"{cut.load_balance_ratio:.3f}",
                ]
            )
    return table(["network", "devices", "data", "hypergraph", "change", "load balance ratio"], rows)


def _report(name: str, devices: int, gigabits: float, strategy: str, objective: str) -> Report | str:
    """The report, or why there is none."""
    cluster = switch(devices, gigabits)
    own = {"objective": objective} if "objective" in options(strategy) and strategy == "hypergraph" else {}
    try:
        plan = make_plan(strategy, profile(name), cluster, StepSettings(batch_size=BATCH[name]), **own)
    except ShardscopeError as error:
        return str(error)
    return run(profile(name), cluster, plan).report
