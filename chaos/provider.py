"""The pools that leases are served from, and what goes wrong at their provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

PROVIDER = "chaos"


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One blueprint."""

    name: str
    kind: str
    config: dict[str, Any]
    columns: dict[str, Any] = field(default_factory=dict)


BUILD = ("build.reserve", "build.create", "build.create.find", "build.flash", "build.boot", "build.verify")
DESTROY = ("destroy.delete", "destroy.confirm")
LEASE = (
    "activate.account", "activate.account.find", "activate.access", "deactivate.access", "deactivate.account",
    "clean.wipe",
)  # fmt: skip


def pools(random: Random, leases: int) -> list[Pool]:
    """Hosts of two sizes, and sites that lease a host each: for life, and once more for every lease on them.

    Some of the sites are cleaned apart from their leases.
    """
    many = max(1, leases // 250)
    host = {"type": "fake", "lifetime": "life"}
    needs: list[dict[str, Any]] = [
        {"does": "need_leases", "at": "build.reserve", "leases": [host | {"name": "host"}]},
        {"does": "need_leases", "at": "activate.account", "keys": "*[02468]", "leases": [host | {"name": "beside"}]},
        {"does": "need_maintenance", "at": "activate.access", "keys": "*[37]", "relation": "host",
         "action": "power_cycle", "holders": "tell"},
    ]  # fmt: skip
    return [
        Pool(
            name="hosts", kind="fake",
            config=_config(random, leases, BUILD + DESTROY, slots=4, zones=2),
            columns={"order": 10, "max_resources": 5 * many, "min_ready": 1, "idle_timeout": 4, "check_interval": 1},
        ),
        Pool(
            name="big-hosts", kind="fake",
            config=_config(random, leases, BUILD + DESTROY, slots=10, color="red"),
            columns={"order": 20, "max_resources": 3 * many, "idle_timeout": 2, "check_interval": 1,
                     "max_lifetime": 40},
        ),
        Pool(
            name="sites", kind="fake_activated",
            config=_config(random, leases, BUILD + DESTROY + LEASE, slots=3, needs=needs),
            columns={"order": 10, "max_resources": 5 * many, "idle_timeout": 2, "check_interval": 1},
        ),
        Pool(
            name="wiped-sites", kind="fake_activated",
            config=_config(random, leases, BUILD + DESTROY + LEASE, slots=2, needs=needs)
            | {"clean_apart": True, "clean_polls": random.randrange(1, 5)},
            columns={"order": 5, "max_resources": 3 * many, "idle_timeout": 2, "check_interval": 1},
        ),
    ]  # fmt: skip


def _config(
    random: Random, leases: int, calls: tuple[str, ...], *, slots: int, zones: int = 0, color: str = "",
    needs: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    amounts: dict[str, Any] = {"slots": slots, "cpu_millicores": slots * 1000, "ram_mib": slots * 512}
    faults = [_fault(random, n, leases, calls) for n in range(max(15, leases // 4))]
    dying = {"does": "die", "keys": f"*{random.randrange(10)}", "skip": random.randrange(2, 6), "name": "dying"}
    return {
        "provider": PROVIDER,
        "capacity": amounts | {"extra": {"gpu": slots // 2}},
        "attributes": {"color": color} if color else {},
        "offers": [{"offer": f"o{n}", "zone": f"z{n}"} for n in range(zones)],
        "flash_polls": random.randrange(2), "boot_polls": random.randrange(3), "destroy_polls": random.randrange(3),
        "poll_seconds": 0.1,
        "faults": [*(needs or []), *faults, dying],
    }  # fmt: skip


def _fault(random: Random, number: int, leases: int, calls: tuple[str, ...]) -> dict[str, Any]:
    """One fault at one call, at some time of the run; a lost answer only where an answer can be lost."""
    (draw,) = random.choices(list(_FAULTS), list(_FAULTS.values()))
    return {
        "at": random.choice(calls), "skip": int(random.expovariate(15 / leases)), "name": f"fault-{number}",
    } | draw(random)  # fmt: skip


def _fail(random: Random) -> dict[str, Any]:
    return {"does": "fail", "times": random.randint(1, 3)}


def _fail_wider(random: Random) -> dict[str, Any]:
    scope = random.choice(["offer", "zone", "blueprint", "operator"])
    return {"does": "fail", "scope": scope, "remember": None if scope == "operator" else random.uniform(0.2, 2)}


def _refuse(random: Random) -> dict[str, Any]:
    return {"does": "refuse", "scope": random.choice(["offer", "zone"]), "remember": random.uniform(0.2, 2)}


def _lose(random: Random) -> dict[str, Any]:
    return {"does": "lose", "happened": random.random() < 0.7, "times": random.randint(1, 2)}


def _kill(random: Random) -> dict[str, Any]:
    return {"does": "kill", "when": random.choice(["before", "after"])}


def _slow(random: Random) -> dict[str, Any]:
    if random.random() < 0.5:
        return {"does": "slow", "seconds": random.uniform(0.1, 0.8)}
    return {"does": "slow", "polls": random.randint(1, 4), "after": random.uniform(0.05, 0.4)}


def _hold(random: Random) -> dict[str, Any]:
    return {"does": "hold", "each": False}


_FAULTS: dict[Callable[[Random], dict[str, Any]], int] = {
    _fail: 4,
    _fail_wider: 2,
    _refuse: 2,
    _lose: 4,
    _kill: 2,
    _slow: 3,
    _hold: 1,
}
"""How a fault is drawn, and how often compared with the others."""
