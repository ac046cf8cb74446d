"""How long traffic takes on the links of a cluster when nothing else runs.

fabric  closed forms of how long traffic takes on a cluster's links when it all starts at once and nothing else runs
wiring  which links the messages between devices load, apart from how fast those links are
"""
