"""Readers of what single research projects published, for the profiles and pages that are made of it.

Nothing of the product reads these formats: `shardscope import` knows those that users have files of.

triosim       TrioSim's trace.csv, with the structure of the model
neusight      NeuSight's tables of torch.fx nodes
aceso         Aceso's tables by micro-batch and tensor-parallel degree
sailor        Sailor's profile.json
bytedance     a production job of ByteDance's: profile, plan, and what each step was seen to do

_csv_rows         rows of a table that may be packed
_fx_table         layers out of a table of torch.fx nodes
_job_operations   the operations of a recorded job, step by step
_aceso_tables, _aceso_gpt, _aceso_resnet
"""
