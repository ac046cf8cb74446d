"""Predict and measure one card: `python -m benchmarks.device_card --output DIR`."""

import sys

from benchmarks.device_card.command import main

sys.exit(main())
