"""Predict real runs, make them, and compare.

    doctor           three short real steps on a user's cluster, each beside its prediction
    measured_inputs  what predictions of a suite are made from, measured before any run
    random_networks  networks drawn from a grammar, so that nobody can tune a simulator to them
    validate         predict real runs, make them, and say how wrong the predictions were

Import from the files themselves: processes that start with one of them need none of the others.
"""
