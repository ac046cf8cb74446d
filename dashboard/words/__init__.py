"""Numbers in words: the row of key figures, two runs compared, a partition.

comparison  two runs side by side as rows of a table, each difference with whether it is an improvement; which layers
            stand elsewhere
kpis        the numbers on top, each with its difference to the baseline, and the one verdict on a step
partition   the partition figure in words: its head, its heaviest nets, and the figures of each strategy
sweep       a sweep's quantities, each in one unit, and where which strategy wins
volume      what plans move, in one unit for a page
"""
