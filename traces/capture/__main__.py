"""Capture one network: `python -m traces.capture MODEL --batch-size N --output FILE`."""

import sys

from traces.capture.command import main

sys.exit(main())
