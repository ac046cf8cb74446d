"""Plans of FSDP2 and tensor parallelism: their bytes in closed form, their segments, what is refused."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test installs it")

import parallel_programs
from tiny_networks import profile_of

from benchmarks.parallel_runtimes.parallel_plans import fsdp_plan, segments, tensor_plan
from benchmarks.parallel_runtimes.runs import runs
from benchmarks.parallel_runtimes.tensor_parallel import transformer_splits
from simulator.errors import InputError
from simulator.network.topologies import Wire, flat_switch
from simulator.plan import Plan
from simulator.run import run
from simulator.workload import Profile

BATCH, BLOCKS = 8, ("blocks.0", "blocks.1")
WIDTH, POSITIONS = 16, 8


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of(parallel_programs.SENTENCES, BATCH, "float32")


def sent(profile: Profile, plan: Plan, ranks: int) -> float:
    cluster = flat_switch(ranks, Wire(bandwidth_bytes_per_s=1e9))
    return run(profile, cluster, plan).report.communication_bytes.total


@pytest.mark.parametrize(("resharded", "multiple"), [(True, 3), (False, 2)])
@pytest.mark.parametrize("recomputed", [False, True])
def test_fsdp_sends_two_and_three_times_the_parameters(
    profile: Profile, resharded: bool, multiple: int, recomputed: bool
) -> None:
    plan = fsdp_plan(profile, 4, BATCH, BLOCKS, resharded=resharded, recomputed=recomputed)
    unique = sum(4 * p.numel() for p in parallel_programs.SENTENCES.build().parameters())
    assert sent(profile, plan, 4) == pytest.approx(multiple * 3 * unique)


def test_tensor_parallelism_sums_four_tensors_a_block_and_recomputation_two_more(profile: Profile) -> None:
    splits = transformer_splits(parallel_programs.SENTENCES.build())
    tensor_bytes, ranks = 4 * BATCH * POSITIONS * WIDTH, 2
    for recomputed, sums in ((False, 4), (True, 6)):
        plan = tensor_plan(profile, ranks, BATCH, BLOCKS, splits, recomputed=recomputed)
        assert sent(profile, plan, ranks) == pytest.approx(len(BLOCKS) * sums * 2 * (ranks - 1) * tensor_bytes)


def test_segments_are_the_layers_of_the_blocks(profile: Profile) -> None:
    first, second = segments(profile, BLOCKS)
    assert all(name.startswith("blocks.0.") for name in first) and len(first) == len(second) == 10
    with pytest.raises(InputError, match=r"'blocks\.7' holds no layer"):
        segments(profile, ["blocks.7"])


def test_runs_have_names_of_their_own() -> None:
    drawn = list(runs(1, 2))
    assert len({run.name for run in drawn}) == len(drawn) == 20 and {run.kind for run in drawn} == {"fsdp", "tensor"}
