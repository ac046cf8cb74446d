"""Who holds which part of a parameter, and which gradients travel together.

buckets   which parameter gradients travel together in one collective
replicas  who uses which part of a parameter: every piece with the devices that hold it and sum its gradient
"""
