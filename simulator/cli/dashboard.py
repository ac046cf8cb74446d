"""Serve the dashboard: timeline, load balance, communication and memory of simulated steps.

It shows the profiles that come with Shardscope and those given here, and listens on this machine only unless
--host says otherwise; whoever reaches that address can use it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from simulator.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profiles", metavar="PROFILE", nargs="*", help="profile files to show beside the library's")
    parser.add_argument(
        "--validation", metavar="PATH", type=Path,
        help="a validation.json, or the folder of `shardscope validate`, which also holds single tasks",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=8050, help="port to listen on (default 8050; 0 takes a free one)")


def run(args: argparse.Namespace) -> int:
    from dashboard.app import serve
    from dashboard.frame.security import LOCAL
    from dashboard.state.scenarios import shipped_scenarios
    from dashboard.state.store import Store, bundled
    from dashboard.state.validations import at_hand

    if not 0 <= args.port <= 65535:
        raise InputError(f"port is {args.port}: it is 0 to 65535")
    if args.host not in LOCAL:
        print(
            f"warning: anyone who reaches {args.host} can use this dashboard; it asks for no password", file=sys.stderr
        )
    validations = at_hand(args.validation)
    store = Store(bundled(args.profiles), validations=validations, scenarios=shipped_scenarios())
    serve(store, args.host, args.port)
    return 0
