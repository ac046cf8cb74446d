"""What README.md says of its picture, by the plans that it shows."""

from __future__ import annotations

import re

from conftest import ROOT

import partitioners
from dashboard.state.flows import between_nodes_bytes
from simulator.files import read_profile
from simulator.network.catalogue import read_cluster
from simulator.plan import StepSettings
from simulator.run import run


def test_shares_of_data_parallelism_are_those_of_the_plans() -> None:
    """On two nodes of four V100, with the dashboard's effort."""
    profile, cluster = read_profile("vgg16_v100"), read_cluster("azure-v100-10g", devices=8)
    step, sent, taken = StepSettings(batch_size=1024), [], []
    for strategy, own in (("hypergraph", {"effort": 0.1}), ("data", {})):
        done = run(profile, cluster, partitioners.make_plan(strategy, profile, cluster, step, **own))
        sent.append(between_nodes_bytes(done, cluster))
        taken.append(done.report.step_s)
    said = re.search(
        r"sends (\d+) % of what\s+data parallelism does, and takes (\d+) %", (ROOT / "README.md").read_text()
    )
    assert said is not None
    assert [int(share) for share in said.groups()] == [round(100 * sent[0] / sent[1]), round(100 * taken[0] / taken[1])]
