"""Reads Aceso's tables of operators: MODEL_SIZE_mbsB_tpT_algoA.csv, a file per micro-batch and tensor-parallel degree.

    op_name,forward-compute,backward-compute,input_size,output_size,weights,activations,fwd_reserved,bwd_reserved

Microseconds and MiB. The networks are chains whose skip connections travel in the sizes. Files of one device (tp1) give
the layers and their batch points. Files of more devices, in the first of the two variants (algo0), give points at
fractions of the channels: of the output where an operator is column-parallel, as GPT's and all convolutions, of the
input where it is row-parallel. Such rows hold the communication of tensor parallelism: an all-reduce, and where
Wide-ResNet's outputs are gathered an all-gather. Tables prim_MODEL_SIZE_COLLECTIVE_Tgpus.csv beside them say how long
these take, and it is taken off; without them the points are left out. GPT is in float16, Wide-ResNet in float32; one
block of GPT's operators stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.artefacts._aceso_gpt import gpt_layers
from benchmarks.artefacts._aceso_resnet import resnet_layers
from benchmarks.artefacts._aceso_tables import read_table
from simulator.errors import InputError
from simulator.workload import Profile


def read(paths: Sequence[Path]) -> Profile:
    """The profile of one network from its files. Raises InputError naming file and rule."""
    tables = [read_table(path) for path in paths]
    model, size = tables[0].model, tables[0].size
    if {(table.model, table.size) for table in tables} != {(model, size)}:
        raise InputError(f"{paths[0]}: the files are of several networks; import one at a time")
    whole = {table.samples: table for table in tables if table.devices == 1}
    if not whole:
        raise InputError(f"{paths[0]}: none of the files is of one device; give the tp1 file of each micro-batch too")
    split = [table for table in tables if table.devices > 1]
    layers = gpt_layers(whole, split) if model == "gpt" else resnet_layers(whole, split)
    return Profile(
        model=f"{model}_{size}",
        device="Tesla V100-SXM2-32GB",
        batch_size=max(whole),
        dtype="float16" if model == "gpt" else "float32",
        notes=f"imported from Aceso's tables at micro-batches {sorted(whole)}; saved_bytes are Aceso's activations; "
        "neither update nor whole step were measured"
        + ("; collectives are taken off the times of tensor-parallel shards" if split else ""),
        layers=tuple(layers),
    )
