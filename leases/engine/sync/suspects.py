"""Suspected machines: those that a status poll does not list, or lists as stopped.

A missing machine in the provider's list proves nothing, however often the poll is repeated. Each suspected machine is
therefore read by its own id, and only the provider's answer about that machine has consequences. Until then its leases
remain unchanged, with a message about the suspicion.
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
from drydock.core.units import in_words
from leases.engine.core import installation, specs
from leases.engine.core.database import attempt, rows
from leases.engine.core.installation import current as standing
from leases.engine.core.transitions import record_event
from leases.engine.resources import maintenance, retirement
from leases.engine.resources.unreachable import announce, clear_suspicion, keep_seen, suspect
from leases.models import Resource
from leases.reasons import Reason
from leases.states import STOPPED, VANISHED

UNDISTURBED = """
    NOT r.in_maintenance AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL)
    AND (r.power_wanted = '' OR r.facts #>> '{stopped,restart}' = 'true' AND r.power_wanted = 'on')"""
"""SQL condition that is true if resource `r` was not switched off on request and has no run."""
_BY_OTHERS = f"SELECT 1 FROM leases_resource r WHERE r.id = %s AND r.state = 'active' AND {UNDISTURBED}"
_BEGIN = """
    UPDATE leases_resource SET facts = facts || jsonb_build_object('stopped', jsonb_build_object(
        'since', clock_timestamp(), 'restart', %s::boolean))
    WHERE id = %s AND state = 'active' AND NOT facts ? 'stopped' RETURNING id"""
_OVER = """
    SELECT (facts #>> '{stopped,since}')::timestamptz + %s * interval '1 s' <= clock_timestamp()
        OR coalesce(dies_at <= clock_timestamp(), FALSE)
    FROM leases_resource WHERE id = %s"""


def by_others(resource_id: int) -> bool:
    """Return whether a machine was stopped by somebody else than Drydock.

    This is assumed if the machine was not switched off on request and has no run.
    """
    return bool(rows(_BY_OTHERS, (resource_id,)))


def noticed(resource: Resource, found: Owned, kind: Offers) -> None:
    """Start the grace period of a machine that somebody else has stopped, or treat it as lost after that period.

    A machine whose lifetime has ended is treated as lost too.
    """
    what = kind.stops(specs.config(resource.blueprint.kind, resource.blueprint.config))
    why = f"The machine was stopped, but not by Drydock. {found.facts.get('reason') or ''}".strip()
    new = bool(rows(_BEGIN, (what.restart and what.grace > 0, resource.pk)))
    if rows(_OVER, (what.grace, resource.pk))[0][0]:
        after = f" It was not started again within {in_words(what.grace)}." if what.grace else ""
        retirement.lose(resource.pk, reason=Reason.LOST, message=why + after, actor="status")
        return
    then = "the machine is being started again" if what.restart else "start it within that time, or it is terminated"
    said = f"{why} It is kept for {in_words(what.grace)}: {then}."
    suspect(resource.pk, said, observed=STOPPED, reason=Reason.MACHINE_STOPPED)
    if new:
        record_event("resource.stopped", said, actor="status", resource_id=resource.pk, reason=Reason.MACHINE_STOPPED)
    if new and what.restart and not standing().problem:
        maintenance.want_power(resource.pk, "on")


log = logging.getLogger(__name__)

_AT_ONCE = 20
"""Number of machines that are read by id after one listing. The others are read after later listings."""
_SECONDS = 30.0
"""Time limit in seconds for reading machines by id after one listing."""
_YOUNG = 300
"""Age in seconds below which "not found" proves nothing about a machine, because providers' reads may lag behind."""


class Doubt(NamedTuple):
    """A suspected machine, and the reason for the suspicion."""

    resource_id: int
    why: str


@dataclass(kw_only=True)
class Doubts:
    """What a status poll says about machines: the suspected ones (`of`), and others whose status changed.

    `empty` is True if the provider listed none of our machines although it should have listed some.
    """

    of: list[Doubt] = field(default_factory=list)
    well: list[int] = field(default_factory=list)
    """Machines that were suspected before and that the listing shows as expected."""
    empty: bool = False
    leaving: list[Doubt] = field(default_factory=list)
    """Machines that the provider will take back, each with the provider's announcement."""


def settle(kind: Offers, account: Account, doubts: Doubts) -> str:
    """Read the suspected machines by their ids, and act on the answers.

    Return what is wrong with the status poll, or an empty string if nothing is wrong.
    """
    for resource_id in doubts.well:
        attempt(clear_suspicion, resource_id)
    for announced in doubts.leaving:
        attempt(announce, *announced)
    until = clock.monotonic() + _SECONDS
    answers: list[tuple[Doubt, Resource, Owned | str]] = []
    for doubt in random.sample(doubts.of, min(len(doubts.of), _AT_ONCE)):
        resource = Resource.objects.select_related("blueprint").filter(pk=doubt.resource_id, state="active").first()
        if resource is not None and clock.monotonic() < until:
            answers.append((doubt, resource, _asked(kind, account, specs.resource_view(resource))))
    found = [answer for *_, answer in answers if isinstance(answer, Owned)]
    vanished = doubts.empty and bool(found) and all(answer.absent for answer in found)
    left_out = [attempt(_conclude, *one, kind=kind, account=account, vanished=vanished) for one in answers]
    untold = sum(isinstance(answer, str) for *_, answer in answers)
    return _problem(doubts, vanished, sum(bool(one) for one in left_out), untold)


def _asked(kind: Offers, account: Account, view: ResourceView) -> Owned | str:
    """Return what the provider reports about a machine, or a message that says why it could not be read."""
    try:
        found = kind.read(account, view)
    except Exception as error:
        log.warning("%s could not be read: %s", view.key, error)
        return redact(f"The machine cannot be read now: {error}")[:1000]
    if not found.absent and found.key != view.key and found.key != view.identity:
        return f"The object with its id is named {found.key!r}, not {view.key!r}."
    return found


def _problem(doubts: Doubts, vanished: bool, left_out: int, untold: int) -> str:
    many = len(doubts.of)
    if vanished:
        return (
            f"All {many} machines of this account disappeared at once. Nothing is removed because of that "
            "alone. Check that the credential belongs to the account in which the machines were created."
        )
    if doubts.empty and untold:
        return f"None of {many} machines was listed, and {untold} of them could not be read by their ids."
    return f"The listing omitted {left_out} machines that exist when read by their ids." if left_out else ""


def _conclude(
    doubt: Doubt, resource: Resource, answer: Owned | str, *, kind: Offers, account: Account, vanished: bool
) -> bool:
    """Act on a provider's answer about one machine. Return True if the machine exists and the listing was wrong."""
    if isinstance(answer, str):
        suspect(resource.pk, f"{doubt.why} {answer}")
    elif answer.absent and vanished:
        said = (
            "The machine disappeared together with everything else in its account. Nothing is removed "
            "because of that alone."
        )
        suspect(resource.pk, f"{said} {answer.lost}", observed=VANISHED)
    elif answer.absent and _is_young(resource.pk):
        suspect(
            resource.pk, f"{doubt.why} {answer.lost} The machine was created too recently for this to be conclusive."
        )
    elif answer.lost:
        retirement.lose(resource.pk, reason=Reason.LOST, message=answer.lost, actor="status")
    else:
        return _is_there(resource, answer, kind, account)
    return False


def _is_there(resource: Resource, found: Owned, kind: Offers, account: Account) -> bool:
    keep_seen(resource.pk, found)
    if found.power == "off" and by_others(resource.pk):
        noticed(resource, found, kind)
        return False
    wanted = proof_tags(resource)
    if any(found.tags.get(name) != value for name, value in wanted.items()):
        return _mark(resource, wanted, kind, account)
    clear_suspicion(resource.pk)
    return True


def proof_tags(resource: Resource) -> dict[str, str]:
    """Return the tags by which the machine of a resource is found and recognized as ours."""
    return {name: value for name, value in specs.tags(resource).items() if name != installation.BLUEPRINT}


def _mark(resource: Resource, wanted: dict[str, str], kind: Offers, account: Account) -> bool:
    """Restore tags that somebody removed from a machine whose id is known to be ours.

    Returns False in every case, because the listing was right not to report the machine.
    """
    if problem := standing().problem:
        suspect(
            resource.pk,
            f"The tags of the machine were removed by somebody else. They cannot be restored now: {problem}",
        )
        return False
    try:
        kind.mark(account, specs.resource_view(resource), wanted)
    except Exception as error:
        said = redact(f"The tags of the machine were removed by somebody else and could not be restored: {error}")[
            :1000
        ]
        suspect(resource.pk, said)
        return False
    clear_suspicion(resource.pk)
    message = "The tags of the machine were removed by somebody else and have been restored."
    record_event("resource.tags_restored", message, actor="status", resource_id=resource.pk)
    return False


def _is_young(resource_id: int) -> bool:
    young = "SELECT 1 FROM leases_resource WHERE id = %s AND created_at > clock_timestamp() - %s * interval '1 s'"
    return bool(rows(young, (resource_id, _YOUNG)))
