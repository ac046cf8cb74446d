"""Damaged results folders of sweeps: `best`, `pareto` and `sweep --resume` answer or refuse them in one line."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from command_line import shardscope
from small_networks import chain

from benchmarks.robustness.mutations import mutated_bytes
from simulator import files
from simulator.sweep.results_table import FILE

SWEEP = """schema: 1
parameters:
  profile: {profile}
  cluster: gcp-v100
  devices: [1, 2]
  strategy: [data, model]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep of 4 points; beside it the sweep's file."""
    folder = tmp_path_factory.mktemp("sweep")
    files.write_profile(chain([0.1, 0.2, 0.3]), folder / "chain.json")
    (folder / "sweep.yaml").write_text(SWEEP.format(profile=folder / "chain.json"))
    assert shardscope("sweep", folder / "sweep.yaml", "--output", folder / "out", "--jobs", 1) == 0
    with closing(sqlite3.connect(folder / "out" / FILE)) as table:
        table.execute("PRAGMA journal_mode = DELETE")  # all in one file
    return folder / "out"


@pytest.fixture
def folder(swept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(swept, tmp_path / "out"))


def changed(*statements: str) -> Callable[[Path], None]:
    """A damage by SQL."""

    def change(folder: Path) -> None:
        with closing(sqlite3.connect(folder / FILE)) as table:
            for statement in statements:
                table.execute(statement)
            table.commit()

    return change


def overwritten(name: str, content: bytes) -> Callable[[Path], None]:
    """A file with other content."""
    return lambda folder: void((folder / name).write_bytes(content))


def void(_: object) -> None:
    """Nothing."""


def made_a_folder(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / FILE).mkdir()


ALL_AGAIN = "an empty file is a table that is still to be made"
NOT_UTF8 = "CAST(x'ff' AS TEXT)"
DAMAGES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "no database": (overwritten(FILE, b"nothing" * 99), "file is not a database", "file is not a database"),
    "empty": (overwritten(FILE, b""), "its points lack number", ALL_AGAIN),
    "a folder": (made_a_folder, "holds no sweep", "unable to open"),
    "no table": (changed("DROP TABLE points"), "its points lack number", "no such table: points"),
    "no column": (changed("ALTER TABLE points DROP COLUMN step_s"), "its points lack step_s", "its points lack step_s"),
    "negative": (
        changed("UPDATE points SET dollars_per_sample = -1 WHERE number = 2"),
        "dollars_per_sample of point 2 is '-1'",
        "",
    ),
    "infinite": (changed("UPDATE points SET step_s = 9e999 WHERE number = 2"), "step_s of point 2 is 'inf'", ""),
    "text": (
        changed("UPDATE points SET samples_per_s = 'fast' WHERE number = 2"),
        "samples_per_s of point 2 is 'fast'",
        "",
    ),
    "number": (changed("UPDATE points SET bottleneck = 7 WHERE number = 2"), "bottleneck of point 2 is '7'", ""),
    "bytes": (changed("UPDATE points SET strategy = x'00'"), "strategy of point", ""),
    "no letters": (changed(f"UPDATE points SET verdict = {NOT_UTF8}"), "Could not decode to UTF-8", ""),
    "a status": (changed("UPDATE points SET status = 'well' WHERE number = 1"), "", "a point has the status 'well'"),
    "no status": (changed(f"UPDATE points SET status = {NOT_UTF8} WHERE number = 1"), "", "Could not decode to UTF-8"),
    "fewer points": (changed("DELETE FROM points WHERE number = 1"), "", "it has 3 of 4 points"),
    "no identity": (changed("DELETE FROM sweep"), "", "a sweep of another version (None"),
    "half an identity": (changed("UPDATE sweep SET identity = '{'"), "", "not valid JSON"),
    "other identity": (changed("UPDATE sweep SET identity = '[1]'"), "", "a sweep of another version (None"),
    "no timing": (changed("DROP TABLE timing"), "", "no such table: timing"),
    "a lock": (overwritten("lock.sqlite", b"nothing" * 99), "", "cannot be written (file is not a database)"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_one_line(
    damage: str, folder: Path, swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, asked_words, resumed_words = DAMAGES[damage]
    change(folder)
    sweep = ("sweep", swept.parent / "sweep.yaml", "--output", folder, "--jobs", 1, "--resume")
    for words, said in ((("best", folder), asked_words), (("pareto", folder), asked_words), (sweep, resumed_words)):
        capsys.readouterr()
        code = shardscope(*words)
        out, err = capsys.readouterr()
        if said == ALL_AGAIN or not said:
            assert (code, err) == (0, "") and out, words
        else:
            assert (code, out, err.count("\n")) == (2, "", 1), words
            assert said in err and str(folder) in err


def test_bytes_at_random(swept: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but a table, or one line."""
    sound, drawn, refused = (swept / FILE).read_bytes(), random.Random(1), 0
    for _ in range(120):
        (folder / FILE).write_bytes(mutated_bytes(sound, drawn))
        for command in ("best", "pareto"):
            capsys.readouterr()
            code = shardscope(command, folder)
            out, err = capsys.readouterr()
            assert (code, err) == (0, "") or (code, out, err.count("\n")) == (2, "", 1)
            refused += code > 0
    assert refused > 60
