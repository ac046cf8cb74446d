"""Which steps tests/test_golden.py records: every strategy, schedule, collective, runtime field and kind of cluster."""

from __future__ import annotations

from typing import Any

from golden_cases import GoldenCase

WIRE_CPU: dict[str, Any] = {"send_cpu_s_per_byte": 4e-10, "receive_cpu_s_per_byte": 7e-10}
SWITCH: dict[str, Any] = {"devices": 4, "speed": 100.0}
NODES: dict[str, Any] = {"shape": "nodes", "devices": 8, "speed": 100.0}
DATA: dict[str, Any] = {"strategy": "data", "batch_size": 64}
MEASURED = ((1e3, 1e-4), (1e6, 1.5e-3), (1e8, 0.11))


def case(
    name: str, profile: str, cluster: dict[str, Any], plan: dict[str, Any], needs: str = "", **rest: Any
) -> GoldenCase:
    """rest: fields of the runtime, and `noise`."""
    noise = rest.pop("noise", {})
    return GoldenCase(name=name, profile=profile, cluster=cluster, plan=plan, runtime=rest, noise=noise, needs=needs)


def synchronised(collective: str, **options: Any) -> dict[str, Any]:
    """Data parallelism with a collective and fields of its synchronisation."""
    return {**DATA, "sync": {"collective": collective, **options}}


def pipeline(schedule: str, **options: Any) -> dict[str, Any]:
    """Stages on all devices, so that the schedule shows."""
    own = {"judged": False, **options}
    return {"strategy": "pipeline", "batch_size": 32, "microbatches": 8, "schedule": schedule, **own}


def down_and_up(schedule: str) -> dict[str, Any]:
    """Two stages on each of two devices."""
    step = {"batch_size": 32, "microbatches": 8, "schedule": schedule}
    return {"strategy": "megatron", "pipeline": 2, "layout": "equal", **step}


STRATEGIES = [
    case("data on vgg16", "vgg16", SWITCH, DATA),
    case("greedy on inception_v3", "inception_v3", SWITCH, {"strategy": "greedy", "batch_size": 16, "microbatches": 2}),
    case("shuffle on resnet50", "resnet50", NODES, {"strategy": "shuffle", "batch_size": 16, "seed": 3}),
    case("fsdp on vgg_small", "vgg_small", SWITCH, {"strategy": "fsdp", "batch_size": 32, "microbatches": 2}),
    case(
        "megatron on gpt_1_3b_v100",
        "gpt_1_3b_v100",
        {**NODES, "speed": 1.0},
        {
            **{"strategy": "megatron", "batch_size": 16, "microbatches": 4},
            **{"tensor": 2, "pipeline": 2, "recomputation": "selective"},
        },
    ),
    case("model on vgg16", "vgg16", SWITCH, {"strategy": "model", "batch_size": 16, "judged": False}),
    case("model, judged", "vgg16", SWITCH, {"strategy": "model", "batch_size": 16}),
    case("pipeline, judged", "vgg16", NODES, {"strategy": "pipeline", "batch_size": 64}),
    case("pipeline into little memory", "vgg16", {**SWITCH, "memory_bytes": 2**30}, pipeline("1f1b", judged=True)),
    case("owt on alexnet", "alexnet", NODES, {"strategy": "owt", "batch_size": 128}),
    case("owt on vgg16 accumulating", "vgg16", SWITCH, {"strategy": "owt", "batch_size": 32, "microbatches": 4}),
    case("spatial on vgg16", "vgg16", SWITCH, {"strategy": "spatial", "batch_size": 8}),
    case("spatial on inception_v3", "inception_v3", SWITCH, {"strategy": "spatial", "batch_size": 8}),
    case(
        "megatron tensor 2 x pipeline 2 on vgg16",
        "vgg16",
        NODES,
        {"strategy": "megatron", "batch_size": 16, "microbatches": 4, "tensor": 2, "pipeline": 2},
    ),
    case(
        "fsdp with recomputed blocks", "vgg16", SWITCH, {"strategy": "fsdp", "batch_size": 16, "recomputation": "full"}
    ),
    case("layerwise on alexnet", "alexnet", {**SWITCH, "speed": 2.0}, {"strategy": "layerwise", "batch_size": 64}),
    case(
        "layerwise by simulated step",
        "vgg_small",
        {**NODES, "speed": 5.0},
        {"strategy": "layerwise", "batch_size": 32, "objective": "step", "dimensions": "nc", "effort": 0.05},
    ),
    case(
        "hypergraph for the step",
        "vgg_small",
        {**SWITCH, "speed": 2.0},
        {"strategy": "hypergraph", "batch_size": 16, "effort": 0.05, "seed": 1},
    ),
    case(
        "hypergraph cut alone",
        "alexnet",
        NODES,
        {"strategy": "hypergraph", "batch_size": 16, "effort": 0.02, "others": False, "grid": (4, 4), "imbalance": 0.2},
    ),
    case(
        "hypergraph for the volume",
        "branches",
        {"devices": 3},
        {"strategy": "hypergraph", "batch_size": 8, "objective": "volume", "effort": 0.02, "imbalance": 0.3},
    ),
    case(
        "hypergraph by mtkahypar",
        "vgg_small",
        NODES,
        {"strategy": "hypergraph", "batch_size": 8, "effort": 0.02, "others": False, "partitioner": "mtkahypar"},
        needs="mtkahypar",
    ),
    case("metis on alexnet", "alexnet", SWITCH, {"strategy": "metis", "batch_size": 16}, needs="pymetis"),
    case("random shards 1", "branches", {"devices": 5}, {"strategy": "random", "seed": 1, "batch_size": 8}),
    case(
        "random shards 2",
        "branches",
        {"devices": 6, "shape": "ring", "speeds": (1.0, 2.0, 0.5, 1.0, 1.0, 3.0)},
        {"strategy": "random", "seed": 2, "batch_size": 12, "microbatches": 3, "sync": {"bucket_bytes": 0}},
    ),
    case("random shards 3", "resnet_small", SWITCH, {"strategy": "random", "seed": 3, "batch_size": 8}),
]
PIPELINES = [
    case("gpipe", "vgg16", SWITCH, pipeline("gpipe")),
    case("1f1b", "resnet50", SWITCH, pipeline("1f1b")),
    case("sequential", "vgg16", SWITCH, pipeline("sequential")),
    case("1f1b with replicas", "vgg16", NODES, pipeline("1f1b", replicas=True)),
    case("dataflow pipeline with replicas", "alexnet", NODES, pipeline("dataflow", replicas=True)),
    case("pipedream", "vgg16", SWITCH, pipeline("pipedream")),
    case("pipedream-2bw", "vgg16", SWITCH, pipeline("pipedream-2bw")),
    case("interleaved", "resnet50", SWITCH, pipeline("interleaved", chunks=2)),
    case("interleaved by three", "vgg16", {**SWITCH, "devices": 2}, pipeline("interleaved", chunks=3)),
    case("combined-1f1b", "resnet50", {**SWITCH, "devices": 2}, pipeline("combined-1f1b", chunks=2)),
    case("zero-bubble", "vgg16", SWITCH, pipeline("zero-bubble")),
    case("zero-bubble in chunks", "resnet50", {**SWITCH, "devices": 2}, pipeline("zero-bubble", chunks=2)),
    *(case(name, "vgg16", {**SWITCH, "devices": 2}, down_and_up(name)) for name in ("zb-v", "v-half", "v-min")),
    case("gpipe, chosen micro-batches", "alexnet", SWITCH, pipeline("gpipe", microbatches=None)),
    case("rendezvous gpipe", "vgg16", SWITCH, pipeline("gpipe"), rendezvous=True),
    case("rendezvous 1f1b", "vgg16", SWITCH, pipeline("1f1b"), rendezvous=True),
    case("rendezvous interleaved", "vgg16", SWITCH, pipeline("interleaved"), rendezvous=True),
    case("rendezvous zero-bubble", "vgg16", SWITCH, pipeline("zero-bubble", chunks=2), rendezvous=True),
    case("rendezvous pipedream", "vgg16", SWITCH, pipeline("pipedream"), rendezvous=True),
    case("pass overheads", "vgg_small", SWITCH, pipeline("1f1b"), pass_overhead_s=2e-3, task_overhead_s=1e-4),
    case(
        "pipeline on shared cores",
        "vgg_small",
        {"preset": "cpu-1g", "devices": 4, "cores": 1.0},
        pipeline("interleaved"),
        rendezvous=True,
        busy_latency_s=3e-3,
        pass_overhead_s=1e-3,
        **WIRE_CPU,
    ),
]
COLLECTIVES = [
    case("ring on nodes", "resnet50", NODES, synchronised("ring", bucket_bytes=4 * 2**20)),
    case("ring without overlap", "resnet50", SWITCH, synchronised("ring", overlap=False)),
    case("ring layer by layer", "vgg16", SWITCH, synchronised("ring", bucket_bytes=0)),
    case("halving-doubling", "vgg16", NODES, synchronised("halving-doubling")),
    case("halving-doubling of six", "resnet50", {**SWITCH, "devices": 6}, synchronised("halving-doubling")),
    case("tree", "vgg16", {**NODES, "devices": 7}, synchronised("tree")),
    case("hierarchical", "resnet50", {**NODES, "devices": 16}, synchronised("hierarchical")),
    case("hierarchical-tree", "vgg16", {**NODES, "devices": 12}, synchronised("hierarchical-tree", overlap=False)),
    case("all-to-all", "alexnet", NODES, synchronised("all-to-all", bucket_bytes=2**20)),
    case("one server", "vgg16", {**SWITCH, "servers": 1}, synchronised("ps")),
    case("three servers without overlap", "resnet50", {**NODES, "servers": 3}, synchronised("ps", overlap=False)),
    case("servers on workers", "vgg16", NODES, synchronised("ps-workers")),
    case("three workers serve", "resnet50", NODES, synchronised("ps-workers", serving_workers=3)),
    case("16 bits", "vgg16", SWITCH, synchronised("ring", half_precision=True)),
    case("compressed", "vgg16", SWITCH, synchronised("ring", compression_ratio=30.0, compression_s_per_byte=2e-9)),
    case(
        "compressed to servers in 16 bits",
        "alexnet",
        {**SWITCH, "servers": 2},
        synchronised("ps", half_precision=True, compression_ratio=4.0, compression_s_per_byte=1e-9),
    ),
    case("measured all-reduce", "resnet50", {**SWITCH, "all_reduce": MEASURED}, synchronised("ring")),
    case("measured links", "vgg16", {**SWITCH, "link_curve": MEASURED}, synchronised("tree")),
    case("accumulating", "resnet50", SWITCH, {**DATA, "microbatches": 4, "optimizer_state": 2.0}),
]
MACHINES = [
    case("dgx-a100", "resnet50", {"preset": "dgx-a100", "devices": 16, "speed": 900.0}, {**DATA, "batch_size": 256}),
    case("dgx-h100", "vgg16", {"preset": "dgx-h100", "devices": 12, "speed": 2000.0}, synchronised("hierarchical")),
    case("p3-16xlarge", "vgg16", {"preset": "p3-16xlarge", "devices": 16, "speed": 200.0}, synchronised("ring")),
    case("t4-g4dn one wide server", "alexnet", {"preset": "t4-g4dn", "devices": 4, "servers": 1}, synchronised("ps")),
    case("p100-4x4 pipeline", "vgg16", {"preset": "p100-4x4", "devices": 4, "speed": 80.0}, pipeline("gpipe")),
    case("cpu-1g", "vgg_digits", {"preset": "cpu-1g", "devices": 4}, {**DATA, "batch_size": 256}),
    case(
        "p3-8xlarge as measured",
        "vgg16_v100",
        {"preset": "p3-8xlarge", "devices": 8, "line_rate": False},
        {**DATA, "batch_size": 1024},
    ),
    case(
        "p3-16xlarge and its collectives as measured",
        "resnet50_v100",
        {"preset": "p3-16xlarge", "devices": 16, "line_rate": False},
        {**DATA, "batch_size": 512},
    ),
    case(
        "dgx-h100 as measured, a pipeline",
        "gpt2_large_h100",
        {"preset": "dgx-h100", "devices": 4, "line_rate": False},
        {"strategy": "pipeline", "batch_size": 16, "microbatches": 16},
    ),
    case("torus", "resnet_small", {"shape": "torus", "devices": 6}, synchronised("ring")),
    case("ring of devices", "alexnet", {**SWITCH, "shape": "ring", "devices": 5}, synchronised("all-to-all")),
    case("line", "branches", {"shape": "line", "devices": 5}, {"strategy": "random", "seed": 9, "batch_size": 8}),
    case("unequal speeds balanced", "resnet50", {**SWITCH, "speeds": (1.0, 0.5, 2.0, 1.0)}, DATA),
    case(
        "unequal speeds, equal shares", "vgg16", {**SWITCH, "speeds": (1.0, 0.5, 2.0, 1.0)}, {**DATA, "balance": False}
    ),
    case("unequal speeds in a pipeline", "vgg16", {**SWITCH, "speeds": (1.0, 0.5, 2.0, 1.0)}, pipeline("1f1b")),
    case(
        "written shares",
        "vgg_small",
        SWITCH,
        {"strategy": "written", "shares": (1, 5, 3, 7), "batch_size": 32, "microbatches": 2},
    ),
    case("too little memory", "vgg16", {**SWITCH, "memory_bytes": 2**30}, {**DATA, "optimizer_state": 2.0}),
]
RUNTIMES = [
    case("overlap slowdown", "resnet50", {**NODES, "speed": 5.0}, synchronised("tree"), overlap_slowdown=1.4),
    case("overlap slowdown of servers", "vgg16", {**SWITCH, "servers": 2}, synchronised("ps"), overlap_slowdown=1.25),
    case("task overheads", "inception_v3", SWITCH, {**DATA, "batch_size": 8}, task_overhead_s=3e-5),
    case("cores for the wire", "vgg_small", {**SWITCH, "speed": 1.0, "cores": 1.0}, DATA, **WIRE_CPU),
    case("cores shared on nodes", "resnet_small", {**NODES, "speed": 1.0, "cores": 2.0}, DATA, **WIRE_CPU),
    case(
        "busy latency", "vgg_small", {**SWITCH, "cores": 1.0}, synchronised("tree", bucket_bytes=0), busy_latency_s=1e-3
    ),
    case(
        "every runtime field",
        "vgg_small",
        {**SWITCH, "speed": 1.0, "cores": 1.5, "servers": 1},
        pipeline("1f1b", replicas=True, sync={"collective": "ps", "bucket_bytes": 2**20}),
        overlap_slowdown=1.1,
        busy_latency_s=2e-3,
        task_overhead_s=1e-4,
        pass_overhead_s=1e-3,
        rendezvous=True,
        **WIRE_CPU,
    ),
    case("straggler", "resnet50", SWITCH, DATA, noise={"stragglers": {2: 1.7}}),
    case("jitter", "vgg16", SWITCH, DATA, noise={"jitter": 0.1, "seed": 5}),
    case("noisy pipeline", "vgg16", SWITCH, pipeline("1f1b"), noise={"jitter": 0.2, "stragglers": {1: 1.5, 3: 0.5}}),
]
CASES = STRATEGIES + PIPELINES + COLLECTIVES + MACHINES + RUNTIMES
