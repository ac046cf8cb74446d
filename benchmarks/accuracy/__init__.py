"""docs/accuracy.md: steps measured on real GPUs by others, beside what the simulator says of them.

neusight         GPT-2 large, data parallel on four H100
sailor           OPT-350M on 4 to 128 GH200, by plan
ddp_buckets      the gradient buckets of a ResNet-50 step of DDP on two A100
bytedance        a production job, replayed operation by operation
ultrascale       1B and 8B on 8 to 128 H100, every grid, by the stack calibrated on others of them
llm_foundry      MPT under FSDP on 8 to 128 A100-40, from model cards
mosaicml         MPT under FSDP on 8 to 64 A100-80 and 8 to 512 H100, from model cards
dgxc             Llama 3.1 8B and 70B on 8 to 2,048 H100, from model cards
torchtitan       Llama 3.1 8B and 70B under FSDP and tensor parallelism on 8 to 256 H100
dlperf           GPT on 1 to 32 V100, data or tensor parallel across nodes, from model cards
internevo        7B with ZeRO-1 over all and over groups of eight on 8 to 1,024 A100, from a model card
primus           Llama 2 7B in eight stages on MI300X, by schedule
simumax          blocks of Llama 3 and DeepSeek on 8 B200
bloom            GPT of 181B to 205B on 320 to 384 A100-80, plans of a search
nemo             Llama, GPT-3, Nemotron and mixtures in 8 and 16 bits on H100 to GB300, from model cards
mlperf           GPT-3 175B, Llama 3.1 405B and 8B in 8 bits on 8 to 11,616 H100 to GB300, from model cards
google_cloud     Llama, GPT-3 and Mixtral under NeMo and MaxText on 128 to 576 H100, H200 and B200
unnamed          runs of ten of these by the stack that is taken where none is named
automodel        Llama 70B and mixtures of experts on 8 to 256 H100
megatron_golden  peak memory of GPT in Megatron-LM's functional tests
summary          the sources of the page, a row each
_steps           a published run beside its prediction, and the figures of many
_source          a source of runs as a section of the page and an entry of its data file
_grids           runs of language models, predicted by card, grid, preset and stack
_recipes         rows of a table as networks and grids
_plans           the step of a plan of a profile
"""
