"""The registry of formats, and the importers of tables."""

from __future__ import annotations

import json
import random
import statistics
import sys
import tarfile
from pathlib import Path

import pytest

from simulator.cli import main
from simulator.errors import InputError
from simulator.network.catalogue import read_cluster
from traces.imports._alignment import align
from traces.imports._imported import ImportOptions
from traces.imports._registry import formats, import_files, recognised


@pytest.fixture
def aceso(shared_data: Path, tmp_path: Path) -> Path:
    with tarfile.open(shared_data / "aceso" / "visible.tar.gz") as file:
        file.extractall(tmp_path / "aceso", filter="data")
    return tmp_path / "aceso"


# The registry.


def test_every_file_of_the_folder_is_a_format() -> None:
    assert formats() == ("aceso", "bytedance", "kineto", "nccl_tests", "neusight", "pipedream", "sailor", "triosim")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("kineto/resnet*.json.gz", "kineto"),
        ("pipedream/*16.txt", "pipedream"),
        ("pipedream/gnmt.txt", "pipedream"),
        ("triosim/*/trace.csv.gz", "triosim"),
        ("neusight/*/*.csv.gz", "neusight"),
        ("sailor/profiles/OPT-350/*/profile.json", "sailor"),
        ("nccl/nccl_*.log", "nccl_tests"),
        ("bytedance/data/timeline-*.json.gz", "bytedance"),
    ],
)
def test_published_files_are_recognised(shared_data: Path, pattern: str, name: str) -> None:
    paths = sorted(shared_data.glob(pattern))
    assert paths
    for path in paths:
        assert recognised(path).__name__ == f"traces.imports.{name}"


def test_a_file_of_no_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match="of no known format; known: aceso, bytedance"):
        import_files([path], ImportOptions())


def test_only_traces_without_their_network_need_torch(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "traces"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    output = ["--output", str(tmp_path / "p.json")]
    assert main(["import", str(shared_data / "pipedream" / "vgg16.txt"), "--batch-size", "128", *output]) == 0
    trace = shared_data / "kineto" / "resnet50-v100-step.json.gz"
    capsys.readouterr()
    assert main(["import", str(shared_data / "pipedream" / "vgg16.txt"), "--batch-size", "128", *output, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == {"schema", "written", "remarks"} and list(printed["written"]) == output[1:]
    assert main(["import", str(trace), "--model", "resnet50", *output]) == 2
    assert (
        f"needs torch, which is not installed: {sys.executable} -m pip install 'torch>=2.6'" in capsys.readouterr().err
    )


def test_the_command_writes_a_profile_and_a_clusters_curves(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [str(shared_data / "nccl" / f"nccl_{devices}.log") for devices in (2, 8)]
    output = tmp_path / "cluster.yaml"
    assert main(["import", *logs, "--cluster", "dgx-a100", "--cluster-output", str(output)]) == 0
    cluster = read_cluster(output)
    assert sorted(cluster.collectives["all_reduce"]) == [2, 8]
    assert main(["import", *logs, "--output", str(tmp_path / "p.json")]) == 2
    assert "it holds no layers" in capsys.readouterr().err


# Longest common subsequences.


def test_alignment_finds_the_longest_common_subsequence() -> None:
    assert align("abcabba", "cbabac") == [(2, 0), (3, 2), (4, 3), (6, 4)]  # Myers' example: four letters
    assert align("abc", "abc") == [(0, 0), (1, 1), (2, 2)]
    assert align("abc", "xyz") == []
    assert align("", "abc") == []
    assert align("ab" * 1200, "cd" * 1200) is None


def test_alignment_is_as_long_as_the_table_says() -> None:
    generator = random.Random(0)
    for _ in range(300):
        left, right = ("".join(generator.choices("abc", k=generator.randrange(10))) for _ in range(2))
        pairs = align(left, right)
        assert pairs is not None and all(left[i] == right[j] for i, j in pairs)
        assert pairs == sorted(set(pairs)) and len({j for _, j in pairs}) == len(pairs) == _longest(left, right)


def _longest(left: str, right: str) -> int:
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


# Tables.


@pytest.mark.parametrize(("model", "milliseconds"), [("resnet50", 70.723), ("vgg13", 94.04)])
def test_triosim_keeps_every_microsecond_of_its_no_overlap_column(
    shared_data: Path, model: str, milliseconds: float
) -> None:
    options = ImportOptions(model=model)
    profile = import_files([shared_data / "triosim" / model / "trace.csv.gz"], options).profile
    assert profile is not None and profile.batch_size == 128
    assert profile.layers_s * 1e3 == pytest.approx(milliseconds, abs=0.01)


def test_triosim_of_another_model_is_refused(shared_data: Path) -> None:
    with pytest.raises(InputError, match="name the model that was traced"):
        import_files([shared_data / "triosim" / "resnet50" / "trace.csv.gz"], ImportOptions(model="resnet18"))


def test_neusight_repeats_its_block_and_adds_up_to_the_measured_model(shared_data: Path) -> None:
    folder = shared_data / "neusight" / "NVIDIA_H100_80GB_HBM3"
    paths = [folder / f"gpt2_large-train-1024-{batch}.csv.gz" for batch in (1, 4)]
    profile = import_files(paths, ImportOptions()).profile
    assert profile is not None and profile.batch_size == 4
    assert profile.layers_to_step == pytest.approx(1.025, abs=0.001)
    kinds = [layer.kind for layer in profile.layers if layer.name.startswith("transformer.h.7.")]
    assert [kinds.count(kind) for kind in ("linear", "attention", "layernorm", "add", "gelu")] == [4, 1, 2, 2, 1]
    assert profile.layers[profile.index["transformer.h.7.ln_1"]].inputs == ("transformer.h.6.add#2",)
    assert all([point.batch_size for point in layer.scaling] == [1] for layer in profile.layers)


def test_acesos_shards_of_gpt_are_those_of_one_device_without_the_all_reduce(aceso: Path) -> None:
    """A half of a linear layer takes 0.85 to 1.35 of half the time; its rows, with the all-reduce, up to 3.3 times."""
    profile = import_files(sorted(aceso.glob("gpt_1_3B_mbs*_algo0.csv")), ImportOptions()).profile
    assert profile is not None and (profile.batch_size, len(profile.layers)) == (8, 3 + 24 * 10)
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


def test_acesos_wide_resnet_has_points_of_convolutions_without_their_collectives(aceso: Path) -> None:
    """Halves take 1.05 of half the time, quarters 1.2; their rows, with gathers and sums, up to 5 times."""
    profile = import_files(sorted(aceso.glob("resnet_500M_mbs*_algo0.csv")), ImportOptions()).profile
    assert profile is not None and profile.batch_size == 64
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
        profile = import_files([path], ImportOptions(tensor_parallel=degree)).profile
        assert profile is not None and profile.batch_size == batch_size
        assert min(point.batch_size for point in profile.layers[1].scaling) == 2
        assert profile.layers[1].output_shape == (1024, 2048, 1)
    with pytest.raises(InputError, match="no rows of degree 3"):
        import_files([path], ImportOptions(tensor_parallel=3))
