"""The machine that a profile is captured on: its name, its software, settings that are put back, and stolen core time.

Stolen is the core time that the host of a virtual machine took for others ("steal"), as the kernel counts it. What is
timed by the clock on the wall takes so much longer. The processor time of a thread leaves it out where the kernel
accounts for it (`CONFIG_PARAVIRT_TIME_ACCOUNTING`). A neighbour on the same core's other hardware thread slows a core
down without taking any of its time, and no kernel counts that.
"""

from __future__ import annotations

import gc
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from simulator.errors import InputError

CPU = torch.device("cpu")
DTYPES = ("float32", "tf32", "bfloat16")
_IDLE, _WAITING, _STOLEN, _GUEST = 3, 4, 7, 8
"""Columns of the first line of /proc/stat; what is from _GUEST on is counted in other columns, too."""


def torch_device_of(device: str) -> torch.device:
    """The torch device of "cpu", "cuda" or "cuda:1". Raises InputError when it is absent."""
    try:
        torch_device = torch.device(device)
    except RuntimeError:
        raise InputError(f"device is {device}: it is cpu, cuda or cuda:N") from None
    if torch_device.type == "cuda" and (torch_device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"device is {device}: torch {torch.__version__} sees {count} CUDA devices here; use cpu")
    return torch_device


def torch_dtype_of(dtype: str) -> torch.dtype:
    """The type of data and parameters under a name of DTYPES."""
    return torch.bfloat16 if dtype == "bfloat16" else torch.float32


@contextmanager
def settings(
    threads: int = 1, dtype: str = "float32", seed: int = 0, torch_device: torch.device = CPU
) -> Iterator[None]:
    """Threads, TF32, cuDNN autotuning and the seed for a capture, without garbage collection meanwhile."""
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn
    allowed, tuned, collecting = cudnn.allow_tf32, cudnn.benchmark, gc.isenabled()
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    cudnn.allow_tf32, cudnn.benchmark = dtype == "tf32", True
    gc.disable()
    try:
        with ExitStack() as stack:
            if torch_device.type == "cuda":
                stack.enter_context(torch.cuda.device(torch_device))
            stack.enter_context(torch.random.fork_rng(devices=[torch_device] if torch_device.type == "cuda" else []))
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])
        cudnn.allow_tf32, cudnn.benchmark = allowed, tuned
        if collecting:
            gc.enable()


@contextmanager
def memory_errors(batch_size: int, device: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors into one line."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise InputError(
                f"batch_size is {batch_size}: the network does not fit in the memory of {device}; use a smaller one"
            ) from None
        raise


def device_name(torch_device: torch.device = CPU, threads: int = 1) -> str:
    """The device's common name; a CPU's with the number of threads that were used."""
    if torch_device.type == "cuda":
        return torch.cuda.get_device_name(torch_device)
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def versions() -> str:
    """The software for a CPU in a line."""
    return ", ".join(f"{name} {version}" for name, version in software().items())


def software(torch_device: torch.device = CPU) -> dict[str, str]:
    """Versions of all that a time depends on, and what else it depends on.

    For a CPU these are the C allocator's settings in the environment, because memory that goes back to the system
    at every step costs page faults; for a GPU its driver, and its clocks as found right after it was measured.
    """
    versions = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if torch_device.type == "cpu":
        allocator = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
        return versions | {"cpu capability": torch.backends.cpu.get_cpu_capability()} | allocator
    versions["cuda"], versions["cudnn"] = str(torch.version.cuda), str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    fields = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit", "temperature.gpu")
    # by its own name, as CUDA_VISIBLE_DEVICES numbers devices otherwise than nvidia-smi does
    number = f"GPU-{torch.cuda.get_device_properties(torch_device).uuid}"
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", f"--id={number}"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return versions
    return versions | dict(zip(fields, (part.strip() for part in answer.split(",")), strict=False))


class StolenTime:
    """Core time from now on. stat: the kernel's counters."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._read()

    def share(self) -> float | None:
        """Of the core time that this machine's programs asked for since, what its host took; None if it is unknown."""
        after = self._read()
        if self._before is None or after is None:
            return None
        wanted, stolen = (end - begin for begin, end in zip(self._before, after, strict=True))
        return stolen / wanted if wanted > 0 else 0.0

    def _read(self) -> tuple[int, int] | None:
        """Ticks of all cores: wanted by programs, whether they got them or not, and stolen."""
        if not self._stat.exists():
            return None
        ticks = [int(count) for count in self._stat.read_text().partition("\n")[0].split()[1:]]
        if len(ticks) <= _STOLEN:
            return None
        return sum(ticks[:_GUEST]) - ticks[_IDLE] - ticks[_WAITING], ticks[_STOLEN]


def largest(shares: Iterable[float | None]) -> float | None:
    """The largest of the shares that are known; None where none is."""
    return max((share for share in shares if share is not None), default=None)


def stolen_words(share: float | None) -> str:
    """A share in words, for the notes of what was measured meanwhile; empty where it is not known."""
    return "" if share is None else f"the machine's host took {share:.1%} of its core time meanwhile"
