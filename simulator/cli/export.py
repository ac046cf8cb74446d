"""Export a plan as a script or configuration that trains a network of one's own under it.

    shardscope export plan.json --to ddp --model mine:net --input-shape 3x224x224 --output train.py
    torchrun --nproc-per-node 4 train.py

ddp, fsdp2 and pipelining are scripts for torchrun, on GPUs or CPUs; torchtitan and megatron are shell scripts with
their options; chakra is a folder with an execution trace of each rank, as ASTRA-sim runs them. What the runtime does
otherwise than planned is printed and written into the file.
Model and input are those of the capture, where the profile was captured from one. A script prints each step's loss and
time beside the predicted one, which `shardscope check` reads.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator import files
from simulator.cli import _effects, _options, _plan_files, _printing
from simulator.cli._captured_input import input_words
from simulator.errors import InputError, nearest, require
from simulator.exports import RUNTIMES, TRACES
from simulator.language_models.card_files import is_card, read_card
from simulator.one_line_parser import count, network_input, option, shape, whole
from simulator.terminal import say

if TYPE_CHECKING:
    from simulator.cluster import Cluster
    from simulator.exports.script import TrainedModel
    from simulator.plan import Plan
    from simulator.workload import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "plan PLAN", "a plan file that `partition` or `--plan-out` wrote")
    option(parser, "--to", "the runtime", choices=(*RUNTIMES, TRACES), required=True)
    option(parser, "--profile PROFILE", "profile file or name (default: the plan's)")
    option(parser, "--model NAME", "package.module:callable that makes the network")
    option(parser, "--input-shape AxBxC", "of one sample, e.g. 3x224x224", shape)
    option(parser, "--vocabulary N", "the input is integers below this", count)
    option(parser, "--output FILE", "what to write; - is standard output; of chakra a folder", required=True)
    option(parser, "--ranks A..B", "of chakra, those whose traces are written (default: all)")
    option(parser, "--json", "print what was written, and not as planned, as JSON")


def run(args: argparse.Namespace) -> None:
    from simulator.exports.plan_shape import left_out, plan_shape

    plan = files.read_plan(args.plan)
    if args.to == TRACES:
        _write_traces(plan, args)
        return
    require(not args.ranks, "ranks", args.ranks, "only of chakra is there a file for each; leave it out")
    settings = _plan_files.made_by(plan) if _plan_files.says_how_made(plan) else None
    made = _plan_files.made_for(plan, settings, args.profile) if settings else None
    profile = made[0] if made else _options.profile_on(_plan_files.profile_named(plan, args.profile), None)
    source, sequence = args.profile or (settings.profile if settings else None), getattr(settings, "sequence", None)
    card = read_card(source) if source and is_card(source) else None
    card = replace(card, sequence=sequence) if card and sequence else card
    runtime: Any = importlib.import_module(f"simulator.exports.{args.to}")
    shape = plan_shape(profile, plan, card)
    if shape.expert > 1 and args.to != "megatron":
        raise InputError(f"expert is {shape.expert}: {args.to} scripts share out no experts; take --to megatron")
    runtime.check(plan, shape)
    lines = [*runtime.limits(plan, shape), *left_out(plan, shape)]
    command = shlex.join(["shardscope", *args.argv])
    begun = _torchrun(made[1] if made else None, shape.devices)
    if args.to in ("torchtitan", "megatron"):
        text = runtime.text(plan, shape, command, lines, profile, begun)
    else:
        from simulator.exports.script import script
        from simulator.run import step_report

        predicted_s = step_report(*made[:2], plan, runtime=made[2]).step_s if made else None
        model, name = _trained_model(args, profile), Path(args.output).name
        text = script(runtime, plan, shape, model, command, name, lines, torchrun=begun, predicted_s=predicted_s)
    files.write_text_atomic(args.output, text)
    if args.json:
        written = {"output": args.output, "runtime": args.to, "devices": shape.devices, "not_as_planned": lines}
        _printing.print_json(written)
    else:
        say(*(f"not as planned: {line}" for line in lines), stream=sys.stderr)


def _write_traces(plan: Plan, args: argparse.Namespace) -> None:
    """A trace for each rank asked for, as plan.RANK.et, and its process groups. Raises InputError."""
    import json

    from simulator.exports.chakra import ChakraTraces

    remedy = "simulate --plan FILE --plan-out FILE writes one that does"
    profile, cluster, runtime = _plan_files.made_for(plan, _plan_files.made_by(plan, remedy), args.profile)
    traces = ChakraTraces.of(profile, cluster, plan, runtime)
    ranks, folder = _ranks(args.ranks, traces.ranks), Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        files.write_bytes_atomic(folder / f"plan.{rank}.et", traces.rank(rank))
    groups = {name: list(group) for group, name in traces.groups.items()}
    files.write_text_atomic(folder / "comm_groups.json", json.dumps(groups))
    written = {"output": args.output, "runtime": args.to, "devices": traces.ranks, "files": len(ranks)}
    if args.json:
        _printing.print_json(written)
    else:
        say(f"{folder}: plan.RANK.et of {len(ranks)} of {traces.ranks} ranks, and comm_groups.json")


def _ranks(asked: str | None, ranks: int) -> range:
    """Those that "A..B" or a number says. Raises InputError."""
    first, _, last = (asked or f"0..{ranks - 1}").partition("..")
    numbers = [whole(text) for text in (first, last or first)]
    require(numbers[0] <= numbers[1] < ranks, "ranks", asked, f"write A..B, of ranks 0 to {ranks - 1}")
    return range(numbers[0], numbers[1] + 1)


def _torchrun(cluster: Cluster | None, devices: int) -> str:
    """torchrun with a process for each device, on its hosts where they have as many each, else on one."""
    from simulator.exports.launch import torchrun
    from simulator.language_models.training_stack import accelerator_of

    hosts = Counter(device.host for device in cluster.devices[:devices]) if cluster else Counter()
    even = hosts.total() == devices and len(set(hosts.values())) == 1
    try:
        gpu = accelerator_of(cluster) if cluster else None
    except InputError:  # of no data sheet
        gpu = None
    return torchrun(len(hosts), devices // len(hosts), gpu) if even else torchrun(1, devices)


def _trained_model(args: argparse.Namespace, profile: Profile) -> TrainedModel:
    """The model and its input: as asked for, otherwise as the profile's capture had them. Raises InputError."""
    from simulator.exports.script import TrainedModel

    model = args.model or (profile.model if ":" in profile.model else None)
    if model is None or ":" not in model:
        raise InputError(f"model is {model or profile.model}: name what makes it, --model package.module:callable")
    _check_callable(model)
    words = input_words(profile.command)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    captured = dict(pairs)
    inputs = [network_input(value) for name, value in pairs if name == "--input"]
    if sides := captured.get("--input-shape"):
        inputs = [("", shape(sides), int(captured.get("--vocabulary", 0)) or None)]
    if not (inputs or args.input_shape):
        raise InputError(f"model {model}: its input is unknown; say it, e.g. --input-shape 3x224x224")
    name, sides_known, vocabulary = inputs[0] if inputs else ("", args.input_shape, None)
    asked = (name, args.input_shape or sides_known, args.vocabulary or vocabulary)
    if inputs and inputs != [asked]:
        by_hand = _effects.typed(args) & {"input_shape", "vocabulary"}
        _effects.refuse(by_hand, f"the profile was captured with {shlex.join(words)}; leave it out")
    return TrainedModel(name=model, classes=int(captured.get("--classes", 0)) or None, inputs=inputs or [asked])


def _check_callable(model: str) -> None:
    """Raise InputError unless `model` names a callable of a module, which, where its file is found, defines it.

    The module is not imported: it may need what only the machine that trains has.
    """
    module, _, name = model.partition(":")
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        raise InputError(f"model is {model}: it is package.module:callable, e.g. mine:net")
    source = _source_of(module)
    if source is None:
        return
    tree = ast.parse(source.read_text(encoding="utf-8"))
    defined = {word for node in tree.body for word in _names_bound(node)}
    first = name.partition(".")[0]
    if first not in defined and "*" not in defined:
        near = nearest(first, defined)
        hint = f", did you mean {near}?" if near else "; name one of its functions or classes"
        raise InputError(f"model is {model}: {source} defines no {first}{hint}")


def _source_of(module: str) -> Path | None:
    """The file of a module in this folder or on the path, if there is one."""
    for folder in (".", *sys.path):
        path = Path(folder, *module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


def _names_bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a module, or one inside it, binds."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield inner.name
        elif isinstance(inner, ast.alias):
            yield (inner.asname or inner.name).partition(".")[0]
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id
