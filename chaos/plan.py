"""The plan of a run: everything that is random about it, made from the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from chaos.orders import Order, orders
from chaos.provider import Pool, pools


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How big a run is."""

    leases: int
    seconds: float
    """Over which leases are asked for and faults strike."""
    workers: int
    clients: int
    strikes: dict[str, int]
    """How often each strike comes; names of `chaos.strikes`."""
    patience: float
    """Seconds that everything may take to come to rest when the last fault is over."""
    durable: bool
    """The database waits for the disk."""


SHORT = Scale(
    leases=60, seconds=12, workers=2, clients=2, patience=150, durable=False,
    strikes={
        "kill_worker": 2, "kill_child": 2, "kill_beat": 1, "kill_web": 1, "kill_client": 1, "empty_broker": 2,
        "stop_broker": 1, "crash_database": 1, "cut_connections": 2, "shuffle_messages": 3, "lose_instance": 1,
        "restart_database": 2, "stop_database": 1,
    },
)  # fmt: skip
LONG = Scale(
    leases=1000, seconds=180, workers=3, clients=3, patience=300, durable=True,
    strikes={
        "kill_worker": 12, "kill_child": 15, "kill_beat": 5, "kill_web": 4, "kill_client": 4, "empty_broker": 2,
        "stop_broker": 1, "crash_database": 1, "cut_connections": 12, "shuffle_messages": 20, "lose_instance": 8,
        "kill_keeper": 1, "restart_database": 3, "stop_database": 2,
    },
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One fault from outside: when (seconds after the first request), what, and a number that aims it."""

    at: float
    name: str
    aim: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will do."""

    seed: int
    scale: Scale
    pools: tuple[Pool, ...]
    orders: tuple[Order, ...]
    strikes: tuple[Strike, ...]
    wrong_clock: float
    """Seconds by which the clock of one worker is off."""


def plan(seed: int, scale: Scale) -> Plan:
    """The plan that this seed stands for. Each part draws from its own numbers, so that one can change alone."""
    return Plan(
        seed=seed,
        scale=scale,
        pools=tuple(pools(Random(f"{seed}/pools"), scale.leases)),
        orders=tuple(orders(Random(f"{seed}/orders"), scale.leases, scale.seconds, scale.clients)),
        strikes=tuple(sorted(_strikes(Random(f"{seed}/strikes"), scale), key=lambda strike: strike.at)),
        wrong_clock=Random(f"{seed}/clock").choice([-60.0, 60.0]),
    )


def _strikes(random: Random, scale: Scale) -> Iterator[Strike]:
    for name, times in scale.strikes.items():
        for _ in range(times):
            yield Strike(at=round(random.uniform(0.5, scale.seconds), 2), name=name, aim=random.random())
