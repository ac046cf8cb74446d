"""Published pauses of elastic jobs beside simulated ones. Usage: python -m benchmarks.studies.elastic_figures

ResNet-50 under data parallelism on up to 32 A100 of the preset dgx-a100, with the overheads of
examples/overheads-spot.yaml. Published: ElasticFlow (ASPLOS 2023), Sia (SOSP 2023) and Pollux (OSDI 2021).
"""

from __future__ import annotations

from benchmarks import ROOT
from benchmarks.pages.published import table
from partitioners import make_plan
from simulator import files
from simulator.elastic.movement import Placed
from simulator.elastic.reconfiguration import Change, Reconfiguration, read_overheads
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings
from simulator.units import format_time

OVERHEADS = ROOT / "examples" / "overheads-spot.yaml"
PROFILE, CLUSTER, DEVICES, BATCH = "resnet50_a100", "dgx-a100", 32, 256


def main() -> None:
    profile, cluster = files.read_profile(PROFILE), read_cluster(CLUSTER, devices=DEVICES)
    prices = Reconfiguration(profile=profile, cluster=cluster, overheads=read_overheads(OVERHEADS))

    def placed(devices: int) -> Placed:
        plan = make_plan("data", profile, read_cluster(CLUSTER, devices=devices), StepSettings(batch_size=BATCH))
        return Placed(plan=plan, members=tuple(range(devices)))

    rows: list[tuple[str, str, Change]] = [
        ("ResNet-50, A100, 1 → 2 live", "1.88 s (ElasticFlow)", prices.live(placed(1), placed(2))),
        ("ResNet-50, A100, 8 → 16 live", "1.67 s (ElasticFlow)", prices.live(placed(8), placed(16))),
        ("ResNet-50, A100, 16 → 8 shrink", "1.79 s (ElasticFlow)", prices.shrink(placed(16), placed(8))),
        ("restart on 16", "15 to 250 s per job; 30 s in Sia and Pollux", prices.restart(placed(16))),
    ]
    header = ["what", "published", "simulated with `examples/overheads-spot.yaml`"]
    print(table(header, [(what, published, format_time(change.pause_s)) for what, published, change in rows]))


if __name__ == "__main__":
    main()
