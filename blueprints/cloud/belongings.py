"""What an account holds of an installation's: its machines, and what of theirs stands there without one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from blueprints.cloud.acts import seen_of
from blueprints.cloud.client import Client, ListsRemains
from blueprints.cloud.values import Instance, Lifecycle, Remnant
from blueprints.specs import Owned

MACHINE = "machine"
_OVER = (Lifecycle.TERMINATED, Lifecycle.TERMINATING, Lifecycle.FAILED)
_LEAVING = (Lifecycle.TERMINATING, Lifecycle.TERMINATED)
"""Providers list those for up to an hour more."""
_OWNERSHIP = ("drydock-installation", "drydock-epoch", "drydock-resource", "drydock-proof")
"""The tags that say whose it is; others may differ between the things of one machine."""


def machine(found: Instance) -> Owned:
    """A machine as a listing tells of it."""
    why = "It was taken back by its provider." if found.preempted else f"It is {found.state}."
    return Owned(
        key=found.key,
        tags=found.tags,
        facts=seen_of(found),
        state=found.state.value,
        power="off" if found.state is Lifecycle.STOPPED else "on" if found.state is Lifecycle.RUNNING else "",
        lost=f"{why} {found.reason}".strip() if found.state in _OVER or found.preempted else "",
        what=MACHINE,
        since=found.created_at,
    )


def owned(client: Client, locations: Iterable[str], tags: Mapping[str, str]) -> list[Owned]:
    """Every machine there that bears these tags and is not on its way out, and under which further names something
    stands without a machine."""
    places = list(locations)
    machines = [one for place in places for one in client.instances(place, tags)]
    # An ended machine is listed for up to an hour more, and nothing goes with it any longer.
    there = {one.key for one in machines if one.key and one.state is not Lifecycle.TERMINATED}
    left = [one for place in places for one in _remains(client, place, tags) if one.key not in there]
    return [*(_stands(one) for one in machines if one.state not in _LEAVING), *alone(left)]


def _stands(found: Instance) -> Owned:
    """With what its price is found by."""
    one = machine(found)
    one.facts["market"] = found.market.value
    return one


def _remains(client: Client, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
    return client.remains(location, tags) if isinstance(client, ListsRemains) else ()


def alone(found: Sequence[Remnant]) -> list[Owned]:
    """Things without their machine: those made under one name as one, for they go together. What bears another proof
    than the rest of its name stands for itself."""
    together: dict[tuple[str, ...], dict[tuple[str, str], Remnant]] = defaultdict(dict)
    for one in found:
        # What belongs to no location is listed with each.
        together[one.key or one.id, *(one.tags.get(name, "") for name in _OWNERSHIP)][one.what, one.id] = one
    return [_together(list(things.values())) for _, things in sorted(together.items())]


def _together(things: Sequence[Remnant]) -> Owned:
    best = next((one for one in things if one.named), things[0])
    location, zone = (next(filter(None, (getattr(one, name) for one in things)), "") for name in ("location", "zone"))
    return Owned(
        key=best.key,
        tags=best.tags,
        facts={"location": location, "zone": zone, "things": [f"{one.what} {one.id}" for one in things]},
        what=", ".join(sorted({one.what for one in things})),
        since=min((one.created_at for one in things if one.created_at), default=None),
        named=best.named,
    )
