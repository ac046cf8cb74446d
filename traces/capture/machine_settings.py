"""The machine that a profile is captured on: its name, its software, and settings that are put back afterwards."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from simulator.errors import InputError

DTYPES = ("float32", "tf32", "bfloat16")


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
def settings(threads: int, dtype: str, seed: int, torch_device: torch.device) -> Iterator[None]:
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


def device_name(torch_device: torch.device, threads: int) -> str:
    """The device's common name; a CPU's with the number of threads that were used."""
    if torch_device.type == "cuda":
        return torch.cuda.get_device_name(torch_device)
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def software(torch_device: torch.device) -> dict[str, str]:
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
