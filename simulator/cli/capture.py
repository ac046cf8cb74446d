"""Measure a network layer by layer on this machine and write its profile (needs torch)."""

from __future__ import annotations

from simulator.errors import MissingExtraError


def main(argv: list[str]) -> int:
    """Hand the arguments to the capture program, which also runs alone as `python -m traces.capture`."""
    try:
        from traces.capture.command import main as capture
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("capture needs torch; install it with: pip install 'shardscope[capture]'") from None
    return capture(argv)
