"""Every command is in the README, and so is every file that it links. tests/test_pasted.py reads its commands."""

from __future__ import annotations

import re

from conftest import ROOT

from simulator import cli

TEXT = (ROOT / "README.md").read_text()


def test_every_command_is_in_the_readme() -> None:
    missing = [name for name in cli.commands() if f"shardscope {name}" not in TEXT]
    assert not missing


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / target).exists(), target
