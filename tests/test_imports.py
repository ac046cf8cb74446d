"""The registry of formats, the command, and the table that anyone can fill."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from simulator.cli import main
from simulator.errors import InputError, UnknownNameError
from simulator.files import read_profile
from simulator.network.catalogue import read_cluster
from simulator.workload import Geometry
from traces.imports._attribution import align
from traces.imports._imported import ImportOptions
from traces.imports._registry import formats, import_files, recognised

# The registry.


def test_every_file_of_the_folder_is_a_format() -> None:
    assert formats() == ("kineto", "nccl_tests", "pipedream", "table")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("kineto/resnet*.json.gz", "kineto"),
        ("pipedream/*16.txt", "pipedream"),
        ("pipedream/gnmt.txt", "pipedream"),
        ("nccl/nccl_*.log", "nccl_tests"),
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
    with pytest.raises(InputError, match="of no known format; known: kineto, nccl_tests, pipedream, table"):
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
    two_nodes = str(shared_data / "nccl" / "nccl_16.log")
    assert main(["import", two_nodes, "--cluster", "dgx-a100", "--cluster-output", str(tmp_path / "two.yaml")]) == 0
    assert read_cluster(tmp_path / "two.yaml").workers == 16  # not the 8 of the preset, where none of it would count
    assert main(["import", two_nodes, "--cluster", str(output), "--cluster-output", str(tmp_path / "no.yaml")]) == 2
    assert main(["import", *logs, "--output", str(tmp_path / "p.json")]) == 2
    assert "it holds no layers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "options", "refused"),
    [
        ("table.csv", "--batch-size 8 --input-shape 3x3x3 --classes 3 --force", "--classes, --force, --input-shape: "),
        ("table.csv", "--batch-size 8 --ranks 2", "--ranks: does not count for "),
        ("pipedream/vgg16.txt", "--batch-size 128 --dtype bfloat16", "--dtype: "),
        ("nccl/nccl_8.log", "--batch-size 4 --device foo", "--batch-size, --device: does not count for "),
    ],
)
def test_options_that_a_format_does_not_read_are_refused(
    file: str, options: str, refused: str, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _table(tmp_path, HEAD, "a,linear,8,1ms,1ms") if file == "table.csv" else shared_data / file
    words = ["import", str(path), *options.split(), "--output", str(tmp_path / "p.json")]
    assert main(words) == 2
    assert f"shardscope: {refused}" in (error := capsys.readouterr().err) and error.endswith("; leave it out\n")


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


# The table of layers.

PAGE = Path(__file__).parent.parent / "docs" / "traces.md"
HEAD = "name,kind,output_shape,forward_s,backward_s"


def _table(folder: Path, *lines: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_table_on_the_page_is_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text().partition("```csv\n")[2].partition("```")[0]
    (tmp_path / "mine.csv").write_text(text)
    words = ["--batch-size", "32", "--device", "NVIDIA H100", "--output", str(tmp_path / "mine.json")]
    assert main(["import", str(tmp_path / "mine.csv"), *words]) == 0
    profile = read_profile(tmp_path / "mine.json")
    conv, relu, add, head = profile.layers
    assert (profile.model, profile.batch_size, profile.device) == ("mine", 32, "NVIDIA H100")
    assert (conv.forward_s, conv.backward_s, conv.parameter_bytes, conv.inputs) == (0.0012, 0.0025, 7168, ())
    assert conv.output_bytes == conv.saved_bytes == 32 * 4 * 64 * 32 * 32
    assert conv.geometry == Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True)
    assert (relu.inputs, relu.geometry, relu.saved_bytes) == (("conv",), Geometry(), 0)
    assert add.inputs == ("conv", "relu")
    assert (head.inputs, head.output_shape) == (("add",), (1000, 1, 1))
    assert head.geometry == Geometry(kernel=None, mixes_channels=True)
    assert (
        main(["simulate", str(tmp_path / "mine.json"), "--cluster", "dgx-h100", "--devices", "2", "--strategy", "data"])
        == 0
    )


def test_tables_at_several_batch_sizes_are_one_profile_with_points(tmp_path: Path) -> None:
    whole = _table(tmp_path, HEAD, "a,linear,8,2ms,4ms", "b,linear,8,1ms,1ms")
    half = _table(tmp_path, HEAD, "a,linear,8,1.5ms,3ms", "b,linear,8,0.8ms,0.9ms", name="half.csv")
    profile = import_files([half, whole], ImportOptions(batch_sizes=(4, 8), dtype="bfloat16")).profile
    assert profile is not None and (profile.batch_size, profile.layers[0].output_bytes) == (8, 8 * 8 * 2)
    assert [(point.batch_size, point.forward_s) for point in profile.layers[1].scaling] == [(4, 0.0008)]
    with pytest.raises(InputError, match=r"table.csv: 2 tables need as many sizes; say all, e.g. --batch-size"):
        import_files([half, whole], ImportOptions(batch_sizes=(8,)))
    other = _table(tmp_path, HEAD, "c,linear,8,1ms,1ms", name="other.csv")
    with pytest.raises(InputError, match="not of the same layers"):
        import_files([other, whole], ImportOptions(batch_sizes=(4, 8)))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("name,forward_s", "a,1ms"), "column 'kind' is missing: a table of layers has name, kind"),
        ((HEAD + ",parameter_byte", "a,linear,8,1ms,1ms,4"), "unknown column 'parameter_byte'.*parameter_bytes"),
        ((HEAD, "a,linear,8,1 week,1ms"), "layer 'a': forward_s: time '1 week'"),
        ((HEAD, "a,linear,8x-1,1ms,1ms"), "layer 'a': output_shape: '8x-1' is not a shape"),
        ((HEAD, "a,linear,8,-1,1ms"), "forward_s is -1"),
        ((HEAD, "a,linear,8,1ms"), "line 2: 4 cells: the first line names 5 columns"),
        ((HEAD, "a,linear,8,1ms,"), "backward_s is missing"),
        ((HEAD + ",inputs", "a,linear,8,1ms,1ms,", "b,linear,8,1ms,1ms,c"), "inputs names 'c', which is no layer"),
        ((HEAD, f"{'a' * 300},linear,8,1ms,1ms"), "is no name: it has 300 letters"),
        ((HEAD,), "layers"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path: Path, lines: tuple[str, ...], message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message) as refused:
        import_files([_table(tmp_path, *lines)], ImportOptions(batch_sizes=(8,)))
    assert "\n" not in str(refused.value) and "table.csv" in str(refused.value)


def test_a_table_needs_its_batch_size(tmp_path: Path) -> None:
    table = _table(tmp_path, HEAD, "a,linear,8,1ms,1ms")
    with pytest.raises(InputError, match=f"`shardscope import {table} --batch-size SAMPLES --output table.json`"):
        import_files([table], ImportOptions())
