"""The field suite: runs as strangers make them, drawn from a seed so that nobody can tune to them.

    network   drawn from a grammar (benchmarks/machines/random_networks.py)
    lab       rate, discipline and burst as a user sets them with `tc`; sometimes one host is slower
    ddp       torch's default buckets, or others; static_graph; gradients accumulated under no_sync; a straggler
    pipeline  GPipe or 1F1B, 2 to 8 micro-batches, stages as a balanced plan cuts them or uneven

Ranks run on whatever cores they like, with TCP as the machine has it, two of them: as many as the smallest machine
has cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from simulator.plan import FIRST_BUCKET_BYTES, Synchronisation
from traces.results.validation_cases import Case, LabNetwork

RUNS, LABS, NETWORKS = 60, 6, 12
SEED = 1
DEFAULT_BYTES = Synchronisation().bucket_bytes
NETWORK = "benchmarks.machines.random_networks:NETWORK_{seed}_{number}"


def field(seed: int = SEED, runs: int = RUNS) -> tuple[Case, ...]:
    """`runs` different runs, in the order in which they were drawn."""
    random = Random(f"field {seed}")
    labs = list(_labs(random))
    cases: dict[str, Case] = {}
    while len(cases) < runs:
        model = NETWORK.format(seed=seed, number=random.randrange(min(NETWORKS, max(4, runs // 4))))
        lab = random.choice(labs[: max(2, runs // 10)])
        batch_size = random.choice((16, 32))
        case = (_ddp if random.random() < 0.5 else _pipeline)(random, model, lab, batch_size)
        cases.setdefault(case.name, case)
    return tuple(cases.values())


def _labs(random: Random) -> Iterator[LabNetwork]:
    """LABS different ones: each discipline and every burst among the first of them, at different rates."""
    rates = random.sample((200, 300, 500, 800, 1000, 2000), LABS)
    bursts = random.sample((250, 1000, 5000), 3)
    for number, mbit in enumerate(rates):
        shaping = f"{('tbf', 'htb')[number % 2]}-{bursts[number % 3]}"
        slow = mbit // 2 if number == LABS // 2 else None
        yield LabNetwork(ranks=2, mbit=mbit, slow_mbit=slow, shaping=shaping)


def _ddp(random: Random, model: str, lab: LabNetwork, batch_size: int) -> Case:
    accumulated, bucket_bytes = random.choice((1, 1, 2, 4)), random.choice((DEFAULT_BYTES,) * 3 + (5 << 20,))
    return Case(
        model=model,
        network=lab,
        strategy="data",
        via="ddp",
        batch_size=batch_size,
        options={"microbatches": accumulated} if accumulated > 1 else {},
        bucket_bytes=bucket_bytes,
        first_bucket_bytes=FIRST_BUCKET_BYTES if bucket_bytes == DEFAULT_BYTES else None,
        defaults=True,
        static_graph=accumulated == 1 and random.random() < 0.3,
        straggler=1 if random.random() < 0.15 else None,
    )


def _pipeline(random: Random, model: str, lab: LabNetwork, batch_size: int) -> Case:
    options: dict[str, str | int | float] = {
        "schedule": random.choice(("gpipe", "1f1b")),
        "microbatches": random.choice((2, 4, 4, 8)),
    }
    if random.random() < 0.5:
        options["share"] = random.choice((0.3, 0.4, 0.65))
    return Case(model=model, network=lab, strategy="pipeline", via="pipelining", batch_size=batch_size, options=options)
