"""Everything that touches real hardware, and the library of captured profiles. Only here is torch imported.

zoo/          networks to capture, with torch.nn alone    calibrate/    links and runtimes, measured
capture/      one network, layer by layer                 runs/         a plan, for real
device_card/  a whole device, predicted, then measured    results/      what runs left behind; no torch
imports/      what others measured                        validation/   predicted against actual runs
library/      the profiles that ship                      elastic/      devices that come and go
curves/       convergence curves that ship                convergence/  training to an accuracy
lab/          processes on a shaped network
"""
