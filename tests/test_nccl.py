"""Logs of nccl-tests: a written one, prefixes and root columns, wrong ones, and the published logs left out by size."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from benchmarks.holdout import left_out_errors, two_parameter_errors
from simulator.curve import Curve
from simulator.errors import InputError
from traces.imports.nccl_tests import collective_curves, read_nccl_log

HEAD = """# nThread 1 nGpus 2
#   Rank  0 Pid  1 on node device  0 [0x00] A100
#   Rank  1 Pid  1 on node device  1 [0x00] A100
#       size         count      type   redop{root}     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROW = "        {size}   256     float     sum{root}   {time}    0.03    0.06    N/A    99.0    0.03    0.06    N/A\n"


def written(path: Path, *, root: str = "", prefix: str = "") -> Path:
    """A log of 1 KiB in 10 us and 4 KiB in 40 us."""
    text = HEAD.format(root="    root" if root else "")
    text += "".join(ROW.format(size=size, time=time, root=f"   {root}") for size, time in ((1024, 10.0), (4096, 40.0)))
    path.write_text(
        "".join(prefix + line + "\n" for line in text.splitlines()) + prefix + "# Out of bounds values : 0\n"
    )
    return path


@pytest.mark.parametrize(("root", "prefix"), [("", ""), ("-1", ""), ("", "[1,0]<stdout>:")])
def test_a_log_is_read_as_a_curve(tmp_path: Path, root: str, prefix: str) -> None:
    log = read_nccl_log(written(tmp_path / "x.log", root=root, prefix=prefix))
    assert log.devices == 2
    assert log.curve.points == ((1024.0, pytest.approx(10e-6)), (4096.0, pytest.approx(40e-6)))
    assert log.curve.seconds(2048) == pytest.approx(20e-6)
    assert collective_curves([tmp_path / "x.log"]) == {2: log.curve}


def test_wrong_logs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="no table with a header"):
        read_nccl_log(path)
    path.write_text(HEAD.format(root="") + "   1024   256  float\n")
    with pytest.raises(InputError, match="line 6: '1024   256  float' has no time in column 5"):
        read_nccl_log(path)


def test_errors_of_curves_that_are_exact() -> None:
    """A power law is met by interpolation, latency + bytes / bandwidth by two parameters."""
    power = Curve(points=tuple((2.0**i, 1e-6 * 2 ** (i / 2)) for i in range(10)))
    assert left_out_errors(power) == pytest.approx([0.0] * 8, abs=1e-12)
    line = Curve(points=tuple((2.0**i, 1e-5 + 2.0**i / 1e9) for i in range(10, 30)))
    assert two_parameter_errors(line) == pytest.approx([0.0] * 20, abs=1e-9)
    assert max(map(abs, two_parameter_errors(power))) > 0.1


@pytest.mark.parametrize("devices", [2, 4, 8, 16])
def test_published_curves_at_sizes_left_out(shared_data: Path, devices: int) -> None:
    log = read_nccl_log(shared_data / "nccl" / f"nccl_{devices}.log")
    assert log.devices == devices and len(log.curve.points) >= 25
    curve = mean(map(abs, left_out_errors(log.curve)))
    assert curve < 0.05
    assert mean(map(abs, two_parameter_errors(log.curve))) > 3 * curve
