"""Predict and measure one card: `python -m traces.device_card --output DIR`."""

import sys

from traces.device_card.command import main

sys.exit(main())
