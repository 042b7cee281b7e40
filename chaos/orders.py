"""What clients ask for, and what they do with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Order:
    """One lease, or a group of them, under one idempotency key, and its owner's behaviour. Times in seconds."""

    key: str
    client: int
    at: float
    requests: tuple[dict[str, Any], ...]
    lasts: float | None = None
    """Its `until`, so long after it is due: another way to say when it ends."""
    group: bool = False
    same: str = ""
    different: str = ""
    hold: float | None = None
    """Released so long after it became active; None: it ends by itself, or is kept."""
    cancel: float | None = None
    """Released so long after it was asked for, whatever it is then."""
    beats: bool = False
    extends: bool = False
    inside: bool = False
    """Asked for inside a transaction of the client's own."""
    keep: bool = False
    """Still wanted at the end of the run."""


def orders(random: Random, leases: int, seconds: float, clients: int) -> Iterator[Order]:
    """Orders for so many leases, spread over the time; three of four in its first half."""
    left, number = leases, 0
    while left:
        size = min(left, random.choice([2, 2, 3, 4])) if random.random() < 0.1 else 1
        at = random.uniform(0, seconds * random.choice([0.5, 0.5, 0.5, 1]))
        yield _order(random, f"order-{number}", number % clients, round(at, 2), size)
        left, number = left - size, number + 1


def _order(random: Random, key: str, client: int, at: float, size: int) -> Order:
    rule: dict[str, Any] = random.choice([{}, {"same": "resource"}, {"different": "resource"}]) if size > 1 else {}
    requests = tuple(_request(random, whole=size == 1) for _ in range(size))
    if size > 1:
        requests = tuple(one | {"type": requests[0]["type"]} for one in requests) if rule else requests
    behaviour = random.choices(["hold", "cancel", "ttl", "silent", "keep"], [20, 6, 8, 3, 2])[0]
    return Order(
        key=key, client=client, at=at, group=size > 1, inside=random.random() < 0.15, **rule,
        **_BEHAVIOUR[behaviour](random, requests),
    )  # fmt: skip


def _request(random: Random, whole: bool) -> dict[str, Any]:
    """What is asked; a whole resource only by who asks alone."""
    wanted: dict[str, Any] = {
        "type": random.choice(["fake", "fake", "fake_activated"]),
        "slots": random.choice([1, 1, 1, 2]),
        "priority": random.choice([0, 0, 0, 1, 5, -3, 40]),
    }
    further: list[dict[str, Any]] = [{}, {}, {}, {"cpu_millicores": 1500}, {"ram_mib": 700}, {"extra": {"gpu": 1}}]
    further += [{"serve_again": True}, {"wait_limit": f"{random.randint(3, 9)}s"}]
    further += [{"exclusive": True}] if whole and random.random() < 0.5 else []
    further += [{"type": "fake", "requirements": {"color": "red"}}]
    return wanted | random.choice(further)


def _held(random: Random, requests: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {"requests": requests, "hold": round(random.uniform(0, 2.5), 2)}


def _cancelled(random: Random, requests: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {"requests": requests, "cancel": round(random.uniform(0, 3), 2)}


def _timed(random: Random, requests: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    if random.random() < 0.3:
        return {"requests": requests, "lasts": round(random.uniform(15, 35), 1), "hold": random.uniform(0, 3)}
    ttl = {"ttl": round(random.uniform(0.5, 4), 1)}
    return {"requests": tuple(one | ttl for one in requests), "extends": random.random() < 0.5}


def _silent(random: Random, requests: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """It beats as long as its client holds it, or never, and then it is lost."""
    limit = {"heartbeat_limit": "5s"}
    beats = random.random() < 0.6
    hold = {"hold": round(random.uniform(1, 6), 2)} if beats else {}
    return {"requests": tuple(one | limit for one in requests), "beats": beats, **hold}


def _kept(random: Random, requests: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Kept to the end of the run, so it takes little."""
    little = tuple({"type": one["type"], "priority": one["priority"], "serve_again": True} for one in requests)
    return {"requests": little, "keep": True}


_BEHAVIOUR = {"hold": _held, "cancel": _cancelled, "ttl": _timed, "silent": _silent, "keep": _kept}
