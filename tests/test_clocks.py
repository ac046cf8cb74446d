"""The clock of a GPU, driven by a made-up one whose time is told by the test."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from traces.capture import device_clocks  # noqa: E402
from traces.capture.device_clocks import Marks, Times  # noqa: E402
from traces.capture.timed_passes import TimedPasses  # noqa: E402
from traces.zoo.networks import Network  # noqa: E402

CYCLES_PER_S = 1e9
EVENT_S = 2e-6


class Gpu:
    """A queue in order: sleeps and events, on a device whose work begins as soon as it is launched."""

    def __init__(self) -> None:
        self.host_s = self.free_s = 0.0
        self.sleeps_s: list[float] = []

    def sleep(self, cycles: int) -> None:
        self.sleeps_s.append(cycles / CYCLES_PER_S)
        self.run(self.sleeps_s[-1])

    def run(self, seconds: float) -> None:
        self.free_s = max(self.free_s, self.host_s) + seconds

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.free_s)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            made.run(EVENT_S)
            self.at_s = made.free_s

        def query(self) -> bool:
            return self.at_s <= made.host_s

        def elapsed_time(self, end: Event) -> float:
            return (end.at_s - self.at_s) * 1e3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", made.sleep)
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    monkeypatch.setattr(time, "perf_counter", lambda: made.host_s)
    return made


def stretch(clock: device_clocks.CudaClock, gpu: Gpu, launching_s: float, kernel_s: float = 20e-6) -> float:
    """One kernel behind a lead, whose launch takes so long on the host; its seconds by the clock."""
    clock.lead()
    start = clock.mark()
    gpu.host_s += launching_s
    gpu.run(kernel_s)
    end = clock.mark()
    clock.settle()
    return clock.seconds(start, end)


def test_layer_times_hold_neither_launching_nor_the_events(gpu: Gpu) -> None:
    clock = device_clocks.CudaClock()
    assert stretch(clock, gpu, launching_s=3e-4) == pytest.approx(20e-6)
    assert clock.remark() == "the host was late in 0 of 1 stretches of layers"


def test_a_layer_in_less_time_than_an_event_takes_nothing(gpu: Gpu) -> None:
    clock = device_clocks.CudaClock()
    start, end = clock.mark(), clock.mark()
    for between_s, counted_s in ((0.5 * EVENT_S, 0.0), (3.0 * EVENT_S, 2.0 * EVENT_S)):
        end.at_s = start.at_s + between_s
        assert clock.seconds(start, end) == pytest.approx(counted_s, abs=1e-12)


def test_a_late_host_is_counted_and_from_then_on_waited_for(gpu: Gpu) -> None:
    clock = device_clocks.CudaClock()
    assert stretch(clock, gpu, launching_s=8e-3) > 7e-3
    assert clock.remark() == "the host was late in 1 of 1 stretches of layers"
    assert stretch(clock, gpu, launching_s=8e-3) == pytest.approx(20e-6)
    assert gpu.sleeps_s[-1] == pytest.approx(12e-3, rel=0.02)


def test_a_long_first_stretch_fades_and_never_makes_a_lead_endless(gpu: Gpu) -> None:
    clock = device_clocks.CudaClock()
    stretch(clock, gpu, launching_s=5.0)
    stretch(clock, gpu, launching_s=1e-3)
    assert gpu.sleeps_s[-1] == pytest.approx(device_clocks.LONGEST_LEAD_S, rel=0.02)
    for _ in range(100):
        stretch(clock, gpu, launching_s=1e-3)
    assert gpu.sleeps_s[-1] == pytest.approx(1.5e-3, rel=0.05)


def test_warm_up_does_not_count(gpu: Gpu) -> None:
    clock = device_clocks.CudaClock()
    stretch(clock, gpu, launching_s=1.0)
    clock.forget()
    assert clock.remark() == "the host was late in 0 of 0 stretches of layers"


def test_a_joint_update_is_shared_out_by_elements() -> None:
    marks = Marks(device_clocks.HostClock(time.thread_time))
    marks.clock.mark = iter([3.0]).__next__  # type: ignore[method-assign]
    marks.share("update_s", {0: 30, 4: 10}, 1.0)
    assert marks.read() == Times(update_s={0: 1.5, 4: 0.5})


def test_joint_and_separate_updates_train_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from traces.capture.measurement_rounds import MeasurementRounds

    def trained(joint: bool) -> list[Tensor]:
        monkeypatch.setattr(device_clocks.HostClock, "joint_update", joint)
        torch.manual_seed(0)
        network = Network(
            build=lambda: torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3))), input_shape=(4,)
        )
        rounds = MeasurementRounds(network, torch.device("cpu"), 2, torch.float32, [])
        assert isinstance(rounds.passes, TimedPasses)
        times = [rounds.passes.step(rounds.inputs) for _ in range(2)]
        assert list(times[0].update_s) == [0, 1, 2]
        return [parameter.detach().clone() for parameter in rounds.trained.parameters()]

    for joint, separate in zip(trained(True), trained(False), strict=True):
        torch.testing.assert_close(joint, separate)


@pytest.mark.parametrize(("times_calls", "left_s"), [(True, 0.0), (False, 40e-6)])
def test_what_it_costs_to_ask_for_gradients_is_not_the_layers(
    monkeypatch: pytest.MonkeyPatch, times_calls: bool, left_s: float
) -> None:
    from traces.capture.measurement_rounds import MeasurementRounds

    now_s, differentiate = 0.0, torch.autograd.grad

    def asked(*args: object, **options: object) -> object:
        nonlocal now_s
        now_s += 40e-6
        return differentiate(*args, **options)  # type: ignore[arg-type]

    network = Network(build=lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), input_shape=(4,))
    rounds = MeasurementRounds(network, torch.device("cpu"), 2, torch.float32, [])
    monkeypatch.setattr(torch.autograd, "grad", asked)
    monkeypatch.setattr(device_clocks.HostClock, "times_calls", times_calls)
    monkeypatch.setattr(rounds._clock, "mark", lambda: now_s)
    times = rounds.passes.step(rounds.inputs)
    assert list(times.backward_s.values()) == pytest.approx([left_s] * 3, abs=1e-15)  # linear, relu, loss


def test_the_median_empty_call_is_taken_off_and_no_layer_takes_less_than_nothing() -> None:
    marks = Marks(device_clocks.HostClock(time.thread_time))
    for layer, (backward_s, empty_s) in enumerate([(9.0, 1.0), (1.5, 7.0), (3.0, 2.0)]):
        marks.add("backward_s", {layer: 1}, 0.0, backward_s)
        marks.add("empty_call_s", {layer: 1}, 0.0, empty_s)
    marks.add("backward_s", {3: 1}, 0.0, 5.0)
    assert marks.read().backward_s == {0: 7.0, 1: 0.0, 2: 1.0, 3: 5.0}


class Sleeper(torch.nn.Module):
    """Takes 20 ms on the wall and none of the processor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return x


def test_ordinary_steps_are_timed_on_the_wall_and_layers_scaled_to_them() -> None:
    from traces.capture.measurement_rounds import MeasurementRounds

    network = Network(build=lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), Sleeper()), input_shape=(64,))
    rounds = MeasurementRounds(network, torch.device("cpu"), 2, torch.float32, [])
    assert sum(sum(part.values()) for part in rounds.passes.step(rounds.inputs).phases) < 0.02
    rounds.measure(repeats=3, warmup=1)
    layers = list(rounds.layers())
    assert sum(layer.forward_s + layer.backward_s + layer.update_s for layer in layers) > 0.02
    assert sum(point.forward_s + point.backward_s for layer in layers for point in layer.scaling) > 0.02
