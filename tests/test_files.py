"""Files: what is written reads back the same, and bad input is one clear line with nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from hypothesis import given, settings
from random_inputs import clusters, profiles

from simulator import file_content, files
from simulator.cluster import Cluster, Device, Link
from simulator.curve import Curve
from simulator.errors import InputError, UnknownNameError
from simulator.network.catalogue import read_cluster, write_cluster
from simulator.plan import Plan, Sharding, Synchronisation
from simulator.workload import Geometry, Layer, Profile, ScalingPoint

CONV = Layer(
    name="conv",
    kind="conv",
    output_shape=(4, 8, 8),
    forward_s=1e-3,
    backward_s=2e-3,
    parameter_bytes=400,
    output_bytes=8192,
    geometry=Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True),
    scaling=(ScalingPoint(batch_size=4, forward_s=6e-4, backward_s=1e-3),),
)
POOL = Layer(
    name="pool",
    kind="pool",
    inputs=("conv",),
    output_shape=(4, 1, 1),
    forward_s=1e-4,
    backward_s=1e-4,
    output_bytes=128,
    geometry=Geometry(kernel=None),
)
PROFILE = Profile(model="tiny", device="none", batch_size=8, layers=(CONV, POOL), software={"torch": "2"})
PLAN = Plan(
    model="tiny",
    batch_size=8,
    microbatches=2,
    placements={"conv": Sharding(degrees=(2, 1, 1, 1), devices=(0, 1)), "pool": Sharding(devices=(1,))},
    synchronisation=Synchronisation(collective="ps"),
)
CLUSTER = Cluster(
    name="pair",
    devices=(Device(name="a", host="h", memory_bytes=2**30), Device(name="b", host="h", role="server")),
    links=(
        Link(source="a", target="b", bandwidth_bytes_per_s=1e9, latency_s=1e-6, tier="intra"),
        Link(source="b", target="a", bandwidth_bytes_per_s=1e9, curve=Curve(points=((1.0, 1e-6), (1e6, 1e-3)))),
    ),
    host_cores={"h": 2.0},
    collectives={"all_reduce": {2: Curve(points=((1.0, 1e-6), (1e6, 1e-3)))}},
)


def changed_profile(change: Callable[[dict[str, Any]], object], folder: Path) -> Path:
    """A profile file that `change` was let loose on."""
    path = folder / "profile.json"
    files.write_profile(PROFILE, path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


# What is written reads back the same.


def test_a_profile_a_plan_and_a_cluster_come_back_equal(tmp_path: Path) -> None:
    files.write_profile(PROFILE, tmp_path / "profile.json")
    files.write_plan(PLAN, tmp_path / "plan.json")
    write_cluster(CLUSTER, tmp_path / "cluster.yaml")
    assert files.read_profile(tmp_path / "profile.json") == PROFILE
    assert files.read_plan(tmp_path / "plan.json") == PLAN
    assert read_cluster(tmp_path / "cluster.yaml") == CLUSTER


@settings(max_examples=25, deadline=None)
@given(profile=profiles())
def test_any_profile_comes_back_equal(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("files") / "profile.json"
    files.write_profile(profile, path)
    assert files.read_profile(path) == profile


@settings(max_examples=25, deadline=None)
@given(cluster=clusters(max_servers=2))
def test_any_cluster_comes_back_equal(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("files") / "cluster.yaml"
    write_cluster(cluster, path)
    assert read_cluster(path) == cluster


def test_a_profile_file_has_one_layer_per_line_and_leaves_defaults_out(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    files.write_profile(PROFILE, path)
    lines = path.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["name"] for line in lines if '"name"' in line] == ["conv", "pool"]
    assert "update_s" not in path.read_text()
    assert "dilation" not in path.read_text()


def test_a_plan_file_has_one_placement_per_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    files.write_plan(PLAN, path)
    assert '  "conv": {"degrees": [2, 1, 1, 1], "devices": [0, 1]},' in path.read_text().splitlines()


# Unknown, missing and mistyped keys.


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda p: p.update(batchsize=8),
            "unknown key 'batchsize'; did you mean 'batch_size'? known: attribution, batch_size, ",
        ),
        (
            lambda p: p["layers"][1].update(forwards_s=1),
            "unknown key 'forwards_s' in layers[1]; did you mean 'forward_s'? known: accumulate_s, ",
        ),
        (
            lambda p: p["layers"][0]["geometry"].update(kernels=3),
            "unknown key 'kernels' in layers[0].geometry; did you mean 'kernel'? known: aligned_inputs, ",
        ),
        (lambda p: p["layers"][0]["scaling"][0].update(x=3), "unknown key 'x' in layers[0].scaling[0]; known: "),
        (
            lambda p: p["layers"][0].update(forward_ms=p["layers"][0].pop("forward_s")),
            "unknown key 'forward_ms' in layers[0]; did you mean 'forward_s'? known: ",
        ),
        (lambda p: p["layers"][0].pop("forward_s"), "forward_s is missing in layers[0]: it is required"),
        (lambda p: p.pop("model"), "model is missing: it is required"),
        (lambda p: p.update(batch_size="8"), 'batch_size is "8": it is a whole number'),
        (lambda p: p.update(batch_size=True), "batch_size is true: it is a whole number"),
        (lambda p: p["layers"][0].update(forward_s="1ms"), 'forward_s is "1ms" in layers[0]: it is a number'),
        (lambda p: p["layers"][0].update(output_shape=[4, 8]), "[2] is missing in layers[0].output_shape"),
        (lambda p: p.pop("schema"), "schema is missing: it is 1; is this a profile file?"),
        (lambda p: p.update(schema=2), "schema is 2: this version reads schema 1"),
        (lambda p: p.update(schema=True), "schema is true: this version reads schema 1"),
    ],
)
def test_a_wrong_key_is_named_with_its_place(
    change: Callable[[dict[str, Any]], object], expected: str, tmp_path: Path
) -> None:
    path = changed_profile(change, tmp_path)
    with pytest.raises(InputError, match=re.escape(f"{path}: {expected}")) as caught:
        files.read_profile(path)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda p: p["layers"][0].update(forward_s=-1), "layers[0]: layer 'conv': forward_s is -1.0: it is finite"),
        (lambda p: p["layers"][1].update(inputs=["con"]), "layer 'pool': inputs names 'con', which is no layer"),
        (lambda p: p["layers"][0].update(inputs=["pool"]), "layers: the graph has a cycle"),
        (lambda p: p.update(batch_size=0), "batch_size is 0: it is at least 1"),
        (lambda p: p["layers"][0]["scaling"][0].update(batch_size=0), "layers[0].scaling[0]: batch_size is 0"),
        (lambda p: p.update(layers=[]), "layers is []: a profile has at least one layer"),
    ],
)
def test_a_broken_rule_is_named_with_its_place(
    change: Callable[[dict[str, Any]], object], expected: str, tmp_path: Path
) -> None:
    path = changed_profile(change, tmp_path)
    with pytest.raises(InputError, match=re.escape(f"{path}: {expected}")) as caught:
        files.read_profile(path)
    assert "\n" not in str(caught.value)


def test_the_known_keys_of_every_level_are_found() -> None:
    assert file_content.keys_at(Profile, ()) == sorted(field.name for field in fields(Profile))
    assert file_content.keys_at(Cluster, ("links", 0, "curve")) == ["points"]
    assert file_content.keys_at(Cluster, ("collectives", "all_reduce", "2")) == ["points"]
    assert file_content.keys_at(Plan, ("placements", "conv")) == ["copy", "degrees", "devices", "reduce", "samples"]


# Broken text.


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_profile_says_where_it_ends(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    files.write_profile(PROFILE, path)
    text = path.read_text()
    path.write_text(text[: int(len(text) * keep)])
    with pytest.raises(InputError, match=r"profile.json: line \d+, column \d+: not valid JSON") as caught:
        files.read_profile(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1, column 1: not valid JSON, Expecting value; the file ends too early"),
        ("[1]", "holds [1]: a profile file is a mapping of keys to values"),
        ('{"schema": 1, "schema": 1}', "key 'schema' stands twice in one object; keep one"),
        ('{"schema": 1, "step_s": NaN}', "NaN is no number: quantities are finite"),
    ],
)
def test_text_that_is_no_profile(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(f"{path}: {expected}")):
        files.read_profile(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(b'{"model": "\xff"}')
    with pytest.raises(InputError, match="byte 11 is not UTF-8 text"):
        files.read_profile(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schema: 1\nname: [", r"line [23], column [18]: not valid YAML"),
        ("schema: 1\nschema: 1\n", r"line 2, column 1: not valid YAML, key 'schema' stands twice; keep one"),
        ("name: a\tb: c: d", r"line 1, column \d+: not valid YAML"),
        ("- 1", r"holds \[1\]: a cluster file is a mapping of keys to values"),
        ("schema: 1\nname: x\ndevices: []\nlink: []", r"unknown key 'link'; did you mean 'links'\?"),
        ("schema: 1\nname: x\ndevices: [{name: a, host: h, speed: fast}]", r'speed is "fast" in devices\[0\]'),
        (
            "schema: 1\nname: x\ndevices: [{name: a, host: h, role: king}]",
            r"role is \"king\" in devices\[0\]: it is 'w",
        ),
        ("schema: 1\nname: x\ndevices: [{name: !!python/name:os.system a, host: h}]", "not valid YAML"),
    ],
)
def test_a_bad_cluster_file_is_refused_in_one_line(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=expected) as caught:
        read_cluster(path)
    assert "\n" not in str(caught.value)


def test_numbers_with_an_exponent_need_no_decimal_point_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    link = "{source: a, target: b, bandwidth_bytes_per_s: 25e9, latency_s: 1e-6}"
    path.write_text(f"schema: 1\nname: x\ndevices: [{{name: a, host: h}}]\nlinks: [{link}]")
    (read,) = read_cluster(path).links
    assert (read.bandwidth_bytes_per_s, read.latency_s) == (25e9, 1e-6)


# Names, folders, devices.


def test_names_of_the_library_are_read_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library").mkdir()
    monkeypatch.setattr(files, "PROFILES", replace(files.PROFILES, folder=str(tmp_path / "library")))
    files.write_profile(PROFILE, tmp_path / "library" / "tiny.json")
    assert files.library() == ("tiny",)
    assert files.read_profile("tiny") == PROFILE
    with pytest.raises(UnknownNameError, match=r"unknown profile .* 'tinny', did you mean 'tiny'"):
        files.read_profile("tinny")


def test_every_profile_of_the_library_is_valid_and_says_where_it_is_from() -> None:
    for name in files.library():
        profile = files.read_profile(name)
        assert profile.device and profile.command, name
        captured, imported = (profile.date, profile.software), (profile.source, profile.licence, profile.attribution)
        assert all(captured) or all(imported), name


def test_a_missing_file_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        files.read_profile("no/such.json")


def test_devices_of_a_cluster_file_are_taken_in_order(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    devices = tuple(Device(name=f"d{i}", host=f"h{i}") for i in range(3))
    write_cluster(Cluster(name="x", devices=devices, host_cores={"h0": 1.0, "h2": 1.0}), path)
    taken = read_cluster(path, devices=2)
    assert [device.name for device in taken.devices] == ["d0", "d1"]
    assert taken.host_cores == {"h0": 1.0}
    with pytest.raises(InputError, match="devices is 4: cluster 'x' has 3 workers; use 1 to 3"):
        read_cluster(path, devices=4)
    with pytest.raises(InputError, match=r"servers is 1: .* is a file; list its servers there"):
        read_cluster(path, servers=1)


# Writing.


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")

    def fail(self: Path, target: Path) -> Path:
        raise OSError("disk on fire")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk on fire"):
        files.write_text_atomic(path, "after")
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


def test_a_number_that_json_lacks_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    files.write_plan(PLAN, path)
    bad = Plan(model="m", batch_size=1, placements={})
    object.__setattr__(bad, "optimizer_state", float("inf"))  # which the plan itself refuses
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_plan(bad, path)
    assert files.read_plan(path) == PLAN


def test_a_link_to_a_file_stays_a_link_and_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    files.write_text_atomic(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    files.write_text_atomic(os.devnull, "gone")
    assert Path(os.devnull).is_char_device()


def test_profiles_are_written_without_anything_but_the_standard_library(tmp_path: Path) -> None:
    """A machine that only has torch must be able to write what it captured."""
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['numpy', 'networkx', 'pydantic', 'yaml', 'simpy']))\n"
        "from simulator import files\n"
        "from simulator.workload import Layer, Profile\n"
        "layer = Layer(name='a', kind='conv', output_shape=(1, 1, 1), forward_s=0.1, backward_s=0.2, output_bytes=4)\n"
        "profile = Profile(model='m', device='d', batch_size=1, layers=(layer,))\n"
        f"files.write_profile(profile, {str(tmp_path / 'p.json')!r})"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
    assert files.read_profile(tmp_path / "p.json").layers[0].forward_s == 0.1


def test_a_written_cluster_is_plain_yaml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    write_cluster(CLUSTER, path)
    content = yaml.safe_load(path.read_text())
    assert content["schema"] == 1
    assert content["devices"][0] == {"name": "a", "host": "h", "memory_bytes": 2**30}


def test_a_full_disk_names_the_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own error has no name where the file was opened already."""

    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    for target in (tmp_path / "plan.json", Path(os.devnull)):
        with pytest.raises(OSError, match="No space left") as caught:
            files.write_text_atomic(target, "{}")
        assert caught.value.filename == str(target)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_standard_output_is_said() -> None:
    code = "import sys; from simulator.cli import main; sys.exit(main(['profiles']))"
    with open("/dev/full", "w") as out:
        completed = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True
        )
    assert completed.returncode == 2
    assert completed.stderr == "shardscope: standard output or a temporary file: No space left on device\n"
