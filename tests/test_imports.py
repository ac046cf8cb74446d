"""The registry of formats, the importers of tables, and damaged files of all formats."""

from __future__ import annotations

import copy
import gzip
import json
import random
import statistics
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator import files
from simulator.cli import main
from simulator.errors import InputError, ShardscopeError
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
    assert main(["import", str(trace), "--model", "resnet50", *output]) == 2
    assert "pip install 'shardscope[capture]'" in capsys.readouterr().err


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


# Damaged files: one line, no traceback.

WEIRD: tuple[Any, ...] = (None, -1, 0, 1e308, float("nan"), "x", "", [], {}, [[]], True, 10**400, "9" * 5000, {"a": {}})


def _mangled_text(text: str, generator: random.Random) -> str:
    """A piece cut out, doubled, replaced, or the end cut off."""
    start = generator.randrange(len(text))
    end = min(start + generator.choice((1, 3, 40, 2000)), len(text))
    piece = generator.choice(("", text[start:end] * 2, "\x00", "é", "1e999", "-", "[", '"', "nan", "\n", "9" * 4400))
    return text[:start] + (piece + text[end:] if generator.random() < 0.8 else "")


def _mangled_json(text: str, generator: random.Random) -> str:
    """One to four values replaced by others of any kind, or keys taken out."""
    content = json.loads(text)
    for _ in range(generator.randrange(1, 5)):
        spot: Any = content
        for _ in range(generator.randrange(1, 6)):
            keys = list(spot) if isinstance(spot, dict) else range(len(spot)) if isinstance(spot, list) else []
            if not keys:
                break
            key = generator.choice(list(keys))
            if generator.random() < 0.3 or not isinstance(spot[key], (dict, list)):
                if isinstance(spot, dict) and generator.random() < 0.3:
                    del spot[key]
                else:
                    spot[key] = copy.deepcopy(generator.choice(WEIRD))
                break
            spot = spot[key]
    return json.dumps(content)


def _fuzzed(
    path: Path, text: str, options: ImportOptions, mangle: Callable[[str, random.Random], str], count: int
) -> tuple[int, int]:
    """How many damaged files were refused, and how many made a profile nevertheless."""
    refused = accepted = 0
    for seed in range(count):
        generator = random.Random(seed)
        damaged = mangle(text, generator).encode("utf-8", errors="surrogatepass")
        path.write_bytes(gzip.compress(damaged)[: generator.choice((None, -9, 200))] if seed % 10 == 9 else damaged)
        try:
            imported = import_files([path], options)
            if imported.profile is not None:
                files.write_profile(imported.profile, path.with_suffix(".out"))
            accepted += 1
        except ShardscopeError as error:
            assert "\n" not in str(error) and len(str(error)) < 600, str(error)[:900]
            refused += 1
    return refused, accepted


@pytest.mark.parametrize("mangle", [_mangled_text, _mangled_json])
def test_damaged_traces_of_torch_are_refused_in_one_line(
    mangle: Callable[[str, random.Random], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_kineto import TINY, Drawing

    from traces.zoo.networks import ZOO

    monkeypatch.setitem(ZOO, "tiny", TINY)
    drawing = Drawing()
    for number in range(2):
        drawing.step(number)
    text = drawing.write(tmp_path / "t.json").read_text()
    options = ImportOptions(model="tiny", batch_sizes=(4,), force=True)
    refused, accepted = _fuzzed(tmp_path / "f.json", text, options, mangle, 150)
    assert refused > 30 and accepted > 10


@pytest.mark.parametrize(
    ("source", "name", "options"),
    [
        ("pipedream/vgg16.txt", "vgg16.txt", ImportOptions(batch_sizes=(128,))),
        ("triosim/vgg13/trace.csv.gz", "trace.csv", ImportOptions(model="vgg13")),
        (
            "neusight/Tesla_V100-PCIE-32GB/bert_large-train-512-8.csv.gz",
            "V/bert_large-train-512-8.csv",
            ImportOptions(),
        ),
        ("nccl/nccl_8.log", "nccl_8.log", ImportOptions()),
    ],
)
def test_damaged_tables_are_refused_in_one_line(
    shared_data: Path, tmp_path: Path, source: str, name: str, options: ImportOptions
) -> None:
    path = shared_data / source
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    target = tmp_path / name
    target.parent.mkdir(exist_ok=True)
    for other in path.parent.glob("*.json"):
        (target.parent / other.name).write_bytes(other.read_bytes())
    if (path.parent.parent / "DLmodel_configs").is_dir():
        (tmp_path / "DLmodel_configs").mkdir()
        for other in (path.parent.parent / "DLmodel_configs").glob("*.json"):
            (tmp_path / "DLmodel_configs" / other.name).write_bytes(other.read_bytes())
    refused, accepted = _fuzzed(target, text, options, _mangled_text, 60)
    assert refused > 5 and accepted > 0


@pytest.mark.parametrize("mangle", [_mangled_text, _mangled_json])
def test_damaged_profiles_of_sailor_are_refused_in_one_line(
    shared_data: Path, tmp_path: Path, mangle: Callable[[str, random.Random], str]
) -> None:
    source = shared_data / "sailor" / "profiles" / "OPT-350" / "GH-96" / "profile.json"
    target = tmp_path / "profiles" / "OPT-350" / "GH-96" / "profile.json"
    target.parent.mkdir(parents=True)
    (tmp_path / "llm_info.json").write_bytes((shared_data / "sailor" / "llm_info.json").read_bytes())
    refused, accepted = _fuzzed(target, source.read_text(), ImportOptions(), mangle, 60)
    assert refused + accepted == 60


def test_damaged_tables_of_aceso_are_refused_in_one_line(aceso: Path) -> None:
    for name in ("gpt_1_3B_mbs4_tp1_algo0.csv", "resnet_500M_mbs32_tp1_algo0.csv"):
        path = aceso / name
        refused, accepted = _fuzzed(path, path.read_text(), ImportOptions(), _mangled_text, 60)
        assert refused > 5 and accepted > 0
