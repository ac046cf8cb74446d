"""Numbers beyond the report, by hand: where a step goes, how long tensors are in flight, MFU, the fullest device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_networks import chain, layer, network, switched

from dashboard.state.measures import NAMES, fullest, mismatch, sequence_length, shares, transfer_seconds, utilisation
from simulator.network.catalogue import read_cluster
from simulator.plan import Plan, Sharding
from simulator.run import Run, run
from simulator.runtime import Runtime
from simulator.workload import Profile

BYTES_PER_S = 4096.0
"""Of a layer's output in a second."""


def on(profile: Profile, devices: int, **homes: int) -> Run:
    """Each layer on a device of its own."""
    placements = {name: Sharding(devices=(home,)) for name, home in homes.items()}
    cluster = switched([1.0] * devices, bandwidth_bytes_per_s=BYTES_PER_S)
    return run(profile, cluster, Plan(model="small", batch_size=8, placements=placements))


def test_where_a_step_of_two_stages_goes_by_hand() -> None:
    """Passes of 1 s and 2 s, messages of 1 s:

    device 0  |F|>| . . . |<|B B|
    device 1  |.|>|F|B B  |<| . .|
    """
    done = on(chain([3.0, 3.0]), 3, a=0, b=1)
    split = shares(done, switched([1.0] * 3))
    first, second, none = ({part.name: part.seconds for part in parts if part.seconds} for parts in split.devices)
    assert first == second == {"compute": 3.0, "wait: activations": 1.0, "wait: gradients": 1.0, "bubble": 3.0}
    assert none == {"no work": 8.0}
    assert [part.name for part in split.total] == list(NAMES)
    ratios = {part.name: part.ratio for part in split.total if part.ratio}
    assert ratios == pytest.approx(
        {"compute": 6 / 24, "wait: activations": 2 / 24, "wait: gradients": 2 / 24, "bubble": 6 / 24, "no work": 8 / 24}
    )
    assert {part.name for part in split.total if not part.lost} == {"compute", "overlapped"}
    assert [part.ratio for part in split.devices[0] if part.name == "bubble"] == [3 / 8]


def test_what_a_device_waits_for_its_host_is_no_bubble() -> None:
    """Two seconds before the first forward pass, which the other device waits for, too."""
    cluster = switched([1.0] * 2, bandwidth_bytes_per_s=BYTES_PER_S)
    placements = {"a": Sharding(devices=(0,)), "b": Sharding(devices=(1,))}
    plan = Plan(model="small", batch_size=8, placements=placements)
    done = run(chain([3.0, 3.0]), cluster, plan, runtime=Runtime(forward_launch_s=2.0))
    split = [{part.name: part.seconds for part in parts if part.seconds} for parts in shares(done, cluster).devices]
    both = {"compute": 3.0, "wait: activations": 1.0, "wait: gradients": 1.0}
    assert split == [{**both, "host launches": 2.0, "bubble": 3.0}, {**both, "bubble": 5.0}]


def test_what_is_in_flight_at_once_counts_once() -> None:
    """A tensor for two readers crosses the link of its device in 2 s, both messages side by side, and so back."""
    alone = on(chain([3.0, 3.0, 3.0]), 3, a=0, b=1, c=2)
    assert [transfer_seconds(alone, number) for number in range(3)] == pytest.approx([2.0, 2.0, 0.0])
    fork = network(layer("a"), layer("b", "a"), layer("c", "a"))
    assert [transfer_seconds(on(fork, 3, a=0, b=1, c=2), number) for number in range(3)] == pytest.approx([4, 0, 0])


def test_the_fullest_device_is_that_nearest_to_its_capacity() -> None:
    report = on(chain([3.0, 3.0]), 3, a=0, b=1).report

    def number(*memory: tuple[float, int | None]) -> int:
        """Of the fullest device by bytes at the peak and capacities."""
        devices = tuple(
            replace(device, peak_memory_bytes=peak, memory_bytes=capacity)
            for device, (peak, capacity) in zip(report.devices, memory, strict=True)
        )
        return devices.index(fullest(replace(report, devices=devices)))

    assert number((60, 100), (50, 60), (40, 80)) == 1
    assert number((60, 100), (6, None), (40, 80)) == 0
    assert number((60, None), (70, None), (65, None)) == 1
    assert number((60, 120), (50, 100), (5, 100)) == 0


@pytest.mark.parametrize(
    ("dtype", "device", "peak"),
    [("float32", "V100", 15.7e12), ("float16", "Tesla V100-SXM2-16GB", 125e12), ("tf32", "V100", None),
     ("float32", "H100", None), ("float32", "", None)],
)  # fmt: skip
def test_model_flops_over_the_peak_of_all_devices(dtype: str, device: str, peak: float | None) -> None:
    """Three times those forward, for twice the samples of the profile; unknown of another device or without a sheet."""
    cluster = read_cluster("azure-v100-10g", devices=4)
    layers = tuple(
        replace(each, flops=flops) for each, flops in zip(chain([3.0, 3.0]).layers, (5e12, 1e12), strict=True)
    )
    profile = replace(chain([3.0, 3.0]), layers=layers, device=device, dtype=dtype)
    report = replace(on(chain([3.0, 3.0]), 3, a=0, b=1).report, batch_size=16, step_s=0.5)
    used = utilisation(profile, cluster, report)
    assert used == (peak and pytest.approx(3 * 6e12 * 2 / 0.5 / (4 * peak)))
    assert utilisation(profile, cluster, replace(report, step_s=0.0)) is None
    assert utilisation(chain([3.0, 3.0]), cluster, report) is None
    assert utilisation(replace(chain([3.0, 3.0]), device="V100"), cluster, report) is None
    assert (mismatch(profile, cluster) == "") is (device != "H100")
    if device == "H100":
        assert mismatch(profile, cluster).startswith("measured on H100, simulated on ")


def test_a_sequence_is_as_long_as_its_longest_layer() -> None:
    attention = layer("b", "a", kind="Attention", shape=(8, 32, 1))
    assert sequence_length(network(layer("a", shape=(8, 16, 1)), attention)) == 32
    assert sequence_length(network(layer("a", kind="embedding", shape=(8, 16, 1)))) == 16
    assert sequence_length(network(layer("a"), layer("b", "a", kind="linear"))) == 0
