"""Ways of synchronising data parallelism, as a user names them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator import collectives
from simulator.errors import InputError, UnknownNameError
from simulator.plan import Synchronisation

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
