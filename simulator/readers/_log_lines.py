"""What one line of a training log says of a step, by the program that wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping

NUMBER = r"([0-9][0-9,_]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)"
LONGEST_NAME = 60
"""Characters before the word of a name at which it may begin."""
UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def _pattern(name: str, scale: float = 1.0, *, human: bool = False) -> tuple[str, re.Pattern[str], float]:
    """The number behind a name, and the longest word in every line that has it; human: with a letter for thousands."""
    unit = "([KMBT])?" if human else "()"
    plain = re.sub(r"\(\?:[^()]*\)\??|\\.|\[[^]]*\]", "#", name)
    word = max(re.findall(r"[a-z_/ ]*", plain.lower()), key=len)
    return word, re.compile(rf"(?<![\w.]){name}['\"]?\s*[:=]\s*{NUMBER}\s*{unit}", re.I), scale


FIELDS: Mapping[str, tuple[tuple[str, re.Pattern[str], float], ...]] = {
    "step_s": (
        _pattern(r"elapsed time per iteration \(ms\)", 1e-3),  # Megatron-LM, Megatron Bridge
        _pattern("time_per_iteration_ms", 1e-3, human=True),  # nanotron
        _pattern("train_step_timing in s"), _pattern("Step Time"),  # NeMo
        _pattern(r"iter time \(s\)"),  # DeepSpeed
        _pattern(r"(?:current )?step[ _]time(?: \(s\)|_s)?"), _pattern("time_metrics/end_to_end\\(s\\)"),
        ("step time", re.compile(rf"\bstep time {NUMBER} ()ms"), 1e-3),  # an exported script
    ),
    "device_tokens_per_s": (
        _pattern("(?:tps|wps)"),  # torchtitan
        _pattern("tokens_per_sec_per_gpu", human=True),  # nanotron
        _pattern(r"throughput/device/tokens_per_sec(?:ond)?"),  # Composer, OLMo
        _pattern("(?:current )?tokens? per gpu per sec(?:ond)?"),  # fms-fsdp
        _pattern(r"tokens/s(?:ec)?/(?:gpu|device)"), _pattern("tokens_per_second_per_(?:gpu|device)"),
    ),
    "tokens_per_s": (
        _pattern("tokens_per_sec", human=True), _pattern(r"throughput/tokens_per_sec"), _pattern(r"tokens/s(?:ec)?"),
        _pattern("train_tokens_per_second"), _pattern("tokens_per_second"),
    ),
    "samples_per_s": (
        _pattern("CurrSamplesPerSec"), _pattern("samples/sec"),  # DeepSpeed
        _pattern("train_samples_per_second"),  # Hugging Face Trainer
        _pattern("throughput/samples_per_sec"),
    ),
    "steps_per_s": (_pattern("train_steps_per_second"),),
    "device_tflops": (
        _pattern(r"throughput per GPU \(TFLOP/s/GPU\)"), _pattern("model_tflops_per_gpu", human=True),
        _pattern("tflops"), _pattern(r"TFLOPs?"),
    ),
    "mfu": (_pattern(r"mfu"), _pattern("throughput/device/mfu")),
    "memory_bytes": (
        _pattern("memory", 2**30), _pattern("MaxMemAllocated", 2**30), _pattern(r"max reserved", 2**20),
    ),
    "loss": (_pattern("(?:lm[_ ]|global_avg_)?loss"), _pattern("loss/train/total")),
}  # fmt: skip
"""By what is read: the names under which programs write it, the first that stands in a line counts."""
_NUMBERS = (
    re.compile(r"iteration:? +(\d+) */"), re.compile(r"(?<!global_)step[:=] *(\d+)"), re.compile(r"global_step=(\d+)"),
    re.compile(r"steps: (\d+)"), re.compile(r"\| *(\d+)/\d+ \["),
)  # fmt: skip
_TQDM = re.compile(r"\| *(\d+)/\d+ \[[^\]]*, +([0-9.]+)(s/it|it/s)")
_PARAMETERS = (
    re.compile(r"size: ([0-9][0-9,]*) total parameters"),  # torchtitan
    re.compile(r"[Tt]otal (?:number of )?param(?:eter)?s?[:= ]+([0-9][0-9,]{5,})"),
    re.compile(r"[Nn]umber of (?:trainable )?parameters *[=:] *([0-9][0-9,]{5,})"),
    re.compile(r"n_params['\"]?[=:] *([0-9][0-9,_]{5,})"),
)
_SAVING = re.compile(r"sav(?:ing|ed).{0,40}checkpoint|checkpoint.{0,40}sav(?:ing|ed)", re.I)
_EVALUATING = re.compile(r"^\W*(?:\[[^\]]*\]\s*)*(?:validation|validate|evaluat|running eval|'?eval_)", re.I)
MARKS = ("iter", "tps", "wps", "sec", "time", "it]", "param", "heckpoint", "val", "flop")
"""One of these is in every line that is worth a look, or a word that may begin with a capital letter."""


def worth_a_look(line: str) -> bool:
    return any(mark in line for mark in MARKS) or any(mark in line.lower() for mark in ("mfu", "token", "step"))


def metrics(line: str) -> dict[str, float]:
    """What a line says of its step, in SI units; mfu as a share. Empty where it says none."""
    line = _ANSI.sub("", line) if "\x1b" in line else line
    said, lower = dict[str, float](), line.lower()
    for name, patterns in FIELDS.items():
        for word, pattern, scale in patterns:
            at = lower.find(word)  # which is far cheaper than the pattern
            if at >= 0 and (match := pattern.search(line, max(0, at - LONGEST_NAME))):
                said[name] = (
                    float(match.group(1).replace(",", "").replace("_", "")) * scale * UNITS.get(match.group(2), 1)
                )
                break
    if "[" in line and "it" in line and (match := _TQDM.search(line)):
        rate = float(match.group(2))
        if rate > 0:
            said["step_s"] = rate if match.group(3) == "s/it" else 1 / rate
    if said.get("mfu", 0) > 1.5:
        said["mfu"] /= 100
    return said


def number_of(line: str) -> int | None:
    """Of the step that a line is about."""
    match = next(filter(None, (pattern.search(line) for pattern in _NUMBERS)), None)
    return int(match.group(1)) if match else None


def parameters_in(line: str) -> int | None:
    """How many parameters a line says that the model has."""
    if "param" not in line.lower():
        return None
    match = next(filter(None, (pattern.search(line) for pattern in _PARAMETERS)), None)
    return int(match.group(1).replace(",", "").replace("_", "")) if match else None


def interruption(line: str) -> str | None:
    """What a line says stands between two steps."""
    lower = line.lower()
    if not ("checkpoint" in lower or "val" in lower):
        return None
    if _SAVING.search(line):
        return "checkpoint"
    return "evaluation" if _EVALUATING.search(_ANSI.sub("", line)) else None
