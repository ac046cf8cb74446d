"""Commands that measure the project itself, and make its pages; none is in the wheel.

accuracy           docs/accuracy.md: steps measured by others beside the simulator's
networks           links and collectives beside what others measured
library            what ships as data, made of published measurements
artefacts          readers of single research artefacts
studies            the published work that the project implements
machines           one's own machines: captured, calibrated, predicted and run
device_card        a whole device: predicted first, then measured
parallel_runtimes  torch's own runtimes in shaped networks, predicted and then run
user_networks      networks as users bring them
speed              what the simulator's own work takes
screens            what the dashboard's screens take in a browser
robustness         damage, kills and faults
pages              documentation that is made by commands
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The project's folder."""
