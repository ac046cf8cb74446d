"""Print what docs/accuracy.md says. Usage: python -m benchmarks.accuracy [--write]      (needs SHARDSCOPE_DATA)

--write puts it there.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from simulator.files import write_text_atomic

SECTIONS = (
    *("neusight", "sailor", "ddp_buckets", "bytedance"),
    *("ultrascale", "llm_foundry", "megatron_a100", "dgxc", "torchtitan", "megatron_golden"),
)
SLOW = ("megatron_a100",)
"""Sections that take minutes."""
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "accuracy.md"
INTRODUCTION = """# Accuracy on real GPUs

Steps that others measured and published, beside what the simulator says of them; from `python -m benchmarks.accuracy`,
which needs the published measurements (`SHARDSCOPE_DATA`). But for the Ultra-Scale Playbook's, on which the stack
`nanotron-h100` was calibrated, no number is fitted to what is predicted: layer times, network and software come from
other measurements, which each section names; where the form of a model was chosen with
the measured steps in view, it says so. An error is predicted over measured, less 1; a
noise floor is how far the measurements differ among themselves."""
LEFT_OUT = """## Left out

Steps of Llama 3 blocks on 8 B200 (SimuMax): no preset of such a node and no stack of its GPU ships, so that no command
predicts them."""
MARK = "<!-- slow: it needs the published measurements -->\n<!-- output: python -m benchmarks.accuracy -->"
"""How the page says what makes it (`benchmarks.pasted`)."""


def sections() -> str:
    """The sections in Markdown."""
    return "\n\n".join(import_module(f"benchmarks.accuracy.{name}").section() for name in SECTIONS)


def page() -> str:
    """The whole page in Markdown."""
    return f"{INTRODUCTION}\n\n{MARK}\n{sections()}\n\n{LEFT_OUT}\n<!-- end -->\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write_text_atomic(PAGE, page())
    else:
        print(sections())
