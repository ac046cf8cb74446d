"""The arguments that a runtime takes, by name, at the version that our lines are made for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from simulator import file_gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A version of a runtime, and its arguments as its source code names them."""

    runtime: str
    version: str
    arguments: frozenset[str]
    flags: frozenset[str]
    """Those that no value follows."""


@cache
def pinned(runtime: str) -> Pinned:
    """Of "megatron", "nanotron" or "torchtitan"."""
    text = (resources.files("simulator.exports") / "pinned" / f"{runtime}.json").read_text("utf-8")
    content = file_gate.json_content(text)
    return Pinned(
        runtime=content["runtime"], version=content["version"], arguments=frozenset(content["arguments"].split()),
        flags=frozenset(content.get("flags", "").split()),
    )  # fmt: skip
