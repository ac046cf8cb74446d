"""Readers of what single projects published: they keep what the files say, and refuse what they do not."""

from __future__ import annotations

import statistics
import tarfile
from pathlib import Path

import pytest

from benchmarks.artefacts import aceso, neusight, sailor, triosim
from simulator.errors import InputError


@pytest.fixture
def tables(shared_data: Path, tmp_path: Path) -> Path:
    with tarfile.open(shared_data / "aceso" / "visible.tar.gz") as file:
        file.extractall(tmp_path / "aceso", filter="data")
    return tmp_path / "aceso"


@pytest.mark.parametrize(("model", "milliseconds"), [("resnet50", 70.723), ("vgg13", 94.04)])
def test_triosim_keeps_every_microsecond_of_its_no_overlap_column(
    shared_data: Path, model: str, milliseconds: float
) -> None:
    profile = triosim.read(shared_data / "triosim" / model / "trace.csv.gz", model, "NVIDIA H100", "tf32")
    assert profile.batch_size == 128
    assert profile.layers_s * 1e3 == pytest.approx(milliseconds, abs=0.01)


def test_triosim_of_another_model_is_refused(shared_data: Path) -> None:
    with pytest.raises(InputError, match="name the model that was traced"):
        triosim.read(shared_data / "triosim" / "resnet50" / "trace.csv.gz", "resnet18", "NVIDIA H100", "tf32")


def test_neusight_repeats_its_block_and_adds_up_to_the_measured_model(shared_data: Path) -> None:
    folder = shared_data / "neusight" / "NVIDIA_H100_80GB_HBM3"
    paths = [folder / f"gpt2_large-train-1024-{batch}.csv.gz" for batch in (1, 4)]
    profile = neusight.read(paths)
    assert profile.batch_size == 4
    assert profile.layers_to_step == pytest.approx(1.025, abs=0.001)
    kinds = [layer.kind for layer in profile.layers if layer.name.startswith("transformer.h.7.")]
    assert [kinds.count(kind) for kind in ("linear", "attention", "layernorm", "add", "gelu")] == [4, 1, 2, 2, 1]
    assert profile.layers[profile.index["transformer.h.7.ln_1"]].inputs == ("transformer.h.6.add#2",)
    assert all([point.batch_size for point in layer.scaling] == [1] for layer in profile.layers)


def test_acesos_shards_of_gpt_are_those_of_one_device_without_the_all_reduce(tables: Path) -> None:
    """A half of a linear layer takes 0.85 to 1.35 of half the time; its rows, with the all-reduce, up to 3.3 times."""
    profile = aceso.read(sorted(tables.glob("gpt_1_3B_mbs*_algo0.csv")))
    assert (profile.batch_size, len(profile.layers)) == (8, 3 + 24 * 10)
    linear = [
        layer
        for layer in profile.layers
        if layer.name in ("blocks.0.qkv", "blocks.0.out", "blocks.0.fc", "blocks.0.proj")
    ]
    for layer, by_input in zip(linear, (False, True, False, True), strict=True):
        points = [
            point for point in layer.scaling if (point.input_channel_fraction < 1) == by_input and point.batch_size == 8
        ]
        half = next(p for p in points if min(p.channel_fraction, p.input_channel_fraction) == 0.5)
        assert 0.85 < 2 * half.forward_s / layer.forward_s < 1.35
        assert 0.85 < 2 * half.backward_s / layer.backward_s < 1.35


def test_acesos_wide_resnet_has_points_of_convolutions_without_their_collectives(tables: Path) -> None:
    """Halves take 1.05 of half the time, quarters 1.2; their rows, with gathers and sums, up to 5 times."""
    profile = aceso.read(sorted(tables.glob("resnet_500M_mbs*_algo0.csv")))
    assert profile.batch_size == 64
    ratios: dict[float, list[float]] = {}
    for layer in profile.layers:
        for p in layer.scaling:
            if p.batch_size == 64:
                share = (p.forward_s + p.backward_s) / (layer.forward_s + layer.backward_s)
                ratios.setdefault(p.channel_fraction, []).append(share / p.channel_fraction)
        assert layer.parameter_bytes or not any(p.channel_fraction < 1 for p in layer.scaling)
    assert {fraction: len(of) for fraction, of in ratios.items()} == {0.5: 53, 0.25: 53, 0.125: 42}
    assert statistics.median(ratios[0.5]) == pytest.approx(1.05, abs=0.01)
    assert statistics.median(ratios[0.25]) == pytest.approx(1.21, abs=0.01)
    assert statistics.median(ratios[0.125]) == pytest.approx(1.50, abs=0.01)
    assert [
        layer.output_shape for layer in profile.layers if layer.name in ("conv1", "maxpool", "block-3-2-conv3")
    ] == [
        (224, 112, 112),
        (224, 56, 56),
        (7168, 7, 7),
    ]


def test_sailor_drops_micro_batch_1_and_takes_a_group_as_a_device(shared_data: Path) -> None:
    path = shared_data / "sailor" / "profiles" / "OPT-350" / "GH-96" / "profile.json"
    for degree, batch_size in ((1, 32), (4, 128)):
        profile = sailor.read(path, degree, "NVIDIA GH200")
        assert profile.batch_size == batch_size
        assert min(point.batch_size for point in profile.layers[1].scaling) == 2
        assert profile.layers[1].output_shape == (1024, 2048, 1)
    with pytest.raises(InputError, match="no rows of degree 3"):
        sailor.read(path, 3, "NVIDIA GH200")
