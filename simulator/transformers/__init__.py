"""Language models from their cards: layers without a capture, and a step's time and memory by mechanism.

model_card         a decoder in numbers; cards/ holds the common ones
accelerators       peak arithmetic and memory of GPUs, from their data sheets
block              the operators of a block, of the embedding, the head and the loss, on one device
activations        bytes that a block keeps for its backward pass, in closed form
modelled_profile   a Profile out of a card: modelled, and called so
training_grid      data x context x tensor x pipeline degrees, experts, ZeRO stage, recomputation and micro-batches
stage_split        which blocks stand on which stage
training_stack     what a runtime on a cluster costs beside arithmetic, each constant with its bounds; stacks/
stack_on_cluster   a stack on other GPUs and links than it was calibrated on
stage_time         seconds of a stage and micro-batch: the GPU's, or the host's where it launches more slowly
pipeline_time      1F1B over unequal stages, as `simulator.lowering.schedules` orders it
gradient_exchange  seconds to sum gradients and to gather parameters
step_time          a step of a grid
step_memory        peak bytes of a grid, by kind, and whether they fit
grid_interval      between which seconds a step is to be expected
block_timeline     one block inside a stage, operator by operator
grid_search        every grid of so many GPUs, ranked
launch_commands    how a runtime is told a grid
measured_rows      measured runs from a CSV
bounded_fit        robust least squares inside bounds
calibration        the constants of a stack from measured steps

Everything here is one stage, one tensor-parallel group and one replica standing for all: what is equal is evaluated
once and counted.
"""
