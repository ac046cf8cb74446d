"""Questions that take several simulations: scaling, accumulation, bottlenecks, what-if.

accumulation    a batch larger than the devices hold at once: micro-batches whose gradients add up before one update
architectures   ways of synchronising data parallelism, as a user names them
asynchronous    parameter servers that do not wait for everyone: several steps of every worker, and their steady-
                state throughput
bandwidth_need  which network plans need: the step of the best of several over the bandwidth of one tier of links
bottleneck      what limits a step, by name and with the evidence: the chain that bound it, then the same step with
                more of it
by_message      one all-reduce message by message, with late devices and unequal links
explain         a plan in words: how layers are sharded, what they communicate, and what would make the step faster
scaling         how data parallelism scales: the same network on more and more devices, by ways of synchronising
scaling_figure  the pictures of a scaling study: a plain Plotly figure of four panels, and a chart of the throughput
                alone
what_if         sensitivity of a step: the same plan simulated again with one resource twice as fast
"""
