"""Layers over the measured step of the profiles captured by this project.

Usage: python -m benchmarks.machines.layer_sums

Imported profiles, which have no date of capture, stand in docs/profiles.md.
"""

from __future__ import annotations

from benchmarks.pages.published import table
from simulator import files


def main() -> None:
    profiles = {name: files.read_profile(name) for name in files.library()}
    captured = {name: profile.layers_to_step for name, profile in profiles.items() if profile.date}
    rows = [(name, f"{ratio:.3f}") for name, ratio in captured.items() if ratio is not None]
    print(table(["profile", "layers / step"], rows))


if __name__ == "__main__":
    main()
