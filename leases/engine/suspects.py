"""Machines of which a listing gives reason to doubt: it left them out, or says that they are over or off.

A listing proves nothing, however often it is repeated. Each doubted machine is asked for by its own id, and only the
provider's answer about that very machine has consequences. Until there is one, its leases stay as they are and say so.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from blueprints.contract import Offers
from blueprints.offers import Account
from blueprints.specs import Owned, ResourceView
from drydock.core import clock
from drydock.core.logging import redact
from leases.engine import proof, retiring, stops, views
from leases.engine.installation import current as standing
from leases.engine.isolation import attempt
from leases.engine.suspicion import announce, clear, keep_seen, suspect
from leases.engine.transaction import rows
from leases.engine.transitions import note
from leases.models import Resource
from leases.reasons import Reason
from leases.states import VANISHED

log = logging.getLogger(__name__)

_AT_ONCE = 20
"""How many machines are asked for by their ids after one listing; the others follow after the next."""
_SECONDS = 30.0
"""How long one pass may go on with that."""
_YOUNG = 300
"""Seconds after a create during which 'not found' proves nothing: reads of a provider may lag behind."""


class Doubt(NamedTuple):
    """One machine, and why it is doubted."""

    resource_id: int
    why: str


@dataclass(kw_only=True)
class Doubts:
    """What a listing gives reason to doubt. `empty`: it has none of our machines, though there should be some."""

    of: list[Doubt] = field(default_factory=list)
    well: list[int] = field(default_factory=list)
    """Those that were doubted before, and are listed as they should be."""
    empty: bool = False
    leaving: list[Doubt] = field(default_factory=list)
    """Those that their provider has announced to take back, and how it says so."""


def settle(kind: Offers, account: Account, doubts: Doubts) -> str:
    """Ask for each doubted machine and draw the conclusion; what is wrong with the listing itself, or empty."""
    for resource_id in doubts.well:
        attempt(clear, resource_id)
    for announced in doubts.leaving:
        attempt(announce, *announced)
    until = clock.monotonic() + _SECONDS
    answers: list[tuple[Doubt, Resource, Owned | str]] = []
    for doubt in random.sample(doubts.of, min(len(doubts.of), _AT_ONCE)):
        resource = Resource.objects.select_related("blueprint").filter(pk=doubt.resource_id, state="active").first()
        if resource is not None and clock.monotonic() < until:
            answers.append((doubt, resource, _asked(kind, account, views.resource_view(resource))))
    found = [answer for *_, answer in answers if isinstance(answer, Owned)]
    vanished = doubts.empty and bool(found) and all(answer.absent for answer in found)
    left_out = [attempt(_conclude, *one, kind=kind, account=account, vanished=vanished) for one in answers]
    untold = sum(isinstance(answer, str) for *_, answer in answers)
    return _problem(doubts, vanished, sum(bool(one) for one in left_out), untold)


def _asked(kind: Offers, account: Account, view: ResourceView) -> Owned | str:
    """What its provider says of it, or why it could not be asked."""
    try:
        found = kind.read(account, view)
    except Exception as error:
        log.warning("%s could not be read: %s", view.key, error)
        return redact(f"It cannot be read now: {error}")[:1000]
    if not found.absent and found.key != view.key and found.key != view.identity:
        return f"What has its id bears the name {found.key!r}, and not {view.key!r}."
    return found


def _problem(doubts: Doubts, vanished: bool, left_out: int, untold: int) -> str:
    many = len(doubts.of)
    if vanished:
        return (
            f"All {many} machines of this account disappeared at once. Nothing is removed because of that alone: is the"
            " credential that of the account they were made in?"
        )
    if doubts.empty and untold:
        return f"None of {many} machines was listed, and {untold} of them could not be asked for by their ids."
    return f"The listing left out {left_out} machines that exist, asked for by their ids." if left_out else ""


def _conclude(
    doubt: Doubt, resource: Resource, answer: Owned | str, *, kind: Offers, account: Account, vanished: bool
) -> bool:
    """True where the machine is as it should be, and the listing was wrong to leave it out."""
    if isinstance(answer, str):
        suspect(resource.pk, f"{doubt.why} {answer}")
    elif answer.absent and vanished:
        said = "It disappeared with everything else of its account; nothing is removed because of that alone."
        suspect(resource.pk, f"{said} {answer.lost}", observed=VANISHED)
    elif answer.absent and _is_young(resource.pk):
        suspect(resource.pk, f"{doubt.why} {answer.lost} That proves nothing so soon after it was made.")
    elif answer.lost:
        retiring.lose(resource.pk, reason=Reason.LOST, message=answer.lost, actor="status")
    else:
        return _is_there(resource, answer, kind, account)
    return False


def _is_there(resource: Resource, found: Owned, kind: Offers, account: Account) -> bool:
    keep_seen(resource.pk, found)
    if found.power == "off" and stops.by_others(resource.pk):
        stops.noticed(resource, found, kind)
        return False
    wanted = proof_tags(resource)
    if any(found.tags.get(name) != value for name, value in wanted.items()):
        return _mark(resource, wanted, kind, account)
    clear(resource.pk)
    return True


def proof_tags(resource: Resource) -> dict[str, str]:
    """The tags by which a machine is found and known as ours."""
    return {name: value for name, value in views.tags(resource).items() if name != proof.BLUEPRINT}


def _mark(resource: Resource, wanted: dict[str, str], kind: Offers, account: Account) -> bool:
    """Put tags back that somebody removed: it is known by its id as ours."""
    if problem := standing().problem:
        suspect(resource.pk, f"Somebody removed its tags. They are not put back now: {problem}")
        return False
    try:
        kind.mark(account, views.resource_view(resource), wanted)
    except Exception as error:
        said = redact(f"Somebody removed its tags, and they could not be put back: {error}")[:1000]
        suspect(resource.pk, said)
        return False
    clear(resource.pk)
    message = "Somebody had removed its tags; they were put back."
    note("resource.tags_restored", message, actor="status", resource_id=resource.pk)
    return False


def _is_young(resource_id: int) -> bool:
    young = "SELECT 1 FROM leases_resource WHERE id = %s AND created_at > clock_timestamp() - %s * interval '1 s'"
    return bool(rows(young, (resource_id, _YOUNG)))
