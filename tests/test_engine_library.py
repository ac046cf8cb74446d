"""The cached library of the compiled engine: damaged, planted or not to be made, it never brings a program down."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.engine import is_available
from simulator.engine.library import FUNCTIONS, NoLibraryError, compile_library, file_name, library

ROOT = Path(__file__).resolve().parent.parent
SIMULATE = ("simulate", "vgg16_v100", "--cluster", "p3-8xlarge", "--devices", "2", "--strategy", "data")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a cache that is still empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SHARDSCOPE_ENGINE", raising=False)
    if Path(sys.modules["simulator.engine.library"].__file__ or "").with_name(file_name()).exists():
        pytest.skip("a library was shipped")
    return tmp_path / "shardscope"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library and its digest, compiled once for all tests here."""
    return compile_library(tmp_path_factory.mktemp("compiled") / file_name())


def filled(cache: Path, compiled: Path) -> Path:
    """The library in the cache, put there as compiled."""
    cache.mkdir(mode=0o700)
    for path in compiled.parent.iterdir():
        shutil.copy2(path, cache)
    return cache / compiled.name


def fake_compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cc that alone is found, and adds a line to the file `calls` each time."""
    folder.mkdir(exist_ok=True)
    (folder / "cc").write_text(f"#!/bin/sh\necho called >> {folder}/calls\n{script}\n")
    (folder / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder / "calls"


def simulated(cache: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line in a process of its own, with this cache."""
    code = "import sys; from simulator.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *SIMULATE, *words], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache.parent), **environment},
    )  # fmt: skip


@needs_compiler
def test_a_library_appears_whole_with_its_digest_and_is_the_users_alone(compiled: Path) -> None:
    assert sorted(path.name for path in compiled.parent.iterdir()) == [file_name(), f"{file_name()}.sha256"]
    assert stat.S_IMODE(compiled.stat().st_mode) == 0o700


@needs_compiler
def test_a_library_that_is_whole_is_not_compiled_again(
    cache: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = filled(cache, compiled)
    calls = fake_compiler(tmp_path / "bin", "exit 1", monkeypatch)
    assert library() == path
    assert not calls.exists()


@needs_compiler
@pytest.mark.parametrize("damage", ["cut", "emptied", "zeroed", "without symbols", "without digest"])
def test_a_damaged_library_is_compiled_anew(cache: Path, compiled: Path, damage: str) -> None:
    path = filled(cache, compiled)
    sound = path.read_bytes()
    if damage == "without digest":
        path.with_name(f"{path.name}.sha256").unlink()
    elif damage == "without symbols":
        subprocess.run(["cc", "-shared", "-o", str(path), "-x", "c", "/dev/null"], check=True)
    else:
        half = len(sound) // 2
        path.write_bytes(
            {"cut": sound[:half], "emptied": b"", "zeroed": sound[:half] + bytes(len(sound) - half)}[damage]
        )
    assert library() == path
    assert path.read_bytes() == sound


@needs_compiler
def test_a_command_with_a_cut_library_answers(cache: Path, compiled: Path) -> None:
    path = filled(cache, compiled)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    completed = simulated(cache)
    assert (completed.returncode, "slow engine" in completed.stdout) == (0, False), completed.stderr


@needs_compiler
def test_a_cut_library_without_a_compiler_is_refused_in_one_line(cache: Path, compiled: Path, tmp_path: Path) -> None:
    path = filled(cache, compiled)
    path.write_bytes(path.read_bytes()[:1000])
    completed = simulated(cache, PATH=str(tmp_path))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[-1] == (
        "note: the slow engine ran (there is no C compiler (cc)): the numbers are the same, but they take longer"
    )
    asked = simulated(cache, PATH=str(tmp_path), SHARDSCOPE_ENGINE="compiled")
    assert (asked.returncode, len(asked.stderr.splitlines())) == (2, 1)
    assert "there is no C compiler" in asked.stderr


@needs_compiler
def test_what_others_can_write_to_is_not_loaded(cache: Path, compiled: Path) -> None:
    path = filled(cache, compiled)
    cache.chmod(0o770)
    with pytest.raises(NoLibraryError, match=r"others may write to .*shardscope; run chmod go-w"):
        library()
    cache.chmod(0o700)
    path.chmod(0o777)
    with pytest.raises(NoLibraryError, match=r"others may write to .*so; run chmod go-w"):
        library()


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no users with numbers here")
def test_a_library_of_another_user_is_not_loaded(cache: Path, compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(cache, compiled)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    if owner:  # what root wrote anyone may trust
        with pytest.raises(NoLibraryError, match=rf"belongs to another user \(number {owner}\)"):
            library()
    else:
        os.chown(cache, 12345, -1)
        with pytest.raises(NoLibraryError, match=r"belongs to another user \(number 12345\)"):
            library()


@pytest.mark.skipif(os.name != "posix", reason="a compiler that is a shell script")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exec sleep 60", "the compiler took longer than 2.0 s"),
        ("echo no such target >&2; exit 3", r"the compiler ended with 3 \(no such target\)"),
        ('while [ "$1" != -o ]; do shift; done; echo none > "$2"', "loading what it made ended with 1"),
    ],
)
def test_a_compiler_that_hangs_or_fails_is_tried_once_a_day(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, reason: str
) -> None:
    if "sleep" in script:
        script = script.replace("sleep", shutil.which("sleep") or "sleep")
        monkeypatch.setattr("simulator.engine.library._SECONDS", 2.0)
    calls = fake_compiler(tmp_path / "bin", script, monkeypatch)
    for _ in range(3):
        with pytest.raises(NoLibraryError, match=reason):
            library()
    assert calls.read_text() == "called\n"
    assert [path.name for path in cache.iterdir()] == [f"{file_name()}.failed"]
    day_before = time.time() - 86_401
    os.utime(cache / f"{file_name()}.failed", (day_before, day_before))
    with pytest.raises(NoLibraryError, match=reason):
        library()
    assert calls.read_text() == "called\n" * 2


@needs_compiler
def test_another_compiler_is_tried_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = os.environ["PATH"]
    fake_compiler(tmp_path / "bin", "exit 1", monkeypatch)
    with pytest.raises(NoLibraryError):
        library()
    monkeypatch.setenv("PATH", path)
    assert library() == cache / file_name()


@pytest.mark.skipif(not is_available(), reason="no compiled engine here")
def test_a_library_is_asked_for_every_function_that_the_engine_calls() -> None:
    from simulator.engine import compiled

    source = Path(compiled.__file__).read_text()
    called = {name for name in FUNCTIONS if f"loaded.{name}" in source or f'"{name}"' in source}
    assert called == set(FUNCTIONS)
    loaded = compiled._load()
    assert {name for name in vars(loaded) if not name.startswith("_")} == set(FUNCTIONS)
