"""Ending what was made under a name, until a read shows that nothing is left of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blueprints.cloud.client import Api, Client
from blueprints.cloud.faults import CloudError
from blueprints.cloud.validation.journal import Journal, Made
from blueprints.cloud.validation.marks import INSTALLATION, PREFIX, PROOF, RESOURCE, Marks
from blueprints.cloud.validation.values import Limits
from blueprints.cloud.validation.waiting import Unmet, Waiting
from blueprints.cloud.values import Instance, Lifecycle
from drydock.core import clock

OVER = (Lifecycle.TERMINATING, Lifecycle.TERMINATED)


def end(client: Client, made: Made, waiting: Waiting, limits: Limits) -> None:
    """The instance, then the rest. One whose create was never answered may still appear, so its absence counts after a
    while only. Raises Unmet where something is left, CloudError where the provider refuses."""
    began = clock.monotonic()

    def over() -> bool:
        found = client.instance(made.location, made.zone, made.key, made.instance_id)
        if found is None or found.state is Lifecycle.TERMINATED:
            surely = bool(made.instance_id) or not made.asked
            return surely or clock.now().timestamp() - made.at >= client.find_after
        if found.state is not Lifecycle.TERMINATING:
            client.terminate(found)
        return False

    def swept() -> bool:
        left.clear()
        left.extend(client.sweep(made.location, made.zone, made.key, made.tags))
        return not left

    left: list[str] = []
    waiting.until(f"{made.key} is gone", over, limits.ended)
    try:
        waiting.until(f"Nothing is left of {made.key}", swept, max(0.0, limits.ended - clock.monotonic() + began))
    except Unmet as unmet:
        raise Unmet(f"{unmet.message} Still there: {', '.join(left) or 'not known'}.") from None


def leftovers(client: Client, marks: Marks) -> Iterator[Made]:
    """Machines of any run with these marks' owner whose name is proven: what a journal that was lost told of."""
    for place in _places(client):
        for one in client.instances(place, {INSTALLATION: marks.owner}):
            if one.state not in OVER and _proven(one, marks):
                yield Made(
                    key=one.key, location=one.location, zone=one.zone, instance_id=one.id, asked=True,
                    tags={name: value for name, value in one.tags.items() if name in (INSTALLATION, RESOURCE)},
                )  # fmt: skip


def _proven(one: Instance, marks: Marks) -> bool:
    return one.key.startswith(PREFIX) and one.tags.get(PROOF, "") == marks.proof(one.key)


def _places(client: Client) -> Sequence[str]:
    if client.api is Api.GLOBAL:
        return [""]
    return [one.name for one in client.locations() if one.available]


def clean(client: Client, marks: Marks, journal: Journal, limits: Limits | None = None) -> tuple[list[str], list[str]]:
    """End what earlier runs have left, by the journal and by what bears the owner's tag and a proof. The names that
    are gone now, and sentences about those that are not."""
    limits = limits or Limits()
    waiting, gone, left = Waiting(limits.pace), [], []
    known = {one.key: one for one in journal.unfinished()}
    found = {one.key: one for one in leftovers(client, marks)}
    for made in [*known.values(), *(one for key, one in found.items() if key not in known)]:
        try:
            end(client, made, waiting, limits)
        except (Unmet, CloudError) as error:
            left.append(error.message)
        else:
            journal.gone(made.key)
            gone.append(made.key)
    return gone, left
