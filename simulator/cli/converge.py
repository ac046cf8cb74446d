"""Measure convergence curves: train to a target accuracy at many batch sizes and staleness bounds (needs torch).

    shardscope converge vgg_digits --dataset digits --batch-sizes 16..1024 --target 0.97 --output curves.json

Every batch size is trained with several seeds, after its learning rate was tuned. With --staleness 1..8 also
asynchronously and with PipeDream's weight versions, with gradients of exactly that age. Runs on one CPU thread.
"""

from __future__ import annotations

import argparse
import shlex
import sys

from simulator.cli import _values
from simulator.errors import needing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the network in the zoo")
    parser.add_argument("--dataset", metavar="NAME", default="digits", help="what it learns (default %(default)s)")
    parser.add_argument(
        "--batch-sizes", metavar="A..B", type=doublings, default=doublings("16..1024"),
        help="16..1024 is 16, 32, ... 1024; or numbers with commas between (default 16..1024)",
    )  # fmt: skip
    parser.add_argument("--target", metavar="X", type=_values.positive, default=0.97, help="accuracy (default 0.97)")
    parser.add_argument(
        "--staleness",
        metavar="A..B",
        type=doublings,
        default=(),
        help="staleness of gradients in updates, written alike (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--stale-batch-size", metavar="B", type=_values.count, default=64, help="samples per update (default 64)"
    )
    parser.add_argument("--seeds", metavar="N", type=_values.count, default=5, help="trials of each (default 5)")
    parser.add_argument(
        "--epochs", metavar="N", type=_values.count, default=100, help="epochs after which a trial ends (default 100)"
    )
    parser.add_argument("--output", metavar="FILE", required=True, help="the JSON file to write")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON; progress on stderr")


def run(args: argparse.Namespace) -> int:
    with needing("torch", "converge"):
        from traces.convergence.curve_measurement import converge
    from simulator.cli import _printing
    from simulator.convergence.curve_files import write_curves

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
    write_curves(curves, args.output)
    if args.json:
        _printing.print_json({"output": args.output, "model": curves.model, "trials": len(curves.trials)})
    else:
        print(f"wrote {args.output}: {len(curves.trials)} trials")
    return 0


def doublings(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between, or A..B for A, 2A, 4A, ... up to B, for argparse."""
    first, dots, last = text.partition("..")
    if not dots:
        return _values.counts(text)
    low, high = _values.count(first), _values.count(last)
    if high < low:
        raise argparse.ArgumentTypeError(f"{text!r} is empty: write the smaller number first")
    return tuple(low << i for i in range((high // low).bit_length()))
