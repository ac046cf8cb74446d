"""The version of Shardscope."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The installed version; "source" when run from a folder that was never installed."""
    try:
        return metadata.version("shardscope")
    except metadata.PackageNotFoundError:
        return "source"
