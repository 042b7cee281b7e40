"""Checks of create: a requested machine is created once, and a refused request creates none."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from blueprints.cloud.client import Client
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.validation.environment import Environment, Machine
from blueprints.cloud.validation.reading import absent
from blueprints.cloud.validation.waiting import Unmet, expect
from blueprints.cloud.values import Instance, Lifecycle, Market, Order
from drydock.core import clock

_CLOCKS = dt.timedelta(seconds=60)
"""Tolerated difference between two clocks."""
_REFUSED = frozenset({
    Meaning.NO_CAPACITY, Meaning.QUOTA, Meaning.NOT_OFFERED, Meaning.NOT_FOUND, Meaning.INVALID, Meaning.CONFLICT,
})  # fmt: skip
"""Definite refusals, after which nothing was created."""
_NOT_NOW = frozenset({Meaning.NO_CAPACITY, Meaning.QUOTA, Meaning.NOT_OFFERED})
_ENDED = (Lifecycle.TERMINATING, Lifecycle.TERMINATED)


def refused_create(environment: Environment) -> str:
    """Order a nonexistent image, then a nonexistent type, and check that both are refused."""
    said = []
    wrong = {"image": absent(environment.wish.image.id), "type": "no-such-type"}
    for what, name in wrong.items():
        with environment.another(f"refused-{what}", **{what: name}) as order:
            said.append(f"{what}: {_refusal(environment, order)}")
            _nothing_stands(environment, order)
    return "; ".join(said)[:300]


def _refusal(environment: Environment, order: Order) -> str:
    try:
        made = environment.make(order)
    except CloudError as error:
        expect(
            error.meaning in _REFUSED, f"The order was refused with the wrong error, {error.meaning}: {error.message}"
        )
        return error.message
    raise Unmet(f"An order that must be refused was accepted: {order.type} with {order.image}, {made.instance.id}.")


def _nothing_stands(environment: Environment, order: Order) -> None:
    """Check that no machine of a refused order is found or listed."""
    found = environment.ask(environment.client.find, order)
    expect(found is None or found.state in _ENDED, f"A refused order has left a machine: {found and found.id}.")
    listed = _listed(environment, order)
    expect(not listed, f"A refused order has left machines in the list: {', '.join(listed)}.")


def _listed(environment: Environment, order: Order) -> list[str]:
    """Return the ids of listed machines that have the order's name and have not ended."""
    found = environment.ask(environment.client.instances, order.location, dict(environment.run_tags.of_run))
    return [one.id for one in found if one.key == order.key and one.state not in _ENDED]


def create(environment: Environment) -> str:
    """Create the main machine, and compare it with its order."""
    order = environment.order("main")
    environment.main = made = environment.make(order)
    _is_as_ordered(made.instance, order)
    took = (made.ended_at - made.began_at).total_seconds()
    expect(
        took <= environment.limits.create,
        f"Creating the machine took {took:.0f} s, but at most {environment.limits.create:.0f} s are allowed.",
    )
    at = made.instance.created_at
    expect(at is not None, "The machine does not report its creation time.")
    inside = at is not None and made.began_at - _CLOCKS <= at <= made.ended_at + _CLOCKS
    expect(
        inside,
        (
            f"The machine reports {at} as its creation time, but was created between {made.began_at} and "
            f"{made.ended_at}."
        ),
    )
    return f"{made.instance.id}, after {took:.0f} s"


def _is_as_ordered(found: Instance, order: Order) -> None:
    expect(found.id, "The machine has no id.")
    pairs = {
        "key": (found.key, order.key), "location": (found.location, order.location), "type": (found.type, order.type),
        "market": (found.market, order.market), "zone": (found.zone, order.zone or found.zone),
        "image": (found.image or order.image, order.image),
    }  # fmt: skip
    for name, (there, wanted) in pairs.items():
        expect(there == wanted, f"The machine's {name} is {there!r}, but {wanted!r} was ordered.")
    lacks = sorted(name for name, value in order.tags.items() if found.tags.get(name) != value)
    expect(not lacks, f"The machine lacks these tags of its order: {', '.join(lacks)}.")
    expect(found.state not in _ENDED, f"The machine is {found.state}, although it was just created.")


def repeated_create(environment: Environment) -> str:
    """Repeat the create with the same token, with the same parameters and with others."""
    main = environment.machine
    again = environment.make(main.order)
    expect(
        again.instance.id == main.instance.id,
        f"Repeating the order created a second machine: {again.instance.id} besides {main.instance.id}.",
    )
    larger = (environment.wish.disk_gib or environment.wish.image.disk_gib or 30) + 7
    said = _changed(environment, main, replace(main.order, disk_gib=larger))
    there = _listed(environment, main.order)
    expect(len(there) == 1, f"{len(there)} machines are listed under the same name instead of 1: {', '.join(there)}.")
    return said


def _changed(environment: Environment, main: Machine, order: Order) -> str:
    try:
        answer = environment.ask_once(order, main.prepared)
        found = environment.standing(order, main.prepared, answer, main.began_at).instance
    except CloudError as error:
        definite = error.meaning in _REFUSED
        expect(definite, f"Reusing a token was refused with the wrong error, {error.meaning}: {error.message}")
        return f"other parameters are refused: {error.message}"[:300]
    expect(found.id == main.instance.id, f"Reusing a token with another disk created a second machine: {found.id}.")
    return "a create with other parameters returns the same machine"


def listing(environment: Environment) -> str:
    """Find the main machine in listings, and by its names."""
    order, made = environment.machine.order, environment.machine.instance
    client, of_run = environment.client, dict(environment.run_tags.of_run)
    found = environment.until(
        "The machine is listed", lambda: _mine(client, order.location, of_run, made), environment.limits.change
    )
    _is_as_ordered(found, order)
    others = environment.ask(client.instances, order.location, {**of_run, "drydock-resource": "another"})
    expect(made.id not in [one.id for one in others], "The machine is listed under tags that it does not have.")
    elsewhere = next(
        (one.name for one in environment.ask(client.locations) if one.available and one.name != order.location), ""
    )
    if elsewhere:
        there = environment.ask(client.instances, elsewhere, of_run)
        expect(made.id not in [one.id for one in there], f"The machine is also listed in {elsewhere}, where it is not.")
    for name, instance_id in (("the id", made.id), ("the name alone", "")):
        read = environment.ask(client.instance, made.location, made.zone, made.key, instance_id)
        expect(read is not None and read.id == made.id, f"The machine is not found by {name}.")
    return ""


def _mine(client: Client, location: str, tags: dict[str, str], made: Instance) -> Instance | None:
    return next((one for one in client.instances(location, tags) if one.id == made.id), None)


def lost_create(environment: Environment) -> str:
    """Discard the answer of a create as if it had been lost.

    Check that the machine is found, exists once, and can be terminated by its name.
    """
    with environment.another("lost") as order:
        prepared = environment.prepare(order)
        environment.made[order.key] = environment.journal.will_ask(environment.made[order.key])
        try:
            environment.ask_once(order, prepared)
        except CloudError as error:
            if error.meaning is not Meaning.AMBIGUOUS:
                raise
        found = environment.until(
            "The machine is found", lambda: environment.client.find(order), environment.limits.create
        )
        expect(found.key == order.key, f"The machine is found under a wrong name, {found.key!r}.")
        environment.until("The machine is listed", lambda: _listed(environment, order), environment.limits.change)
        expect(len(_listed(environment, order)) == 1, "Two machines are listed.")
        environment.end(order.key)
        expect(not _listed(environment, order), "The machine is still listed.")
    return f"found as {found.id}, and terminated"


def spot(environment: Environment) -> str:
    """Order a spot machine. Accept a refusal if it leaves nothing behind."""
    with environment.another("spot", market=Market.SPOT) as order:
        try:
            made = environment.make(order)
        except CloudError as error:
            expect(
                error.meaning in _NOT_NOW,
                f"The order was refused with the wrong error, {error.meaning}: {error.message}",
            )
            _nothing_stands(environment, order)
            return f"refused: {error.message}"[:300]
        expect(made.instance.market is Market.SPOT, f"The machine's market is {made.instance.market} instead of spot.")
        read = environment.until_state(made.instance, Lifecycle.RUNNING, environment.limits.running)
        expect(read.market is Market.SPOT, f"Read again, the machine's market is {read.market} instead of spot.")
    return made.instance.id


def spot_refusal(environment: Environment) -> str:
    """Check that a client without the capability refuses a spot order rather than creating an on-demand machine."""
    with environment.another("spot", market=Market.SPOT) as order:
        said = _refusal(environment, order)
        _nothing_stands(environment, order)
    return said


def expiry(environment: Environment) -> str:
    """Check that the provider itself ends a machine at its end time."""
    seconds = environment.limits.expires_after
    with environment.another("expiry", ends_after=seconds) as order:
        made = environment.make(order).instance
        began = clock.monotonic()

        def over() -> bool:
            read = environment.read(made)
            return read is None or read.state in _ENDED

        environment.until("The provider ends the machine", over, environment.limits.running + seconds)
    return f"after {clock.monotonic() - began:.0f} s; {seconds:.0f} s were ordered"
