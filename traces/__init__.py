"""Everything that touches real hardware, and the library of captured profiles. Only here is torch imported.

zoo/          networks to capture, with torch.nn alone    calibrate/    links and runtimes, measured
capture/      one network, layer by layer                 runs/         a plan, for real
imports/      what others measured                        results/      what runs left behind; no torch
library/      the profiles that ship                      validation/   predicted against actual runs
curves/       convergence curves that ship                elastic/      devices that come and go
lab/          processes on a shaped network               convergence/  training to an accuracy

Import from the files themselves: processes that start with one of them need none of the others.
"""
