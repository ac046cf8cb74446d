"""A network and its input in one text, as the capture of a profile recorded them, so that it is built again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from simulator.workload import Profile

OPTIONS = ("--input-shape", "--input", "--classes", "--vocabulary")
"""What of a capture's options says how the network is built."""


def input_words(command: str) -> list[str]:
    """The options of a capture's command line that say the input, with their values.

    >>> input_words("python -m traces.capture mine:net --batch-size 8 --input-shape=3x8x8 --classes 5 --output p.json")
    ['--input-shape', '3x8x8', '--classes', '5']
    """
    words, kept = iter(shlex.split(command)), list[str]()
    for word in words:
        option, equals, value = word.partition("=")
        if option in OPTIONS:
            kept += [option, value if equals else next(words, "")]
    return kept


def reference(
    profile: Profile, model: str | None = None, input_shape: Sequence[int] | None = None, vocabulary: int | None = None
) -> str:
    """What `traces.zoo.networks.load` builds the profile's network from, in any process.

    model, input_shape, vocabulary: where the user names others than the capture had.
    """
    if input_shape is None:
        words = input_words(profile.command) if model in (None, profile.model) else []
    else:
        words = ["--input-shape", "x".join(map(str, input_shape))]
    if vocabulary is not None and "--vocabulary" not in words:
        words += ["--vocabulary", str(vocabulary)]
    return shlex.join([model or profile.model, *words])
