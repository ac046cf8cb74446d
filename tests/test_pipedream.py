"""Import of PipeDream's graph.txt: against the published figures, and line by line on a small file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.errors import InputError
from simulator.workload import Geometry
from traces.imports.pipedream import read_pipedream

BATCH = {
    "alexnet": 256,
    "densenet121": 64,
    "gnmt": 32,
    "gnmt_large": 128,
    "inception_v3": 128,
    "resnet101": 64,
    "resnet18": 256,
    "resnet50": 128,
    "resnext101": 64,
    "resnext50": 128,
    "squeezenet1_0": 256,
    "vgg16": 128,
}
# one sample's forward pass of the published networks, multiply-adds x 2 (AvgPool to 1000 classes included)
GFLOPS = {"vgg16": 30.94, "resnet50": 8.18, "resnet18": 3.63, "resnet101": 15.60, "alexnet": 1.43}

TIMES = "forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}"
SMALL = "\n".join(
    [
        "node3 -- ReLU(inplace) -- " + TIMES.format(0.5, 0.25, 2048.0, 0.0),
        "node1 -- Input -- " + TIMES.format(9.0, 0.0, 768.0, 0.0),
        "node2 -- Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)) -- "
        + TIMES.format(1.5, 3.0, 2048.0, 896.0),
        "node4 -- Size(0) -- " + TIMES.format(0.0, 0.0, 4.0, 0.0),
        "node5 -- View(-1) -- " + TIMES.format(0.0, 0.0, 2048.0, 0.0),
        "node6 -- Linear(in_features=128, out_features=10, bias=True) -- " + TIMES.format(0.1, 0.2, 160.0, 5160.0),
        "node7 -- LSTM(10, 6) -- " + TIMES.format(2.0, "[1.0; 0.5]", "[96.0; 24.0; 24.0]", 0.0),
        *(f"\tnode{a} -- node{b}" for a, b in ((1, 2), (2, 3), (3, 4), (3, 5), (4, 5), (5, 6), (6, 7))),
    ]
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.txt"
    path.write_text(SMALL)
    return path


def test_small_file_becomes_a_chain_without_its_input_and_its_diamond(small: Path) -> None:
    profile = read_pipedream(small, 4)
    assert profile.model == "small"
    assert [(layer.name, layer.kind, layer.inputs) for layer in profile.layers] == [
        ("node2", "conv2d", ()),
        ("node3", "relu", ("node2",)),
        ("node5", "flatten", ("node3",)),
        ("node6", "linear", ("node5",)),
        ("node7", "lstm", ("node6",)),
    ]


def test_small_file_gives_shapes_sizes_and_geometry(small: Path) -> None:
    conv, relu, flatten, linear, lstm = read_pipedream(small, 4).layers
    assert [layer.output_shape for layer in (conv, relu, flatten)] == [(8, 4, 4), (8, 4, 4), (128, 1, 1)]
    assert (linear.output_shape, lstm.output_shape) == ((10, 1, 1), (6, 1, 1))
    assert conv.geometry == Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True)
    assert (conv.forward_s, conv.backward_s) == (1.5e-3, 3.0e-3)
    assert lstm.output_bytes == 144
    assert lstm.backward_s == pytest.approx(1.5e-3)
    assert (conv.flops, linear.flops) == (2 * 4 * 8 * 16 * 27, 2 * 4 * 10 * 128)
    assert [layer.saved_bytes for layer in (conv, relu, flatten, linear)] == [2048, 0, 0, 160]


@pytest.mark.parametrize("name", BATCH)
def test_every_file_keeps_its_times_and_parameters(shared_data: Path, name: str) -> None:
    path = shared_data / "pipedream" / f"{name}.txt"
    rows = re.findall(
        r"^\w+ -- (?!Input).*forward_compute_time=([\d.]+), backward_compute_time=([\d.]+),.*parameter_size=([\d.]+)",
        path.read_text(),
        re.MULTILINE,
    )
    profile = read_pipedream(path, BATCH[name])
    assert profile.layers_s == pytest.approx(sum(float(f) + float(b) for f, b, _ in rows) / 1e3, rel=1e-9)
    assert profile.parameter_bytes == sum(float(size) for *_, size in rows)
    assert all(not layer.kind.startswith(("input", "size")) for layer in profile.layers)


@pytest.mark.parametrize(("name", "megabytes"), [("vgg16", 51.85), ("resnet50", 9.57), ("gnmt", 72.67)])
def test_data_parallelism_on_4_gpus_sends_what_pipedream_published(
    shared_data: Path, name: str, megabytes: float
) -> None:
    """Bytes per sample of a ring over 4 workers with batch 64: 2 * 3 * |w| / 64."""
    profile = read_pipedream(shared_data / "pipedream" / f"{name}.txt", BATCH[name])
    assert 6 * profile.parameter_bytes / 64 / 1e6 == pytest.approx(megabytes, rel=2e-3)


def test_parameter_server_volume_of_vgg16_on_4_gpus(shared_data: Path) -> None:
    profile = read_pipedream(shared_data / "pipedream" / "vgg16.txt", 128)
    assert 8 * profile.parameter_bytes / 2**30 == pytest.approx(4.12, abs=0.005)


@pytest.mark.parametrize(("name", "gflops"), GFLOPS.items())
def test_flops_of_known_networks(shared_data: Path, name: str, gflops: float) -> None:
    profile = read_pipedream(shared_data / "pipedream" / f"{name}.txt", BATCH[name])
    assert sum(layer.flops for layer in profile.layers) / BATCH[name] / 1e9 == pytest.approx(gflops, rel=2e-3)


@pytest.mark.parametrize("name", ["inception_v3", "densenet121", "squeezenet1_0"])
def test_concatenations_join_the_channels_of_their_inputs(shared_data: Path, name: str) -> None:
    profile = read_pipedream(shared_data / "pipedream" / f"{name}.txt", BATCH[name])
    joins = [layer for layer in profile.layers if layer.kind == "concat"]
    assert len(joins) >= 8
    for layer in joins:
        assert layer.channels == sum(profile.layers[profile.index[source]].channels for source in layer.inputs)
        assert layer.output_bytes == sum(profile.layers[profile.index[source]].output_bytes for source in layer.inputs)


def test_residual_adds_have_two_inputs(shared_data: Path) -> None:
    profile = read_pipedream(shared_data / "pipedream" / "resnet50.txt", 128)
    adds = [layer for layer in profile.layers if layer.kind == "add"]
    assert [len(layer.inputs) for layer in adds] == [2] * 16


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("forward_compute_time=1.5", "forward_compute_time=fast", "line 3: 'fast'"),
        ("forward_compute_time=1.5", "forward_compute_time=-1", "line 3: '-1'"),
        ("backward_compute_time=3.0, ", "", "line 3: .*backward_compute_time"),
        ("node4 -- Size(0)", "node3 -- Size(0)", "line 4: 'node3 -- Size"),
        ("\tnode2 -- node3", "\tnode2 -- node9", "line 9: 'node9'"),
        ("\tnode2 -- node3", "\tnode3 -- node2\n\tnode2 -- node3", "cycle"),
        ("node1 -- Input", "nonsense", "line 2: 'nonsense"),
        ("kernel_size=(3, 3), ", "", "node2: its description as Conv2d lacks or mistypes 'kernel_size'"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(small: Path, old: str, new: str, message: str) -> None:
    small.write_text(SMALL.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_pipedream(small, 4)


def test_a_batch_size_that_cannot_be_is_refused(small: Path) -> None:
    with pytest.raises(InputError, match=r"batch_size is 3: .* 2048 bytes"):
        read_pipedream(small, 3)
    with pytest.raises(InputError, match="batch_size is 0"):
        read_pipedream(small, 0)


def test_files_that_are_no_graph_are_refused(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary.txt"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it has no nodes"):
        read_pipedream(empty, 4)
    with pytest.raises(InputError, match="it is not text"):
        read_pipedream(binary, 4)
