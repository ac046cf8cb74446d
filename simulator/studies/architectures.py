"""Ways of synchronising data parallelism, and numbers of devices, as a user names them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator import collectives
from simulator.errors import InputError, UnknownNameError, require
from simulator.plan import Synchronisation

MOST_DEVICES = 4096
ASYNCHRONOUS, BOUNDED = "-async", "-ssp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A way of synchronising as the user names it.

    servers: parameter servers on hosts of their own; workers that serve are in the synchronisation. Unless
    `waits`, workers run ahead: `staleness` steps at most, or without bound when that is None.
    """

    name: str
    synchronisation: Synchronisation
    servers: int = 0
    waits: bool = True
    staleness: int | None = None


def architecture(text: str, synchronisation: Synchronisation, *, servers: int = 1, staleness: int = 3) -> Architecture:
    """What `text` names: a collective; ps and ps-workers also as ps-async and ps-ssp, and with ":K" servers.

    servers: of ps where the text says nothing; staleness: the bound of ps-ssp. Raises UnknownNameError or InputError.
    """
    name, colon, count = text.partition(":")
    plain = name.removesuffix(ASYNCHRONOUS).removesuffix(BOUNDED)
    on_server = [kind for kind in collectives.names() if collectives.load(kind).updates_on_server]
    if plain not in (collectives.names() if plain == name else on_server):
        known = [kind + mode for kind in on_server for mode in (ASYNCHRONOUS, BOUNDED)]
        raise UnknownNameError.of("synchronisation", name, [*collectives.names(), *known])
    if colon and not (plain in on_server and count.isdecimal() and int(count) >= 1):
        raise InputError(f"sync is {text!r}: only {' and '.join(on_server)} take a number of servers, e.g. ps:4")
    own = collectives.load(plain).needs_server
    serving = int(count) if colon and not own else synchronisation.serving_workers
    return Architecture(
        name=text,
        synchronisation=replace(synchronisation, collective=plain, serving_workers=serving),
        servers=(int(count) if colon else servers) if own else 0,
        waits=plain == name,
        staleness=staleness if name.endswith(BOUNDED) else None,
    )


def device_counts(text: str) -> list[int]:
    """Numbers of devices from "1..64" (powers of two from 1, and the end), "1,3,8", or both: "1..8,12".

    Raises InputError.

    >>> device_counts("1..12"), device_counts("3..24"), device_counts("4,2")
    ([1, 2, 4, 8, 12], [3, 6, 12, 24], [2, 4])
    """
    counts: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        low, high = _whole(first, text), _whole(last, text) if dots else _whole(first, text)
        require(low <= high <= MOST_DEVICES, "devices", text, f"ranges ascend, to at most {MOST_DEVICES}")
        while low < high:
            counts.add(low)
            low *= 2
        counts.add(high)
    return sorted(counts)


def _whole(part: str, text: str) -> int:
    if not part.isdecimal() or int(part) < 1:
        raise InputError(f"devices is {text!r}: write 1..64 (powers of two), or numbers with commas between, 1,3,8")
    return int(part)
