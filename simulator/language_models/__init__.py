"""Language models from their cards: a profile without a capture, and the grids that they are trained on.

model_card        a decoder in numbers; cards/ holds the common ones
card_files        cards by name or from a file
huggingface_config  a card from the config.json of a checkpoint
accelerators      data sheets of GPUs, and what products sustain of their peaks
kernels           seconds of a product and of an attention by their sizes
block             the operators of a block, of the embedding, the head and the loss, on one device
device_model      seconds of an operator on a GPU: its kernels, and what software adds
training_stack    a GPU, what its kernels reach, and the habits of a runtime; stacks/
layer_shapes      the layers of a card's profile: which part of which operator each is, and what it keeps
modelled_profile  a Profile out of a card: modelled, and called so
training_grid     data x context x tensor x pipeline degrees, experts, ZeRO stage, recomputation and micro-batches
grids             every grid of so many GPUs

A grid becomes a plan, and is simulated, in `partitioners._grids`.
"""
