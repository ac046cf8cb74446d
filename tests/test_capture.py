"""Capture: structure, sizes and gradients exactly; times loosely, as they are measured on a shared machine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from simulator import cli  # noqa: E402
from simulator.errors import InputError  # noqa: E402
from simulator.files import read_profile, write_profile  # noqa: E402
from simulator.workload import Geometry, Layer, Profile  # noqa: E402
from traces.capture import device_clocks  # noqa: E402
from traces.capture.allocations import Allocations  # noqa: E402
from traces.capture.command import capture, main  # noqa: E402
from traces.capture.measurement_rounds import MeasurementRounds, spread  # noqa: E402
from traces.zoo.blocks import Add, Concat  # noqa: E402
from traces.zoo.networks import Network  # noqa: E402

CPU = torch.device("cpu")
FLOAT = 4


class Tiny(nn.Module):
    """conv -> relu (in place) -> conv -+-> add -> pool -> flatten -> linear, with a skip around the second conv."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True)
        self.second, self.add = nn.Conv2d(8, 8, 1, bias=False), Add()
        self.pool, self.flatten, self.linear = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Any:
        x = self.relu(self.first(x))
        return self.linear(self.flatten(self.pool(self.add(self.second(x), x))))


class Functional(nn.Module):
    """Written in the style of torchvision: functions in forward, one ReLU module used twice, in-place addition."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.left, self.right = nn.Conv2d(8, 8, 1, groups=2), nn.Conv2d(8, 4, 3, stride=2, padding=1)
        self.shift, self.fc = nn.Parameter(torch.zeros(8, 1, 1)), nn.Linear(12 * 4, 5)

    def forward(self, x: Tensor) -> Any:
        x = self.relu(self.norm(self.stem(x)))
        first, second = torch.chunk(x, 2, 1)
        y = self.left(torch.cat([second, first], 1))
        y += x + self.shift
        y = functional.max_pool2d(functional.relu(y), 2)
        z = functional.avg_pool2d(self.relu(self.right(x)), 3, stride=1, padding=1)
        joined = functional.adaptive_avg_pool2d(torch.cat((y, z), dim=1), (2, 2))
        return self.fc(joined.view(joined.size(0), -1))


class Sequence_(nn.Module):
    """Tokens -> embedding -> LSTM -> norm -> tied output layer: a sequence whose last axis is channels."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(11, 6), nn.LSTM(6, 6, batch_first=True)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Any:
        hidden, _ = self.lstm(self.tokens(x))
        return self.head(self.norm(hidden))


TINY = Network(build=Tiny, input_shape=(3, 8, 8))
FUNCTIONAL = Network(build=Functional, input_shape=(3, 8, 8))
SEQUENCE = Network(build=Sequence_, input_shape=(7,), vocabulary=11)


def captured(network: Network | str, batch_size: int = 4) -> dict[str, Layer]:
    return {layer.name: layer for layer in capture(network, batch_size, repeats=1, warmup=0).layers}


def fractions_of(layer: Layer) -> list[float]:
    return [point.channel_fraction for point in layer.scaling if point.channel_fraction < 1]


@pytest.fixture(scope="module")
def tiny() -> dict[str, Layer]:
    return captured(TINY)


@pytest.fixture(scope="module")
def functional_net() -> dict[str, Layer]:
    return captured(FUNCTIONAL)


@pytest.fixture(scope="module")
def vgg_small() -> Profile:
    return capture("vgg_small", 4, repeats=3, warmup=1, command="by a test")


def test_layers_are_named_and_joined_as_in_the_drawing(tiny: dict[str, Layer]) -> None:
    assert {name: layer.inputs for name, layer in tiny.items()} == {
        "first": (),
        "relu": ("first",),
        "second": ("relu",),
        "add": ("second", "relu"),
        "pool": ("add",),
        "flatten": ("pool",),
        "linear": ("flatten",),
        "loss": ("linear",),
    }
    assert [layer.kind for layer in tiny.values()] == [
        *("conv2d", "relu", "conv2d", "add", "adaptiveavgpool2d", "flatten", "linear", "loss")
    ]


def test_sizes_are_those_of_the_tensors(tiny: dict[str, Layer]) -> None:
    plane = 4 * 8 * 8 * 8 * FLOAT
    assert [layer.output_bytes for layer in tiny.values()] == [*[plane] * 4, 4 * 8 * FLOAT, 4 * 8 * FLOAT, 160, FLOAT]
    assert [layer.output_shape for layer in tiny.values()] == [
        *[(8, 8, 8)] * 4,
        *((8, 1, 1), (8, 1, 1), (10, 1, 1), (1, 1, 1)),
    ]
    sizes = {"first": (27 + 1) * 8 * FLOAT, "second": 64 * FLOAT, "linear": 9 * 10 * FLOAT}
    assert {name: layer.parameter_bytes for name, layer in tiny.items() if layer.parameter_bytes} == sizes


def test_each_storage_is_saved_by_the_first_layer_that_keeps_it(tiny: dict[str, Layer]) -> None:
    """By hand: conv and linear keep their inputs, ReLU its result, cross entropy log-probabilities, targets, weight."""
    data, plane = 4 * 3 * 64 * FLOAT, 4 * 8 * 64 * FLOAT
    loss = 4 * 10 * FLOAT + 4 * 8 + FLOAT
    expected = {
        "first": data,
        "relu": plane,
        "second": 0,
        "add": 0,
        "pool": 0,
        "flatten": 0,
        "linear": 128,
        "loss": loss,
    }
    assert {name: layer.saved_bytes for name, layer in tiny.items()} == expected


def test_flops_are_two_per_multiply_add(tiny: dict[str, Layer]) -> None:
    flops = {"first": 2 * 4 * 8 * 64 * 27, "second": 2 * 4 * 8 * 64 * 8, "linear": 2 * 4 * 8 * 10}
    assert {name: layer.flops for name, layer in tiny.items() if layer.flops} == flops


def test_geometry_says_what_a_part_of_a_layer_needs(functional_net: dict[str, Layer]) -> None:
    geometry = {name: layer.geometry for name, layer in functional_net.items()}
    assert geometry["stem"] == Geometry(kernel=(3, 3), padding=(1, 1), mixes_channels=True)
    assert geometry["norm"] == geometry["relu"] == geometry["relu#2"] == geometry["cat#2"] == Geometry()
    assert geometry["left"] == Geometry(groups=2, mixes_channels=True)
    assert geometry["right"] == Geometry(kernel=(3, 3), stride=(2, 2), padding=(1, 1), mixes_channels=True)
    assert geometry["max_pool2d"] == Geometry(kernel=(2, 2), stride=(2, 2))
    assert geometry["avg_pool2d"] == Geometry(kernel=(3, 3), padding=(1, 1))
    assert geometry["adaptive_avg_pool2d"] == Geometry(kernel=(2, 2), stride=(2, 2))
    assert geometry["loss"] == Geometry(kernel=None, mixes_channels=True)


def test_functions_between_modules_are_layers_too(functional_net: dict[str, Layer]) -> None:
    inputs = {name: layer.inputs for name, layer in functional_net.items()}
    assert inputs["chunk"] == ("relu",)
    assert (inputs["cat"], inputs["left"]) == (("chunk",), ("cat",))
    assert (inputs["add"], inputs["add#2"]) == (("relu",), ("left", "add"))
    assert inputs["cat#2"] == ("max_pool2d", "avg_pool2d")
    assert (inputs["relu#3"], functional_net["view"].kind) == (("right",), "flatten")
    assert functional_net["cat#2"].kind == "concat"
    assert functional_net["chunk"].output_bytes == functional_net["relu"].output_bytes
    assert functional_net["add"].parameter_bytes == 8 * FLOAT


def test_channel_fractions_are_measured_where_channels_divide(functional_net: dict[str, Layer]) -> None:
    fractions = {name: fractions_of(layer) for name, layer in functional_net.items()}
    assert fractions["stem"] == fractions["norm"] == fractions["relu"] == [0.5, 0.25, 0.125]
    assert fractions["right"] == [0.5, 0.25]
    assert fractions["left"] == [0.5]
    assert fractions["fc"] == fractions["loss"] == fractions["chunk"] == []


def test_backward_passes_work_in_the_gradients_that_they_make_for_others() -> None:
    """Of 4 samples: the loss in its softmax's gradient and in that of its scores, of 4 classes; other layers in the
    gradient of their input, of 6 channels; the first in none. Gradients of parameters are not among them."""
    layers = (nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    network = Network(build=lambda: nn.Sequential(*layers), input_shape=(8,))
    assert [layer.working_bytes for layer in captured(network).values()] == [0, 4 * 4 * 6, 4 * 4 * 6, 2 * 4 * 4 * 4]


def test_what_is_freed_under_way_is_held_no_longer() -> None:
    value = torch.ones(1000)
    with Allocations() as made:
        doubled = value * 2
        more = doubled.view(10, 100) + 1
        del doubled, more
        value.add_(1)
        value.sum()
    assert made.most_bytes == 8000


def test_a_sequence_has_its_length_as_height() -> None:
    layers = captured(SEQUENCE)
    assert [layer.output_shape for layer in layers.values()] == [(6, 7, 1), (6, 7, 1), (6, 7, 1), (11, 7, 1), (1, 1, 1)]
    assert (layers["norm"].inputs, layers["head"].inputs) == (("lstm",), ("norm",))
    assert fractions_of(layers["tokens"]) == [0.5]
    assert layers["head"].flops == 2 * 4 * 7 * 6 * 11
    assert layers["lstm"].flops == 2 * 4 * 7 * 24 * (6 + 6)  # four gates, of what it reads and of its state


def test_a_shared_parameter_is_counted_once() -> None:
    layers = captured(SEQUENCE)
    assert (layers["tokens"].parameter_bytes, layers["head"].parameter_bytes) == (11 * 6 * FLOAT, 0)
    assert layers["tokens"].update_s > layers["head"].update_s == 0


@pytest.mark.parametrize("network", [TINY, FUNCTIONAL, SEQUENCE])
def test_gradients_layer_by_layer_equal_those_of_the_whole_step(network: Network) -> None:
    torch.manual_seed(0)
    rounds = MeasurementRounds(network, CPU, 4, torch.float32, [])
    _, gradients = rounds.passes.gradients(rounds.inputs)
    rounds.trained(rounds.inputs).backward()
    for parameter in rounds.trained.parameters():
        torch.testing.assert_close(gradients[parameter], parameter.grad)


def test_narrowing_a_layer_leaves_the_gradients_alone_and_times_only_narrow_layers() -> None:
    torch.manual_seed(0)
    rounds = MeasurementRounds(TINY, CPU, 4, torch.float32, [Fraction(1, 2)])
    variants = rounds.narrowed[False, Fraction(1, 2)]
    times = rounds.passes.narrowed(rounds.inputs, variants)
    layers = [layer.name for layer in rounds.surveyed]
    assert [layers[i] for i in times.forward_s] == [name for name in layers if name != "loss"]
    assert list(times.backward_s) == list(reversed(times.forward_s))
    shapes = [tuple(p.shape) for narrowed in variants.values() if (m := narrowed.step.module) for p in m.parameters()]
    assert shapes == [(4, 3, 3, 3), (4,), (4, 8, 1, 1), (5, 8), (5,)]


def test_captured_profile_of_vgg_small(vgg_small: Profile) -> None:
    assert (vgg_small.model, vgg_small.batch_size, vgg_small.dtype) == ("vgg_small", 4, "float32")
    assert vgg_small.device.endswith(", 1 thread")
    assert vgg_small.software["torch"] == torch.__version__
    assert (vgg_small.command, vgg_small.date[:2]) == ("by a test", "20")
    assert vgg_small.parameter_bytes == 2_346_018 * FLOAT
    assert [layer.kind for layer in vgg_small.layers].count("conv2d") == 6
    assert [layer.inputs for layer in vgg_small.layers] == [(), *((layer.name,) for layer in vgg_small.layers[:-1])]


def test_every_layer_is_measured_at_smaller_batches_and_fractions(vgg_small: Profile) -> None:
    for layer in vgg_small.layers:
        assert layer.forward_s > 0 and layer.backward_s > 0
        whole = [point for point in layer.scaling if point.channel_fraction == point.input_channel_fraction == 1]
        assert [point.batch_size for point in whole] == [1, 2]
        if layer.kind in ("conv2d", "relu", "maxpool2d", "flatten") and layer.channels % 8 == 0:
            assert fractions_of(layer) == [0.5, 0.25, 0.125]
        assert (layer.update_s > 0) == (layer.parameter_bytes > 0)


def test_layers_add_up_to_the_step(vgg_small: Profile) -> None:
    assert vgg_small.step_s and vgg_small.layers_to_step
    assert vgg_small.layers_s == pytest.approx(vgg_small.step_s, rel=1e-5)  # they are scaled to it
    assert 0.3 < vgg_small.layers_to_step < 3 and vgg_small.layers_to_step != 1  # as they were before


@pytest.mark.parametrize(
    ("step_s", "left_s", "rounds"), [([1.0], 1e6, 5), ([1.0, 2.0], -1.0, 5), ([1.0, 2.0], 1e6, 9), ([1.0], inf, 9)]
)
def test_a_budget_ends_with_the_time_or_once_the_step_is_known(
    step_s: list[float], left_s: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(build=lambda: nn.Linear(8, 8), input_shape=(8,))
    measured = MeasurementRounds(network, CPU, 2, torch.float32, ())
    monkeypatch.setattr(measured, "whole_step", cycle((0.0, seconds) for seconds in step_s).__next__)
    measured.measure(9, 1, ends_s=time.monotonic() + left_s)
    assert len(measured.whole_s) == rounds
    assert "interquartile ranges of 5 rounds" in capture(network, 2, fractions=(), budget_s=1e-9).notes


def test_layers_take_as_long_together_as_ordinary_passes_of_every_size() -> None:
    network = Network(build=lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), input_shape=(8,))
    rounds = MeasurementRounds(network, torch.device("cpu"), 4, torch.float32, ())
    rounds.measure(3, 1)
    layers = list(rounds.layers())
    together_s = sum(layer.forward_s + layer.backward_s + layer.update_s for layer in layers)
    assert together_s == pytest.approx(statistics.median(rounds.whole_s), rel=1e-4)
    passes_s = sum(layer.forward_s + layer.backward_s for layer in layers)
    assert passes_s == pytest.approx(statistics.median(rounds.pass_s[4]), rel=1e-4)
    for size in (1, 2):
        points = [point for layer in layers for point in layer.scaling if point.batch_size == size]
        passes_s = rounds.pass_s[size]
        assert len(points) == len(layers) and len(passes_s) == 3
        expected_s = pytest.approx(statistics.median(passes_s), rel=1e-4)
        assert sum(point.forward_s + point.backward_s for point in points) == expected_s
    remark, *others = rounds.remarks()
    assert all("host took" in other or "had its core" in other for other in others)  # only where the kernel counts it
    assert f"layers timed one by one took {rounds.layers_to_step():.3f} of the whole step" in remark


def test_a_short_pass_counts_with_what_disturbs_a_step_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four passes that make a step three take 1 s and one 5 s: 2 s each, though the median of passes is 1 s."""
    network = Network(build=lambda: nn.Linear(8, 8), input_shape=(8,))
    rounds = MeasurementRounds(network, torch.device("cpu"), 4, torch.float32, ())
    marks = iter([0.0, 9.0, *(10.0, 11.0), *(20.0, 25.0), *(30.0, 31.0), *(40.0, 41.0)])  # the first warms up
    monkeypatch.setattr(rounds, "_step_clock", device_clocks.HostClock(lambda: next(marks)))
    assert rounds._whole_pass(rounds.inputs[:1]) == 2.0
    assert next(marks, None) is None


def test_a_profile_survives_its_file(vgg_small: Profile, tmp_path: Path) -> None:
    write_profile(vgg_small, tmp_path / "p.json")
    assert read_profile(tmp_path / "p.json") == vgg_small


def test_command_line_writes_the_profile_and_prints_the_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "foreign.json"
    options = ["--batch-size", "2", "--repeats", "1", "--warmup", "0", "--input-shape", "3x32x32", "--seed", "3"]
    assert main(["traces.zoo.networks:vgg_small", *options, "--dtype", "bfloat16", "--output", str(output)]) == 0
    profile = read_profile(output)
    assert (profile.dtype, profile.parameter_bytes) == ("bfloat16", 2_346_018 * 2)
    assert profile.command.startswith("python -m traces.capture traces.zoo.networks:vgg_small --batch-size 2")
    assert f"ratio {profile.layers_to_step:.3f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["vgg61"], "unknown model 'vgg61', did you mean 'vgg16'?"),
        (["vgg_small", "--device", "cuda:99"], "device is cuda:99: torch"),
        (["vgg_small", "--device", "abacus"], "device is abacus: it is cpu, cuda or cuda:N"),
        (["vgg_small", "--input-shape", "3x8x8"], "fixes its own input"),
        (["torch.nn:Identity", "--input-shape", "1000000x1000000x1000000"], "does not fit in the memory of cpu"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    options: Sequence[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "never.json"
    assert cli.main(["capture", *options, "--batch-size", "2", "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("shardscope: ") and message in error
    assert (error.count("\n"), output.exists()) == (1, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2**31}, "batch_size is 2147483648: it is at most 2,147,483,647"),
        ({"repeats": 0}, "repeats is 0: it is at least 1"),
        ({"threads": 0}, "threads is 0: it is at least 1"),
        ({"threads": 10**8}, f"threads is 100000000: it is at most {os.cpu_count()}, the processors of this machine"),
    ],
)
def test_numbers_out_of_their_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        capture("vgg_small", **{"batch_size": 2, **options})


def test_the_program_without_the_command_line_complains_in_one_line_too(tmp_path: Path) -> None:
    program = [
        sys.executable,
        "-m",
        "traces.capture",
        "vgg61",
        "--batch-size",
        "2",
        "--output",
        str(tmp_path / "x.json"),
    ]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("shardscope capture: unknown model 'vgg61', did you mean 'vgg16'?")


def test_a_network_without_parameters_is_refused() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.join = Concat()

        def forward(self, x: Tensor) -> Any:
            return self.join(x, x) if x.sum() > 0 else x

    with pytest.raises(InputError, match="any trainable parameter"):
        capture(Network(build=Branching, input_shape=(3, 4, 4)), 2)


def test_spread_is_the_interquartile_range() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert spread([7.0]) == 0.0


def test_capture_imports_torch_and_the_standard_library_only() -> None:
    listing = "import sys, traces.capture.command; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "networkx", "simpy", "yaml", "kahypar", "plotly", "dash", "rich"} & set(loaded)
