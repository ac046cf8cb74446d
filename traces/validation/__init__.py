"""Predict real runs, make them, and compare.

doctor           three short real steps on a user's cluster, each beside its prediction
measured_inputs  what predictions of a suite are made from, measured before any run
validate         predict real runs, make them, and say how wrong the predictions were
"""
