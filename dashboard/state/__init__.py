"""What the pages show, before anything is drawn: configurations, results, uploads. No Dash here.

advice         what to try next: a fixed list of single changes, each simulated, the best one first
alternatives   the strategies beside each other: what the menu makes of each
candidates     the plans that a search tried, each in a few figures
caps           what this page does not plan or simulate, told before anything is planned
columns        the columns of the partition figure: stretches of the network with a plan's splits, of each what matters
configuration  what the user has set: a Configuration, and its written forms, a URL query and a command line
desk           who waits for what: a tab's latest request wins
device_groups  devices in groups where there are too many to be drawn each, or as the grid of a plan
flows          where the bytes of a run go: inside nodes and between them
folding        a network folded into chains, lanes and stretches
inventory      profiles, clusters, runs ... that pages can name: those of the start, and what users uploaded
measures       numbers beyond the report: where the time of devices goes, tensors in flight, MFU, whose device it is
opening        files that are opened on any page: known by what they hold, shown where that is shown, or answered
planning       from a configuration to its cluster and its plan; which batches and degrees a strategy can run
plans          every plan of a model on so many devices, ranked by the search of `compare`
scenarios      the example scenarios, and the accounts of scenarios, each simulated once
simulating     from a configuration to its outcome; every cap is checked before planning
store          the inputs that pages can name, and configurations of them, each simulated once
sweeps         sweeps that run behind the pages: a grid over parameters, on the project's sweep runner
uploads        reading what a browser sends: nothing in it may run, read a file or keep the server busy
validations    stored validations and their runs in groups; steps that others measured on GPUs and published
warm           what a worker's first simulation loads
worker_process a worker process, the pipe to it, and where it is forked from
workers        lanes of work for worker processes, each piece of which can be ended
"""
