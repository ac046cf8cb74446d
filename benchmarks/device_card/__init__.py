"""A whole device: predicted from its own profiles first, then measured: `python -m benchmarks.device_card`.

    cards            what is measured of whole steps on one device beside a profile's prediction of it. No torch here
    command          everything to be known of one card in one command
    measured_checks  measures one check of a card
    memory_copies    how long copies take between the host's memory and a GPU's, and within a GPU's
    predictions      the prediction of a check from a profile that was captured on the same device
    stream_pipeline  a pipeline whose stages share one device, each on a CUDA stream of its own; without streams, one
                     after another
    whole_steps      whole training steps on one device: eager, in micro-batches, as a CUDA graph, and the memory that
                     they take

Import from the files themselves: processes that start with one of them need none of the others.
"""
