"""PipeDream's published profiles, read in place, and the facts that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from partitioners import load
from simulator import files
from simulator.errors import InputError
from simulator.plan import Synchronisation
from simulator.topologies import Wire, flat_switch
from simulator.volume import communication_volume
from traces.pipedream import read_pipedream

BATCH = {
    "vgg16": 128, "resnet50": 128, "resnext50": 128, "inception_v3": 128, "alexnet": 256, "resnet18": 256,
    "squeezenet1_0": 256, "resnet101": 64, "resnext101": 64, "densenet121": 64, "gnmt": 32, "gnmt_large": 128,
}  # fmt: skip
TINY = """\
node1 -- Input0 -- forward_compute_time=9.0, backward_compute_time=0.0, activation_size=0.0, parameter_size=0.0
node2 -- Conv2d(3, 8, kernel_size=(3, 5), stride=(2, 2), padding=(1, 2), groups=1, bias=False) -- \
forward_compute_time=1.5, backward_compute_time=3.0, activation_size=2048.0, parameter_size=1440.0
node3 -- ReLU(inplace) -- forward_compute_time=0.5, backward_compute_time=0.25, activation_size=[1024.0; 1024.0], \
parameter_size=0.0
node4 -- Add -- forward_compute_time=0.1, backward_compute_time=0.1, activation_size=2048.0, parameter_size=0.0
node5 -- Size(0) -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=4.0, parameter_size=0.0
node6 -- View(-1) -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=2048.0, parameter_size=0.0
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
\tnode2 -- node4
\tnode4 -- node5
\tnode4 -- node6
\tnode5 -- node6
"""


def test_a_small_file_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "tiny.txt"
    path.write_text(TINY)
    profile = read_pipedream(path, batch_size=4)
    assert profile.model == "tiny"
    assert [(layer.name, layer.kind, layer.inputs) for layer in profile.layers] == [
        ("node2", "conv", ()),
        ("node3", "relu", ("node2",)),
        ("node4", "add", ("node3", "node2")),
        ("node6", "flatten", ("node4",)),
    ]
    conv, relu, add, view = profile.layers
    assert (conv.forward_s, conv.backward_s, conv.parameter_bytes) == (0.0015, 0.003, 1440)
    assert conv.output_shape == relu.output_shape == add.output_shape == (8, 4, 4)
    assert view.output_shape == (128, 1, 1)
    geometry = conv.geometry
    assert (geometry.kernel, geometry.stride, geometry.padding) == ((3, 5), (2, 2), (1, 2))
    assert geometry.mixes_channels and not relu.geometry.mixes_channels
    assert [layer.saved_bytes for layer in profile.layers] == [2048, 0, 2048, 0]


@pytest.mark.parametrize("name", sorted(BATCH))
def test_every_published_profile_keeps_its_sums(shared_data: Path, name: str, tmp_path: Path) -> None:
    """Parameters and times are those of the file's lines, shapes agree with sizes, and the file format holds it."""
    path = shared_data / "pipedream" / f"{name}.txt"
    profile = read_pipedream(path, batch_size=BATCH[name])
    lines = [line for line in path.read_text().splitlines() if " -- forward_compute_time" in line]
    lines = [line for line in lines if " -- Input" not in line]
    for field, found in (
        ("parameter_size", profile.parameter_bytes),
        ("forward_compute_time", sum(layer.forward_s for layer in profile.layers) * 1e3),
        ("backward_compute_time", sum(layer.backward_s for layer in profile.layers) * 1e3),
    ):
        stated = sum(
            float(x) for line in lines for x in line.partition(f"{field}=")[2].split(",")[0].strip("[]").split(";")
        )
        assert found == pytest.approx(stated, rel=1e-9)
    for layer in profile.layers:
        channels, height, width = layer.output_shape
        stated = 4 * BATCH[name] * channels * height * width
        assert layer.output_bytes == pytest.approx(stated, rel=0.05) or name.startswith("gnmt")
    files.write_profile(profile, str(tmp_path / "p.json"))
    assert files.read_profile(str(tmp_path / "p.json")).parameter_bytes == profile.parameter_bytes


@pytest.mark.parametrize(("name", "published_mb"), [("vgg16", 51.85), ("resnet50", 9.57), ("gnmt", 72.67)])
def test_pipedreams_data_parallel_bytes_per_sample(shared_data: Path, name: str, published_mb: float) -> None:
    """Narayanan et al., SOSP 2019: 6 |w| / 64 bytes per sample on 4 GPUs, as far as their digits go."""
    profile = read_pipedream(shared_data / "pipedream" / f"{name}.txt", batch_size=BATCH[name])
    cluster = flat_switch(4, Wire(bandwidth_bytes_per_s=1e9, latency_s=0.0))
    plan = load("data")(profile, cluster, batch_size=64)
    assert communication_volume(profile, cluster, plan).total / 64 / 1e6 == pytest.approx(published_mb, rel=2e-3)


def test_a_parameter_server_moves_8_times_vgg16s_parameters(shared_data: Path) -> None:
    """2 m |w| on 4 devices: 4.12 GiB (OptCNN's figure 8 reads 4.113)."""
    profile = read_pipedream(shared_data / "pipedream" / "vgg16.txt", batch_size=128)
    cluster = flat_switch(4, Wire(bandwidth_bytes_per_s=1e9, latency_s=0.0), servers=1)
    plan = load("data")(profile, cluster, batch_size=128, synchronisation=Synchronisation(collective="ps"))
    assert communication_volume(profile, cluster, plan).total / 2**30 == pytest.approx(4.12, abs=0.01)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node1 -- ReLU\n", "line 1 is 'node1 -- ReLU': a node is"),
        (TINY + "\tnode2\n", "line 14 is 'node2': an edge is"),
        (TINY.replace("=1.5", "=fast"), "line 2: could not convert string to float: 'fast'"),
        (TINY.replace("parameter_size=1440.0", "params=1440.0"), "line 2: 'parameter_size'"),
        (TINY + "\tnode6 -- node2\n", "edges form a cycle"),
        ("", "no node line"),
    ],
)
def test_a_bad_file_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_pipedream(path, batch_size=4)
