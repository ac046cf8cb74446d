"""Capture one network: `python -m traces.capture MODEL --batch-size N --output FILE`."""

import sys

from simulator.errors import ShardscopeError
from traces.capture.command import main

try:
    code = main()
except (ShardscopeError, OSError) as error:
    print(f"shardscope capture: {' '.join(str(error).split())}", file=sys.stderr)
    code = 2
sys.exit(code)
