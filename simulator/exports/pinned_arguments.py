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


@cache
def pinned(runtime: str) -> Pinned:
    """Of "megatron", "nanotron" or "torchtitan"."""
    text = (resources.files("simulator.exports") / "pinned" / f"{runtime}.json").read_text("utf-8")
    content = file_gate.json_content(text)
    arguments = frozenset(content["arguments"].split())
    return Pinned(runtime=content["runtime"], version=content["version"], arguments=arguments)
