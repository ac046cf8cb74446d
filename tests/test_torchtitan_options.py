"""What torchtitan's options say is counted, named as not counted, or refused as it refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.readers import read_configuration

LINE = "torchrun --nnodes 2 --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b"
FILE = (
    '[model]\nname = "llama3"\nflavor = "8B"\nconverters = []\n[training]\nseq_len = 4096\n[float8]\nfilter_fqns = []\n'
)
CHECKPOINTS = '[parallelism]\n[activation_checkpoint]\nmode = "{}"\nselective_ac_option = "{}"\n'


@pytest.mark.parametrize(
    ("mode", "option", "recomputation", "unread"),
    [
        ("selective", "op", "op", ()),
        ("selective", "1", "full", ()),
        ("selective", "2", "op", ("activation_checkpoint.selective_ac_option 2",)),
        ("full", "2", "full", ()),
        ("none", "2", "none", ()),
        ("memory_budget", "op", "op", ("activation_checkpoint.mode memory_budget",)),
    ],
)
def test_recomputation_that_is_not_counted_is_named(
    mode: str, option: str, recomputation: str, unread: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "train.toml"
    path.write_text(FILE + CHECKPOINTS.format(mode, option))
    started = read_configuration(f"torchrun --nproc-per-node 8 -m torchtitan.train --job.config-file {path}", None)
    assert (started.grid.recomputation, started.unread) == (recomputation, unread)


def test_options_with_hyphens_are_those_with_underscores() -> None:
    said = "--parallelism.tensor-parallel-degree 4 --training.local-batch-size 2 activation-checkpoint:full"
    started = read_configuration(f"{LINE} {said}", None)
    assert started.grid == read_configuration(f"{LINE} {said.replace('-', '_').replace('__', '--')}", None).grid
    assert (started.grid.tensor, started.grid.microbatch, started.grid.recomputation) == (4, 2, "full")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("data_parallel_shard_degree 4", "degree is 1: it and shard 4 multiply to the 16 replicas of 16 devices"),
        ("data_parallel_replicate_degree 3", "degree is 3: it and shard 5 multiply to the 16 replicas"),
        ("pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatch_size 3", "divides local_batch_size, 8"),
    ],
)
def test_what_torchtitan_refuses(said: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_configuration(f"{LINE} --parallelism.{said}", None)
