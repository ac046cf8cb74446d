"""Settings of a capture that are put back, and what is said of the device and software it ran on."""

from __future__ import annotations

import gc
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from simulator.errors import InputError  # noqa: E402
from traces.capture import machine_settings  # noqa: E402
from traces.capture.machine_settings import (  # noqa: E402
    device_name,
    memory_errors,
    settings,
    software,
    torch_device_of,
    torch_dtype_of,
    versions,
)


@pytest.mark.parametrize("dtype", machine_settings.DTYPES)
@pytest.mark.parametrize("collecting", [True, False])
def test_settings_hold_inside_and_are_put_back(dtype: str, collecting: bool) -> None:
    cudnn = torch.backends.cudnn

    def now() -> tuple[object, ...]:
        return torch.get_num_threads(), torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark

    before, was_collecting = now(), gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        drawn = []
        for seed in (3, 3, 4):
            with settings(threads=2, dtype=dtype, seed=seed):
                assert now() == (2, "high" if dtype == "tf32" else "highest", dtype == "tf32", True)
                assert not gc.isenabled()
                drawn.append(torch.rand(4).tolist())
            assert now() == before and gc.isenabled() is collecting
        assert drawn[0] == drawn[1] != drawn[2]
        torch.manual_seed(9)
        alone = torch.rand(4).tolist()
        torch.manual_seed(9)
        with settings():
            torch.rand(9)
            assert torch.get_num_threads() == 1
        assert torch.rand(4).tolist() == alone  # who draws outside draws on
    finally:
        (gc.enable if was_collecting else gc.disable)()


def test_types_by_their_names() -> None:
    assert [torch_dtype_of(name) for name in machine_settings.DTYPES] == [torch.float32, torch.float32, torch.bfloat16]


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [torch_device_of(name) for name in ("cpu", "cuda", "cuda:1")] == [
        torch.device("cpu"), torch.device("cuda"), torch.device("cuda:1"),
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"device is cuda:2: torch .* sees 2 CUDA devices here; use cpu"):
        torch_device_of("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match="sees 0 CUDA devices"):
        torch_device_of("cuda")


def test_what_a_processor_is_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    described = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine_settings, "Path", lambda _: described)
    monkeypatch.setattr(machine_settings.platform, "processor", lambda: "")
    monkeypatch.setattr(machine_settings.platform, "machine", lambda: "riscv")
    assert device_name() == "riscv, 1 thread"
    described.write_text("processor : 0\nmodel name\t: A: 64 cores\n\nprocessor : 1\nmodel name\t: B\n")
    assert (device_name(threads=1), device_name(threads=2)) == ("A: 64 cores, 1 thread", "A: 64 cores, 2 threads")


def test_too_little_memory_is_one_line_and_other_errors_are_themselves() -> None:
    for error in (torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes")):
        too_small = pytest.raises(InputError, match="is 7: the network does not fit in the memory of cuda:1")
        with too_small, memory_errors(7, "cuda:1"):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), memory_errors(7, "cpu"):
        raise RuntimeError("shapes do not match")


def test_software_of_a_processor_and_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU by its own number, as it is found right then; without its driver's word what torch knows."""
    monkeypatch.setenv("MALLOC_TOP_PAD_", "64")
    known = software()
    assert list(known)[:3] == ["python", "torch", "system"] and known["MALLOC_TOP_PAD_"] == "64"
    assert "cpu capability" in known and "cuda" not in known
    assert versions().startswith(f"python {known['python']}, torch {known['torch']}, ")
    asked: list[list[str]] = []

    def run(query: list[str], **options: object) -> SimpleNamespace:
        asked.append(query)
        if len(asked) > 1:
            raise subprocess.TimeoutExpired(query, 30)
        return SimpleNamespace(stdout="570.1, 1980 MHz, 2619 MHz, 1980 MHz, 700.00 W, 41\n")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    monkeypatch.setattr(machine_settings.subprocess, "run", run)
    full, rest = software(torch.device("cuda:0")), software(torch.device("cuda:0"))
    assert asked[0][-1] == "--id=GPU-abc" and "MALLOC_TOP_PAD_" not in full
    assert list(full) == [*rest, "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit",
        "temperature.gpu"]  # fmt: skip
    assert (full["driver_version"], full["clocks.mem"], full["temperature.gpu"]) == ("570.1", "2619 MHz", "41")
    assert list(rest) == ["python", "torch", "system", "cuda", "cudnn"]
