"""Measure convergence curves: train to a target accuracy at many batch sizes and staleness bounds (needs torch).

    shardscope converge vgg_digits --dataset digits --batch-sizes 16..1024 --target 0.97 --output curves.json

Every batch size is trained with several seeds, after its learning rate was tuned. With --staleness 1..8 also
asynchronously and with PipeDream's weight versions, with gradients of exactly that age. Runs on one CPU thread.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from simulator.cli import _printing
from simulator.errors import needing
from simulator.files import write_json
from simulator.one_line_parser import count, doublings, option, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    option(parser, "model MODEL", "the network in the zoo")
    option(parser, "--dataset NAME", "what it learns (default %(default)s)", default="digits")
    text = "16..1024 is 16, 32, ... 1024; or numbers with commas between (default 16..1024)"
    option(parser, "--batch-sizes A..B", text, doublings, default="16..1024")
    option(parser, "--target X", "accuracy (default 0.97)", positive, default=0.97)
    text = "staleness of gradients in updates, written alike (default: none)"
    option(parser, "--staleness A..B", text, doublings, default=())
    option(parser, "--stale-batch-size B", "samples per update (default 64)", count, default=64)
    option(parser, "--seeds N", "trials of each (default 5)", count, default=5)
    option(parser, "--epochs N", "epochs after which a trial ends (default 100)", count, default=100)
    option(parser, "--output FILE", "the JSON file to write", required=True)
    option(parser, "--json", "print what was measured as JSON; progress on stderr")


def run(args: argparse.Namespace) -> None:
    with needing("torch", "converge"):
        from traces.convergence.curve_measurement import converge

    curves = converge(
        args.model,
        args.dataset,
        batch_sizes=args.batch_sizes,
        target=args.target,
        staleness=args.staleness,
        stale_batch_size=args.stale_batch_size,
        seeds=args.seeds,
        epochs=args.epochs,
        command="shardscope " + shlex.join(args.argv),
        say=lambda line: print(line, file=sys.stderr if args.json else sys.stdout, flush=True),
    )
    write_json(curves, args.output)
    if args.json:
        _printing.print_json({"output": args.output, "model": curves.model, "trials": len(curves.trials)})
    else:
        print(f"wrote {args.output}: {len(curves.trials)} trials")
