"""What an exported script shares out and keeps is what the runtime has, or the nearest and said so."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import exported

from simulator.exports.launch import launch_command
from simulator.language_models.card_files import read_card
from simulator.language_models.training_grid import TrainingGrid

DIGITS = ("vgg_digits", "--cluster", "p3-16xlarge", "--strategy", "data", "--batch-size", "16")
MODEL = ("--model", "traces.zoo.networks:vgg_digits", "--input-shape", "1x8x8")


@pytest.mark.parametrize(
    ("options", "mesh", "reshards", "kept"),
    [
        (("--zero", "3"), "{'mesh_shape': (8,)}", True, ""),
        (
            ("--zero", "3", "--shard-group", "4"),
            "{'mesh_shape': (2, 4), 'mesh_dim_names': ('replicate', 'shard')}",
            True,
            "",
        ),
        (("--zero", "2"), "{'mesh_shape': (8,)}", False, ""),
        (("--zero", "1"), "{'mesh_shape': (8,)}", False, "parameters and gradients are sharded"),
        ((), "{'mesh_shape': (8,)}", False, "parameters, gradients and optimizer state are sharded"),
    ],
)
def test_fsdp2_shares_out_what_the_plan_does(
    options: tuple[str, ...], mesh: str, reshards: bool, kept: str, tmp_path: Path
) -> None:
    text = exported(tmp_path, (*DIGITS, *options), "fsdp2", *MODEL)
    assert f"MESH = {mesh}\nRESHARD = {reshards} " in text
    assert kept in text and ("which the plan keeps whole" in text) == bool(kept)


@pytest.mark.parametrize(
    ("optimizer", "line", "said"),
    [
        ("sgd", "torch.optim.SGD(parameters, lr=1e-3)\n", ""),
        ("momentum", "momentum=0.9", ""),
        ("adam", "torch.optim.AdamW(", ""),
        (
            "mixed-adam",
            "torch.optim.AdamW(",
            "torch.optim.AdamW keeps 2 bytes of state per byte of parameters; the plan 6",
        ),
    ],
)
def test_the_optimizer_is_the_nearest(optimizer: str, line: str, said: str, tmp_path: Path) -> None:
    text = exported(tmp_path, (*DIGITS, "--optimizer", optimizer), "ddp", *MODEL)
    assert line in text and said in text and ("bytes of state" in text) == bool(said)


def test_fsdp2_names_the_dimensions_of_its_mesh() -> None:
    """Without names torch refuses a mesh of two dimensions."""
    line = launch_command("fsdp2", read_card("llama3-8b"), TrainingGrid(data=16, zero_stage=3, shard_group=8))
    assert "\"cuda\", mesh_shape=(2, 8), mesh_dim_names=('replicate', 'shard'))" in line
