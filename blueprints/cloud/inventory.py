"""The objects of an installation in one account: machines, objects without a machine, and proofs of ownership.

Before an instance is terminated or counts as gone, two things are checked: that it is ours, and that the credential
belongs to the account in which it was created.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from blueprints.answers import Json
from blueprints.cloud.client import Client, ListsRemains
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Remnant, same_owner
from blueprints.specs import Owned, ResourceView, Spec

MACHINE = "machine"
_ACCOUNT = "made_in"
_OVER = (Lifecycle.TERMINATED, Lifecycle.TERMINATING, Lifecycle.FAILED)
_LEAVING = (Lifecycle.TERMINATING, Lifecycle.TERMINATED)
"""Lifecycle states of instances that have ended or are ending. Providers list them for up to an hour more."""
_OWNERSHIP = ("drydock-installation", "drydock-epoch", "drydock-resource", "drydock-proof")
"""The tags that identify the owner of an object. Other tags may differ between the objects of one machine."""


def machine(found: Instance) -> Owned:
    """Return a listed machine in the form that the engine takes."""
    why = "The machine was reclaimed by the provider." if found.preempted else f"The machine is {found.state}."
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
    """Return every machine with these tags that is not being terminated, and all objects without a machine."""
    places = list(locations)
    machines = [one for place in places for one in client.instances(place, tags)]
    # An ended machine is listed for up to an hour more, and nothing goes with it any longer.
    there = {one.key for one in machines if one.key and one.state is not Lifecycle.TERMINATED}
    left = [one for place in places for one in _remains(client, place, tags) if one.key not in there]
    return [*(_stands(one) for one in machines if one.state not in _LEAVING), *alone(left)]


def _stands(found: Instance) -> Owned:
    """Return a machine with its market, which is needed to find its price."""
    one = machine(found)
    one.facts["market"] = found.market.value
    return one


def _remains(client: Client, location: str, tags: Mapping[str, str]) -> Sequence[Remnant]:
    return client.remains(location, tags) if isinstance(client, ListsRemains) else ()


def alone(found: Sequence[Remnant]) -> list[Owned]:
    """Group objects without a machine by the name under which they were created.

    Objects whose proof differs from that of others under their name form a group of their own.
    """
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


def account(client: Client) -> Json:
    """Return the fact that records the account in which a resource is created."""
    return {_ACCOUNT: client.account()}


def same_account(client: Client, resource: ResourceView) -> None:
    """Check that the credential still belongs to the account in which the resource was created.

    Raises CloudError CREDENTIALS otherwise: an instance that is missing in another account may still exist in its own.
    """
    made_in = str(resource.facts.get(_ACCOUNT) or "")
    if not made_in or (now := client.account()).lower() == made_in.lower():
        return
    raise CloudError(
        Meaning.CREDENTIALS,
        f"{resource.key} was created in account {made_in}, but the credential belongs to account {now}, so Drydock "
        f"cannot tell whether the machine is gone. Use a credential of account {made_in}.",
        provider_code="another_account",
    )


def is_ours(found: Instance, spec: Spec) -> bool:
    """Return whether an instance carries our ownership tags.

    An instance matched only by name may belong to anyone.
    """
    return same_owner({name.lower(): value for name, value in found.tags.items()}, spec.tags)


def seen_of(found: Instance) -> Json:
    """Return the facts about a listed instance in the form in which they are stored with the resource."""
    return {
        "instance_id": found.id, "location": found.location, "zone": found.zone, "state": found.state.value,
        "public_address": found.public_address, "private_address": found.private_address, "type": found.type,
        "reason": found.reason, "parts": list(found.parts), **({"leaving": found.leaving} if found.leaving else {}),
    }  # fmt: skip
