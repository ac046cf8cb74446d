"""Logs of nccl-tests: a written one, prefixes and root columns, wrong ones, and the published logs left out by size."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from benchmarks.networks.holdout import left_out_errors, two_parameter_errors
from simulator.curve import Curve
from simulator.errors import InputError, UnknownNameError
from traces.imports._imported import ImportOptions
from traces.imports.nccl_tests import read, read_nccl_log

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


@pytest.mark.parametrize(("root", "prefix"), [("", ""), ("-1", ""), ("", "[1,0]<stdout>:"), ("", " 0: ")])
def test_a_log_is_read_as_a_curve(tmp_path: Path, root: str, prefix: str) -> None:
    log = read_nccl_log(written(tmp_path / "x.log", root=root, prefix=prefix))
    assert log.devices == 2
    assert log.curve.points == ((1024.0, pytest.approx(10e-6)), (4096.0, pytest.approx(40e-6)))
    assert log.curve.seconds(2048) == pytest.approx(20e-6)
    assert read([tmp_path / "x.log"], ImportOptions()).collectives == {"all_reduce": {2: log.curve}}


@pytest.mark.parametrize(
    ("line", "model", "name", "devices_per_size"),
    [
        ("", "", "all_reduce", 1),
        ("", "all_gather", "all_gather", 1),
        ("# Collective test starting: reduce_scatter_perf", "", "reduce_scatter", 1),
        ("srun ./build/all_gather_perf -b 8 -e 8G", "all_gather", "all_gather", 1),
        ("# Collective test starting: alltoall_perf", "", "all_to_all", 2),  # whose size is what one device sends
    ],
)
def test_a_log_says_its_collective(tmp_path: Path, line: str, model: str, name: str, devices_per_size: int) -> None:
    path = written(tmp_path / "x.log")
    path.write_text(line + "\n" + path.read_text())
    (curve,) = read([path], ImportOptions(model=model)).collectives[name].values()
    assert [size for size, _ in curve.points] == [1024.0 * devices_per_size, 4096.0 * devices_per_size]


def test_ranks_that_a_log_does_not_list_are_said(tmp_path: Path) -> None:
    path = written(tmp_path / "x.log")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "Rank" not in line))
    with pytest.raises(InputError, match=r"x.log: it has no line '# Rank 0 "):
        read([path], ImportOptions())
    assert read_nccl_log(path, 16).devices == 16
    with pytest.raises(InputError, match=r"ranks is 16: .*y.log has 2; leave it out"):
        read_nccl_log(written(tmp_path / "y.log"), 16)


@pytest.mark.parametrize(
    ("old", "new", "options", "message"),
    [
        ("", "", ImportOptions(), "x.log: all_reduce over 2 devices is in .*y.log too; give one of them"),
        ("#   Rank  1 ", "# Rnk  1 ", ImportOptions(), "x.log: ranks is 1: curves are of at least 2 devices"),
        ("10.0", "60.0", ImportOptions(), "x.log: points is 4e-05 s at 4096 bytes: more bytes do not take less time"),
        ("4096  ", "1024  ", ImportOptions(), "x.log, line 7: size 1024 again; give each table in a file of its own"),
        ("# nThread", "# all_gather_perf", ImportOptions(model="reduce"), "model is reduce: .*x.log is of all_gather"),
        ("# nThread", "# sendrecv_perf", ImportOptions(), "x.log: unknown measured collective 'sendrecv'"),
    ],
)
def test_a_log_that_is_no_curve_is_named(
    tmp_path: Path, old: str, new: str, options: ImportOptions, message: str
) -> None:
    other, path = written(tmp_path / "y.log"), written(tmp_path / "x.log")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises((InputError, UnknownNameError), match=message):
        read([other, path], options)


def test_a_size_that_larger_ones_undercut_is_left_out(shared_data: Path) -> None:
    """One of 1 KiB took 315 us beside 82 us of 2 KiB: something else was going on."""
    imported = read([shared_data / "nccl" / "nccl_64.log"], ImportOptions())
    curve = imported.collectives["all_reduce"][64]
    assert 1024.0 not in dict(curve.points) and dict(curve.points)[2048.0] == pytest.approx(81.88e-6)
    assert "; left out 1024 B, 1.311e+05 B, which took longer than larger ones" in imported.remarks[0]
    curve.require_rising("it")


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
