"""torch.profiler traces become profiles: the published ones, drawn ones, refused ones, and one recorded here."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machines.kineto_capture import recorded
from benchmarks.robustness.drawn_traces import TINY, Drawing, drawn
from simulator.errors import InputError
from traces.capture.command import capture
from traces.imports import _kineto
from traces.imports._attribution import UNMATCHED, RecordedStep, _Owners, attribute
from traces.imports._collectives import collective_call, curves, is_collective
from traces.imports._imported import ImportOptions
from traces.imports._recording import Work, read_recording
from traces.imports._structure import structure
from traces.imports.kineto import read, recognises
from traces.zoo.networks import ZOO, Decoder, Network, vision_transformer

TRACES = {
    "resnet50-v100-step": ("resnet50", 32, "float32", 181),
    "resnet50-2xa100-ddp-step": ("resnet50", 32, "float32", 181),
    "resnet18-mi300x-step": ("resnet18", 10, "bfloat16", 71),
}


once = cache(structure)


@pytest.fixture(autouse=True)
def _a_network_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, whoever asks for its structure."""
    monkeypatch.setattr(_kineto, "structure", once)


def steps_of(shared_data: Path, name: str) -> list[RecordedStep]:
    model, batch_size, dtype, _ = TRACES[name]
    recording = read_recording(shared_data / "kineto" / f"{name}.json.gz")
    return attribute(recording, once(ZOO[model], batch_size, dtype))[0]


# Published traces.


@pytest.mark.parametrize("name", TRACES)
def test_every_backward_operator_finds_its_layer(shared_data: Path, name: str) -> None:
    (step,) = steps_of(shared_data, name)
    assert (step.paired, step.backward_operators) == (TRACES[name][3],) * 2


@pytest.mark.parametrize("name", TRACES)
def test_every_kernel_of_more_than_a_thousandth_is_attributed(
    shared_data: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = []
    of = _Owners.of
    monkeypatch.setattr(_Owners, "of", lambda self, work: owners.append((work, of(self, work)[0])) or of(self, work))
    (step,) = steps_of(shared_data, name)
    assert not step.unmatched_s and not step.without_operator_s
    assert len(owners) > 700
    large = [owner for work, owner in owners if work.duration_s > step.busy_s / 1000]
    assert len(large) > 20 and not any(str(owner).startswith(UNMATCHED) for owner in large)


def test_resnet50s_layers_on_a_v100_are_within_3_percent_of_its_steps(shared_data: Path) -> None:
    options = ImportOptions(model="resnet50", batch_sizes=(32,))
    for name in ("resnet50-v100-step", "resnet50-v100-full"):
        profile = read([shared_data / "kineto" / f"{name}.json.gz"], options).profile
        assert profile is not None and profile.step_s == pytest.approx(0.0956, rel=2e-3)
        assert profile.layers_to_step == pytest.approx(1, abs=0.03)
        assert profile.device == "Tesla V100-SXM2-32GB"


def test_the_host_bound_step_of_two_a100_says_so(shared_data: Path) -> None:
    options = ImportOptions(model="resnet50", batch_sizes=(32,))
    imported = read([shared_data / "kineto" / "resnet50-2xa100-ddp-step.json.gz"], options)
    profile, text = imported.profile, "\n".join(imported.remarks)
    assert profile is not None and profile.step_s is not None
    assert profile.step_s == pytest.approx(0.0383, rel=2e-3), "what it computed, not the 220 ms on the clock"
    assert profile.layers_to_step == pytest.approx(1, abs=0.03)
    assert profile.dtype == "tf32"
    assert "host-bound: the GPU was busy for 0.23" in text
    assert "all_reduce over 2: 5 per step" in text
    assert [size for size, _ in imported.collectives["all_reduce"][2].points] == [
        4 * elements for elements in (2_049_000, 2_431_040, 6_563_840, 6_637_568, 7_875_584)
    ]


def test_mi300x_says_batch_and_precision_itself_and_recomputes(shared_data: Path) -> None:
    imported = read([shared_data / "kineto" / "resnet18-mi300x-step.json.gz"], ImportOptions(model="resnet18"))
    profile = imported.profile
    assert profile is not None and (profile.batch_size, profile.dtype) == (10, "bfloat16")
    assert profile.layers_to_step == pytest.approx(1, abs=0.06)
    assert any("recomputed 1.39 ms" in line for line in imported.remarks)
    assert profile.parameter_bytes == 2 * 11_689_512


def test_a_truncated_file_is_refused(shared_data: Path) -> None:
    with pytest.raises(InputError, match="ends too early"):
        read([shared_data / "kineto" / "truncated.json.gz"], ImportOptions(model="resnet50"))


def test_another_model_is_refused(shared_data: Path) -> None:
    path = shared_data / "kineto" / "resnet18-mi300x-step.json.gz"
    with pytest.raises(InputError, match="name the model"):
        read([path], ImportOptions(model="resnet50"))
    with pytest.raises(InputError, match="name the model"):
        read([path], ImportOptions(model="vgg16", batch_sizes=(10,)))


# The structure on the meta device.


STRUCTURES = {
    "resnet_small": ZOO["resnet_small"],
    "vision transformer": Network(
        build=lambda: vision_transformer(side=32, patch=8, width=64, depth=2, heads=4, classes=10),
        input_shape=(3, 32, 32),
    ),
    "decoder": Network(
        build=lambda: Decoder(vocabulary=97, context=64, width=64, depth=2, heads=4), input_shape=(64,), vocabulary=97
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_meta_device_keeps_what_a_cpu_keeps(name: str) -> None:
    """Attention's saved bytes: the fused kernel's, to 24 bytes of random state."""
    network = STRUCTURES[name]
    profile = capture(network, 1, repeats=1, warmup=0, fractions=())
    layers = structure(network, 1, "float32").layers
    assert [layer.name for layer in layers] == [layer.name for layer in profile.layers]
    for layer, measured in zip(layers, profile.layers, strict=True):
        assert layer.saved_bytes == pytest.approx(measured.saved_bytes, abs=24)
        assert (layer.inputs, layer.output_shape) == (measured.inputs, measured.output_shape)
        assert (layer.output_bytes, layer.parameter_bytes) == (measured.output_bytes, measured.parameter_bytes)


# Drawn traces.


@pytest.fixture
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImportOptions]:
    monkeypatch.setitem(ZOO, "tiny", TINY)
    yield ImportOptions(model="tiny", batch_sizes=(4,))


def test_a_drawn_trace_gives_each_layer_its_kernels(tmp_path: Path, tiny_model: ImportOptions) -> None:
    imported = read([drawn(tmp_path / "t.json")], tiny_model)
    profile = imported.profile
    assert profile is not None and profile.device == "Drawn GPU"
    assert [(layer.forward_s, layer.backward_s) for layer in profile.layers] == [(1e-4, 1e-4)] * 4
    assert [layer.update_s for layer in profile.layers] == pytest.approx(
        [1e-4 * 144 / 212, 0, 1e-4 * 68 / 212, 0], rel=1e-5
    ), "shared out by parameters"
    assert profile.step_s == pytest.approx(9e-4, rel=0.02)
    assert "4 of 4 backward operators paired" in imported.remarks[-1]


def test_a_gzipped_trace_reads_alike(tmp_path: Path, tiny_model: ImportOptions) -> None:
    plain = drawn(tmp_path / "t.json")
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert recognises(plain.read_text()[:4096], plain)
    first, second = read([plain], tiny_model).profile, read([packed], tiny_model).profile
    assert first is not None and second is not None and first.layers == second.layers


def test_two_batch_sizes_become_a_profile_with_points(tmp_path: Path, tiny_model: ImportOptions) -> None:
    paths = [drawn(tmp_path / "a.json"), drawn(tmp_path / "b.json")]
    profile = read(paths, ImportOptions(model="tiny", batch_sizes=(2, 4))).profile
    assert profile is not None and profile.batch_size == 4
    assert [[point.batch_size for point in layer.scaling] for layer in profile.layers] == [[2]] * 4


def test_without_correlation_the_external_id_joins_kernel_and_operator(
    tmp_path: Path, tiny_model: ImportOptions
) -> None:
    drawing = Drawing()
    drawing.step(0)
    inner = {event["args"].get("correlation"): event for event in drawing.events if event["cat"] == "cuda_runtime"}
    operators = [event for event in drawing.events if event["cat"] == "cpu_op"]
    for event in drawing.events:
        if event["cat"] == "kernel":
            call = inner[event["args"]["correlation"]]
            around = next(
                op for op in operators if op["tid"] == call["tid"] and op["ts"] < call["ts"] < op["ts"] + op["dur"]
            )
            event["args"] = {"External id": around["args"]["External id"], "device": 0}
    drawing.events = [event for event in drawing.events if event["cat"] != "cuda_runtime"]
    profile = read([drawing.write(tmp_path / "t.json")], tiny_model).profile
    assert profile is not None and [layer.forward_s for layer in profile.layers] == [1e-4] * 4


def test_collectives_of_ranks_count_in_their_least_time(tmp_path: Path, tiny_model: ImportOptions) -> None:
    paths = []
    for rank, slow_us in enumerate((900, 400)):
        drawing = Drawing()
        drawing.step(0)
        for name, elements, dur in (
            ("ncclKernel_AllReduce_RING", 1000, slow_us),
            ("ncclDevKernel_Generic(x)", 8000, 700),
        ):
            about = {"Collective name": "allreduce", "In msg nelems": elements, "dtype": "Float", "Group size": 2}
            drawing.event("kernel", name, 300, dur, 20, {"correlation": 90 + rank, "External id": 0, **about})
        more = {"distributedInfo": {"rank": rank, "world_size": 2}}
        paths.append(drawing.write(tmp_path / f"{rank}.json", **more))
    imported = read(paths, tiny_model)
    assert imported.collectives["all_reduce"][2].points == (
        (4000.0, pytest.approx(4e-4)),
        (32000.0, pytest.approx(7e-4)),
    )
    assert imported.profile is not None and imported.profile.step_s == pytest.approx(9e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: [d.launch("graph", call="cudaGraphLaunch") for _ in range(3)], "kernels without operators are 25%"),
        (lambda d: [d.operator("Torch-Compiled Region: 0/0", kernel="triton_") for _ in range(3)], "operators are 25%"),
        (lambda d: d.operator("aten::bmm", kernel="extra"), "operator 'aten::bmm' has 10.00% of the time"),
    ],
)
def test_what_has_no_operator_or_no_layer_is_refused(
    change: Any, message: str, tmp_path: Path, tiny_model: ImportOptions
) -> None:
    drawing = Drawing()
    drawing.event("user_annotation", "ProfilerStep#0", 0, 2000, 1, {})
    drawing.step(1)
    drawing.events = [event for event in drawing.events if event["name"] != "ProfilerStep#1"]
    change(drawing)
    with pytest.raises(InputError, match=message):
        read([drawing.write(tmp_path / "t.json")], tiny_model)


def test_layers_that_do_not_make_the_step_are_refused_unless_forced(tmp_path: Path, tiny_model: ImportOptions) -> None:
    drawing = Drawing()
    drawing.step(0)
    drawing.events = [e for e in drawing.events if not e["name"].startswith("ProfilerStep")]
    for _ in range(8):
        drawing.operator("aten::copy_", kernel="Memcpy HtoD", thread=3)
    drawing.event("user_annotation", "ProfilerStep#0", 0, drawing.kernel_us, 1, {})
    path = drawing.write(tmp_path / "t.json")
    with pytest.raises(InputError, match=r"layers over step is 0\.\d+: .*--force"):
        read([path], tiny_model)
    forced = ImportOptions(model="tiny", batch_sizes=(4,), force=True)
    assert read([path], forced).profile is not None


def test_a_batch_size_is_needed_where_no_shapes_were_recorded(tmp_path: Path, tiny_model: ImportOptions) -> None:
    with pytest.raises(InputError, match="without record_shapes=True; give --batch-size"):
        read([drawn(tmp_path / "t.json")], ImportOptions(model="tiny"))
    with pytest.raises(InputError, match="model is missing"):
        read([drawn(tmp_path / "t.json")], ImportOptions())


# A trace recorded here.


def test_a_recorded_trace_says_batch_and_shapes_and_pairs_everything(tmp_path: Path) -> None:
    path = recorded(ZOO["resnet_small"], 4, tmp_path / "t.json", 2)
    imported = read([path], ImportOptions(model="resnet_small", force=True))
    assert imported.profile is not None
    assert (imported.profile.batch_size, len(imported.profile.layers)) == (4, 53)
    assert "56 of 56 backward operators paired" in imported.remarks[-1]
    assert all(layer.forward_s > 0 for layer in imported.profile.layers)


def test_a_foreign_model_takes_its_input_shape_from_the_trace(tmp_path: Path) -> None:
    path = recorded(ZOO["alexnet_small"], 3, tmp_path / "t.json", 1)
    imported = read([path], ImportOptions(model="traces.zoo.networks:alexnet_small", force=True))
    assert imported.profile is not None and imported.profile.batch_size == 3


def test_a_recorded_trace_has_the_layers_of_capture(tmp_path: Path) -> None:
    """How closely their times agree is printed by `python -m benchmarks.machines.kineto_capture`, on a calm machine."""
    path = recorded(ZOO["vgg_small"], 4, tmp_path / "t.json", 2)
    imported = read([path], ImportOptions(model="vgg_small", force=True))
    captured = capture("vgg_small", 4, repeats=1, warmup=1, fractions=())
    assert imported.profile is not None
    for layer, expected in zip(imported.profile.layers, captured.layers, strict=True):
        assert (layer.name, layer.kind, layer.inputs) == (expected.name, expected.kind, expected.inputs)
        assert (layer.parameter_bytes, layer.output_shape) == (expected.parameter_bytes, expected.output_shape)
        assert layer.forward_s > 0 and layer.backward_s > 0  # capture's is 0 where autograd's own cost is all of it
    pairs = re.search(r"(\d+) of (\d+) backward operators paired", imported.remarks[-1])
    assert pairs is not None and pairs[1] == pairs[2] and int(pairs[1]) > 20
    assert 0.02 < imported.profile.layers_s / captured.layers_s < 50
    ratio = imported.profile.layers_to_step
    assert ratio is not None and 0.1 < ratio < 1.3


def test_collectives_are_known_by_either_spelling() -> None:
    names = ("ncclKernel_AllReduce_RING_LL_Sum_float", "ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_Generic(x)")
    for name in (*names, "volta_sgemm"):
        work = Work(name=name, start_s=0, duration_s=1, arguments={}, origin=None)
        assert is_collective(work) == (name in names)


def a_collective(name: str, elements: int, dtype: str = "Float") -> Work:
    about = {"Collective name": name, "In msg nelems": elements, "dtype": dtype, "Group size": 4}
    return Work(name="ncclDevKernel_Generic(x)", start_s=0, duration_s=elements * 1e-6, arguments=about, origin=None)


@pytest.mark.parametrize(
    ("recorded", "name", "ranks"),
    [
        ("allreduce", "all_reduce", 1),
        ("allreduce_coalesced", "all_reduce", 1),
        ("broadcast", "broadcast", 1),
        ("reduce", "reduce", 1),
        ("reduce_scatter", "reduce_scatter", 1),  # its input is the sum before it is cut
        ("_reduce_scatter_base", "reduce_scatter", 1),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter", 1),
        ("all_gather", "all_gather", 4),  # its input is the part that one rank gives
        ("_allgather_base", "all_gather", 4),
        ("allgather_into_tensor_coalesced", "all_gather", 4),
        ("all_to_all", "all_to_all", 4),  # its input is what one rank sends
        ("all_to_allv", "all_to_all", 4),
        ("send", "send", 1),
    ],
)
def test_collectives_are_as_large_as_clusters_count_them(recorded: str, name: str, ranks: int) -> None:
    calls = [collective_call(a_collective(recorded, elements)) for elements in (1000, 8000)]
    assert [(call.name, call.size_bytes) for call in calls] == [(name, 4000 * ranks), (name, 32000 * ranks)]
    assert [size for size, _ in curves(calls)[name][4].points] == [4000 * ranks, 32000 * ranks]


def test_sizes_of_collectives_are_those_of_their_numbers_if_known() -> None:
    dtypes = {"Float8_e4m3fn": 1, "BFloat16": 2, "Short": 2, "Double": 8, "Undefined": 0}
    assert {t: collective_call(a_collective("allreduce", 10, t)).size_bytes // 10 for t in dtypes} == dtypes


def test_only_collectives_that_clusters_have_become_curves() -> None:
    """Those of a stage that receives are not: a cluster counts them where they are sent."""
    assert not curves([collective_call(a_collective(name, n)) for name in ("recv", "gather") for n in (1000, 8000)])


def test_a_long_trace_takes_little_more_than_its_text(tmp_path: Path) -> None:
    """Less than four bytes for each of the file's, text included: what nobody reads is dropped as it is parsed."""
    path, events = tmp_path / "trace.json", []
    for i in range(3000):
        about = {
            "External id": i,
            "Sequence number": i,
            "Input Dims": [[8, 1024], [1024, 1024]],
            "Input type": ["float"],
        }
        unread = {
            "Input Strides": [[1024, 1], [1024, 1]],
            "Concrete Inputs": ["", "", ""],
            "Ev Idx": i,
            "Fwd thread id": 0,
        }
        where = {"ph": "X", "pid": 1, "tid": 1, "ts": 100.0 * i, "dur": 50.0}
        events.append({**where, "cat": "cpu_op", "name": "aten::linear", "args": {**about, **unread}})
        occupancy = {f"counter {number}": [8, 16, 1] for number in range(8)}
        kernel = {"External id": i, "correlation": i, "device": 0, **occupancy}
        events.append({**where, "cat": "kernel", "name": "gemm", "tid": 7, "args": kernel})
    path.write_text(json.dumps({"traceEvents": events}))
    del events
    tracemalloc.start()
    recording = read_recording(path)
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 4 * path.stat().st_size
    assert len(recording.work) == len(recording.spans) == 3000
    assert dict(recording.spans[7].arguments) == {**about, "External id": 7, "Sequence number": 7}
    assert dict(recording.work[7].arguments) == {"External id": 7, "correlation": 7, "device": 0}
