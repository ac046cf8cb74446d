"""The field suite: networks drawn from a grammar, in labs as users shape them, predicted and then run.

    sudo python -m benchmarks.machines.field_suite --seed 25 --runs 30 --output out/field
    python -m benchmarks.machines.field_suite --seed 25 --runs 30 --output out/field --again    predict stored runs anew

`python -m benchmarks.machines.validation --add FOLDER` ships what it stored.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.machines.field_cases import RUNS, SEED, field
from simulator import files
from simulator.cli.validate import make_plan, print_outcomes
from traces.results.run_speed import error_at_run_speed
from traces.results.validation_cases import Case
from traces.validation.validate import predicted, run_path, stored, validate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("out/field"))
    parser.add_argument("--again", action="store_true", help="predict stored runs anew with this simulator")
    args = parser.parse_args()
    cases = field(args.seed, args.runs)
    if args.again:
        predict_again(cases, args.output)
    print_outcomes(validate(cases, args.output, make_plan, rounds=args.rounds), args.rounds)


def predict_again(cases: Sequence[Case], folder: Path) -> None:
    """Replace the stored predictions of `cases` by those of the simulator as it is now, from the same calibration."""
    wanted = {case.name for case in cases}
    for outcome in stored(folder):
        if outcome.case.name in wanted:
            _, _, report, interval = predicted(folder, outcome.case, make_plan)
            again = replace(
                outcome,
                predicted_s=interval.middle_s,
                predicted_bytes=report.communication_bytes.total,
                predicted_memory_bytes=report.peak_memory_bytes,
                interval_s=(interval.low_s, interval.high_s),
                error_at_run_speed=error_at_run_speed(folder, outcome.case),
            )
            files.write_json(again, run_path(folder, outcome.case))


if __name__ == "__main__":
    main()
