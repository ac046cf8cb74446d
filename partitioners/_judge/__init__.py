"""Plans are compared by their simulated steps.

judge  judging plans by simulating them, within a budget of tasks so that a search takes the same path everywhere
"""
