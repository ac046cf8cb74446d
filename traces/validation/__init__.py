"""Predict real runs, make them, and compare.

    validate  predict real runs, make them, and say how wrong the predictions were

Import from the files themselves: processes that start with one of them need none of the others.
"""
