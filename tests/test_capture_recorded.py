"""Networks that torch.fx cannot follow are recorded from one run: all kinds that users bring, by their gradients."""

from __future__ import annotations

import io
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, fx, nn  # noqa: E402

from benchmarks.user_networks import BUILDERS  # noqa: E402
from simulator import cli  # noqa: E402
from simulator.errors import InputError  # noqa: E402
from simulator.files import read_profile, write_profile  # noqa: E402
from simulator.units import format_bytes  # noqa: E402
from simulator.workload import Layer  # noqa: E402
from traces.capture.command import (  # noqa: E402
    capture,
    following,
    main,
)
from traces.capture.measurement_rounds import MeasurementRounds  # noqa: E402
from traces.capture.recorded_steps import RECORDED, FunctionGroup  # noqa: E402
from traces.zoo.networks import Network, NetworkInput, load  # noqa: E402

WIDTH, BATCH = 16, 4
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries whose networks these are


def rounds(network: Network, fractions: tuple[Fraction, ...] = ()) -> MeasurementRounds:
    torch.manual_seed(0)
    return MeasurementRounds(network, torch.device("cpu"), BATCH, torch.float32, fractions)


def surveyed(name: str) -> dict[str, Any]:
    return {layer.name: layer for layer in rounds(BUILDERS[name](WIDTH)).surveyed}


def captured(name: str) -> dict[str, Layer]:
    return {layer.name: layer for layer in capture(BUILDERS[name](WIDTH), BATCH, repeats=2, warmup=0).layers}


@pytest.mark.parametrize("name", BUILDERS)
def test_gradients_layer_by_layer_equal_those_of_the_whole_step(name: str) -> None:
    measured = rounds(BUILDERS[name](WIDTH))
    assert not measured.skipped
    torch.manual_seed(1)
    _, gradients = measured.passes.gradients(measured.inputs)
    torch.manual_seed(1)
    measured.trained(measured.inputs).backward()
    for parameter in measured.trained.parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[parameter], parameter.grad, rtol=1e-3, atol=1e-6)


def test_a_decoder_is_layers_between_modules_and_its_functions_are_joined() -> None:
    layers = surveyed("decoder_tied_dict")
    block = [name for name in layers if name.startswith("blocks.0")]
    assert block == [
        *("blocks.0.norm1", "blocks.0.attention.qkv", "blocks.0.attention.scaled_dot_product_attention"),
        *("blocks.0.attention.out", "blocks.0.add", "blocks.0.norm2", "blocks.0.mlp.0", "blocks.0.mlp.1"),
        *("blocks.0.mlp.2", "blocks.0.add#2"),
    ]
    assert layers["blocks.0.add#2"].inputs == ("blocks.0.add", "blocks.0.mlp.2")
    assert list(layers)[-2:] == ["cross_entropy", "loss"]


def test_a_tied_head_names_the_layer_whose_parameters_it_uses() -> None:
    layers = surveyed("decoder_tied_dict")
    assert (layers["head"].tied_to, layers["head"].parameter_bytes) == (("words",), 0)
    assert layers["words"].parameter_bytes == 1000 * WIDTH * 4
    repeated = surveyed("block_repeated")
    assert repeated["block.mlp.0#3"].tied_to == ("block.mlp.0",)
    assert repeated["block.mlp.0#3"].parameter_bytes == 0


@pytest.mark.parametrize("name", ["decoder_checkpointed", "decoder_checkpointed_reentrant"])
def test_checkpointed_blocks_keep_their_inputs_and_run_again(name: str) -> None:
    layers = captured(name)
    block = layers["blocks.1"]
    assert block.kind == "decoderblock"
    assert block.saved_bytes == BATCH * 64 * WIDTH * 4
    assert 0 < block.recompute_s < block.backward_s
    assert layers["head"].recompute_s == 0


def test_a_module_that_looks_at_values_is_one_layer_and_the_network_itself_is_not() -> None:
    assert list(surveyed("control_flow_block")) == ["stem", "relu", "block", "classes", "loss"]
    assert [name for name in surveyed("control_flow_root") if "more" in name] == ["more", "more#2", "more#3"]
    assert "experts" in surveyed("mixture_of_experts")


def test_a_transformer_of_torch_is_opened() -> None:
    layers = surveyed("encoder_masked")
    assert {"encoder.layers.1.self_attn", "encoder.layers.1.linear1", "encoder.layers.1.norm2"} <= set(layers)


def test_one_dimensional_convolutions_have_their_channels_second() -> None:
    layers = surveyed("convolution_1d")
    assert layers["stem"].output_shape == (WIDTH, 256, 1)
    assert layers["gated.0"].output_shape == layers["gated.2"].output_shape == (2 * WIDTH, 256, 1)
    assert layers["norm"].output_shape == (WIDTH, 256, 1)


def test_smaller_batches_are_recorded_anew_and_measured() -> None:
    layers = captured("decoder_gated_dataclass")
    whole = [p for p in layers["blocks.0.down"].scaling if p.channel_fraction == p.input_channel_fraction == 1]
    assert [point.batch_size for point in whole] == [1, 2]


def test_linear_layers_and_convolutions_are_measured_at_fractions_of_their_inputs() -> None:
    measured = rounds(BUILDERS["residual_functional"](WIDTH), (Fraction(1, 2), Fraction(1, 8)))
    names = [layer.name for layer in measured.surveyed]
    half = measured.narrowed[True, Fraction(1, 2)]
    assert [names[i] for i in half] == ["conv2", "conv3", "fc"]
    shapes = [tuple(p.shape) for narrowed in half.values() if (m := narrowed.step.module) for p in m.parameters()]
    assert shapes == [(16, 8, 3, 3), (16, 8, 3, 3), (10, 8)]
    times = measured.passes.narrowed(measured.inputs, half)
    assert sorted(times.forward_s) == sorted(times.backward_s) == sorted(half)


def test_sums_of_gradients_are_measured_where_there_are_gradients(tmp_path: Path) -> None:
    profile = capture("vgg_digits", 2, repeats=2, warmup=0, fractions=())
    assert all((layer.accumulate_s or 0) > 0 for layer in profile.layers if layer.parameter_bytes)
    write_profile(profile, tmp_path / "p.json")
    assert read_profile(tmp_path / "p.json") == profile


def test_notes_say_how_the_layers_were_obtained() -> None:
    assert RECORDED in capture(BUILDERS["siamese_two_inputs"](WIDTH), 2, repeats=1, warmup=0, fractions=()).notes
    assert RECORDED not in capture("vgg_digits", 2, repeats=1, warmup=0, fractions=()).notes


def test_other_layers_at_a_smaller_batch_leave_that_size_out() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            return self.first(x) if len(x) == 1 else self.second(self.first(x)) * float(x.sum() > -1e9)

    assert rounds(Network(build=Odd, input_shape=(4,))).skipped == [1]


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Any:
        raise ValueError("two\nlines")


class Wordless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        self.linear(x)
        return "words"


READY_MADE = nn.Sequential(nn.Linear(4, 4))
NUMBER = 7


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("test_capture_recorded:Failing", ["--input-shape", "4"], "two lines (test_capture_recorded.py, line "),
        ("test_capture_recorded:Wordless", ["--input-shape", "4"], "returns str, in which there is no tensor to train"),
        ("test_capture_recorded:NUMBER", ["--input-shape", "4"], "neither a torch.nn.Module nor a callable"),
        ("test_capture_recorded:nothing", ["--input-shape", "4"], "has no attribute 'nothing'"),
        ("no_such_file:net", ["--input-shape", "4"], "No module named 'no_such_file'"),
        ("torch.nn:Linear", ["--input-shape", "4"], "calling it with () failed"),
        ("builtins:dict", ["--input-shape", "4"], "it returned dict, not a torch.nn.Module"),
        ("test_capture_recorded:READY_MADE", ["--input-shape", "5"], "its forward fails on data of shape (2, 5)"),
        ("test_capture_recorded:READY_MADE", ["--input-shape", "4", "--classes", "3"], "it is built already"),
        ("test_capture_recorded:READY_MADE", ["--input-shape", "4", "--input", "x=4"], "leave out --input-shape"),
        ("test_capture_recorded:READY_MADE", [], "its input is unknown"),
        ("torch.nn:ReLU", ["--input-shape", "4"], "does not depend on any trainable parameter"),
    ],
)
def test_wrong_networks_are_one_line(
    model: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "never.json"
    assert cli.main(["capture", model, *options, "--batch-size", "2", "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert (error.count("\n"), output.exists()) == (1, False)


def test_a_module_that_is_built_already_is_copied() -> None:
    network = load("test_capture_recorded:READY_MADE", (4,))
    assert network.build() is not network.build()


def test_inputs_by_keyword_on_the_command_line(tmp_path: Path) -> None:
    output = tmp_path / "two.json"
    options = ["--input", "left=3x16x16", "--input", "right=3x16x16", "--repeats", "1", "--warmup", "0"]
    command = ["test_capture_recorded:siamese", *options, "--batch-size", "2", "--output", str(output)]
    assert main(command) == 0
    assert len([layer for layer in read_profile(output).layers if not layer.inputs]) == 2
    assert load("test_capture_recorded:siamese", inputs=[NetworkInput(shape=(3, 16, 16))]).inputs


def siamese() -> nn.Module:
    return BUILDERS["siamese_two_inputs"](WIDTH).build()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, rounds: dict[float, int], of: int) -> str:
    """What is written where so many rounds of 12 are done at these seconds; it begins at 100 and may last until 170."""
    clock = iter([100.0, *rounds])
    monkeypatch.setattr("time.monotonic", clock.__next__)
    with following(stream, "3 layers at batch sizes 1, 2", ends_s=170.0) as follow:
        assert follow
        for number in rounds.values():
            follow(number, of)
    return stream.getvalue()


def test_a_file_gets_a_line_every_half_minute_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rounds take as long as those before, until the budget ends."""
    written = progress(monkeypatch, io.StringIO(), {110: 1, 139: 2, 140: 8, 169: 10, 171: 11}, 12)
    assert written.splitlines() == [
        "measuring 3 layers at batch sizes 1, 2: round 1 of 12, about 1 min left",
        "measuring 3 layers at batch sizes 1, 2: round 8 of 12, about 20.0 s left",
        "measuring 3 layers at batch sizes 1, 2: round 11 of 12, about 0 s left",
    ]


def test_a_terminal_has_one_line_that_is_written_over_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    written = progress(monkeypatch, Terminal(), {110: 1, 111: 11}, 12)
    first = "measuring 3 layers at batch sizes 1, 2: round 1 of 12, about 1 min left"[:60]
    second = "measuring 3 layers at batch sizes 1, 2: round 11 of 12, abou"
    assert written.split("\r") == ["", first, second, " " * 60, ""]


def test_a_line_of_a_terminal_is_filled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "101")
    _, line, _, _ = progress(monkeypatch, Terminal(), {110: 1}, 12).split("\r")
    assert len(line) == 100 and line.rstrip().endswith("about 1 min left")


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_takes_less_than_two_seconds_is_silent(monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]) -> None:
    assert progress(monkeypatch, stream(), {100.9: 6}, 12) == ""
    assert "about 1.00 s left" in progress(monkeypatch, stream(), {101.0: 6}, 12)


@pytest.mark.parametrize("name", ["own_backward", "frozen_teacher"])
def test_what_torch_fx_would_trace_through_is_recorded(name: str) -> None:
    assert rounds(BUILDERS[name](WIDTH)).recorded


def test_what_is_not_trained_is_said_to_be_in_no_memory() -> None:
    """Of the teacher's: the layers' parameters and these are all that the network has."""
    made = rounds(BUILDERS["frozen_teacher"](WIDTH))
    bytes_of = Counter[bool]()
    for parameter in made.trained.parameters():
        bytes_of[parameter.requires_grad] += parameter.nbytes
    assert sum(layer.parameter_bytes for layer in made.surveyed) == bytes_of[True]
    said = f"{format_bytes(bytes_of[False])} of parameters are not trained, and are in no prediction of memory"
    made.measure(1, 0)
    assert said in made.remarks()


def test_a_network_that_does_not_run_names_its_line() -> None:
    with pytest.raises(InputError, match=r"line \d+"):
        rounds(Network(build=Failing, input_shape=(4,)))


def test_functions_of_a_group_get_their_arguments_in_whatever_containers_these_stand() -> None:
    """Two of them, the second of which reads what the first makes; nodes from outside are read once each."""

    def pack(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return args, kwargs

    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first = graph.create_node("call_function", pack, ((x, (1, "s", None), ()), [y, 2.5, True]), {"key": (x,)})
    second = graph.create_node("call_function", pack, (first, {"a": x, "b": [y]}, slice(0, y, None)))
    graph.output(second)
    group = FunctionGroup([first, second])
    assert group.reads == [x, y] and group.results == [second]
    made = (("X", (1, "s", None), ()), ["Y", 2.5, True]), {"key": ("X",)}
    assert group("X", "Y") == ((made, {"a": "X", "b": ["Y"]}, slice(0, "Y", None)), {})
