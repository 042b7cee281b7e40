"""Reports of agents: whether to believe one, and what becomes of it."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from blueprints.identities import real
from blueprints.reports import Report, content_digest
from drydock.core.errors import Busy, Conflict, DrydockError, NotAllowed
from drydock_agent.messages import HardwareReport
from leases.agents.enrolment import CLOCK_LIMIT, CLOCK_WARNING, Replaced, note_clock, offset, refuse_other_host
from leases.agents.repeats import REPEATS, Known
from leases.engine.core.transitions import record_event
from leases.engine.sync import discovery, silent_agents
from leases.engine.sync.discovery import Received
from leases.models import Agent

FIELD = "hardware.host.identities"


def accept_repeated(agent: Agent, body: bytes) -> bool:
    """Record a report, given as JSON text, in which the text about the hardware is the same as in the one before.

    Does what `accept_unchanged` does, without reading what the text says about the hardware.
    """
    try:
        found = REPEATS.recognize(agent.pk, body)
        return found is not None and _record(agent, *found)
    except _MALFORMED:
        return False


def accept_unchanged(agent: Agent, document: object, body: bytes) -> bool:
    """Record a report, given as JSON values and text, that says the same about the hardware as the one before.

    Most reports do. Their hardware was checked when it was stored, so only the rest of the report is. Return False, and
    record nothing, if the report has to be read and checked as a whole, whatever the reason.
    """
    if not isinstance(document, dict) or not isinstance(content := document.get("hardware"), dict):
        return False
    try:
        given = {one.namespace: one.value for one in real(content.get("host", {}).get("identities", {}))}
        # The database stores neither NUL nor half characters.
        if not all("".join(pair).isprintable() for pair in given.items()):
            return False
        known = Known(digest=content_digest([content]), identities=given)
        if not _record(agent, document, known):
            return False
    except _MALFORMED:
        return False
    REPEATS.learn(agent.pk, body, content, known)
    return True


_MALFORMED = (ValueError, TypeError, AttributeError, RecursionError)
"""Raised for a malformed report."""
_NOTHING = {"version": 1, "host": {}}


def _record(agent: Agent, document: dict[str, Any], known: Known) -> bool:
    """Record a report if its hardware is the stored one. Raises one of `_MALFORMED` if the rest is malformed."""
    report = HardwareReport.from_json({**document, "hardware": _NOTHING})
    if abs(offset(report.time)) > CLOCK_WARNING:
        return False
    return discovery.still_same(
        agent.pk, digest=known.digest, sequence=report.sequence, boot_id=report.boot_id, identities=known.identities,
        joined_at=agent.joined_at,
    )  # fmt: skip


def accept(agent: Agent, report: HardwareReport, content: dict[str, Any]) -> Received:
    """Store the hardware that an agent reports about its host. `content` is its JSON form.

    Raises Conflict for a report that was received before and for a wrong clock, NotAllowed if it is about another host,
    and InvalidRequest if the kind refuses it. Nothing is stored then, and the reason is kept with the agent.
    Raises Busy while another report about the host is being stored. The same report can be sent again then.
    """
    refused = _refused(agent, report)
    if refused is not None:
        _remember(agent, refused)
        raise refused
    _number(agent, report)
    try:
        received = discovery.receive(agent.blueprint_id, Report(place=agent.place, content=content))
    except Busy:
        _unnumber(agent, report)
        raise
    except DrydockError as error:
        _remember(agent, error)
        raise
    if agent.silent_since is not None or agent.reported_at is None:
        _return(agent)
    return received


def _refused(agent: Agent, report: HardwareReport) -> DrydockError | None:
    """Return why a report must not be believed, or None."""
    ahead = offset(report.time)
    if abs(ahead) > CLOCK_WARNING or agent.clock_off_since is not None:
        note_clock(agent, ahead)
    if abs(ahead) > CLOCK_LIMIT:
        return Conflict(
            f"The clock of this host is {abs(ahead):.0f} seconds {'ahead of' if ahead > 0 else 'behind'} the server's:"
            f" the report says {report.time}.",
            field="time", hint="Synchronize the clocks.",
        )  # fmt: skip
    try:
        refuse_other_host(agent, report.hardware.host.identities, FIELD)
        _learn(agent, report)
    except NotAllowed as error:
        return error
    return None


def _learn(agent: Agent, report: HardwareReport) -> None:
    """Keep identities of the host that were not known yet. Raises NotAllowed if they are those of another agent."""
    fresh = {one.namespace: one.value for one in real(report.hardware.host.identities)}
    fresh = {name: value for name, value in fresh.items() if name not in agent.identities}
    if not fresh:
        return
    taken = Q(pk=None)
    for name, value in fresh.items():
        taken |= Q(identities__contains={name: value})
    others = Agent.objects.filter(taken, blueprint=agent.blueprint_id, revoked_at=None).exclude(pk=agent.pk)
    other = others.first()
    if other is not None:
        shared = next(name for name, value in fresh.items() if other.identities.get(name) == value)
        raise NotAllowed(f"{shared} {fresh[shared]} already identifies {other.place}.", field=f"{FIELD}.{shared}")
    _still(agent).update(identities={**agent.identities, **fresh})


def _still(agent: Agent) -> QuerySet[Agent]:
    """Return the row of an agent, unless it was revoked or replaced since it was authenticated.

    It could otherwise delay a report until then, and have its successor refused by a number that is too large.
    """
    return Agent.objects.filter(pk=agent.pk, joined_at=agent.joined_at, revoked_at=None)


def _number(agent: Agent, report: HardwareReport) -> None:
    """Record that the report was received. Raises Conflict if it was received before, or after a later one.

    Raises Replaced if it comes from an agent that was revoked or replaced.
    """
    unread = _still(agent).filter(sequence__lt=report.sequence)
    if not unread.update(sequence=report.sequence, boot_id=report.boot_id, reported_at=Now(), problem=""):
        last = _still(agent).values_list("sequence", flat=True).first()
        if last is None:
            raise Replaced
        raise Conflict(
            f"Report {report.sequence} is not new: report {last} was received before.",
            field="sequence", hint=f"Give the next report a sequence number of at least {last + 1}.",
        )  # fmt: skip


def _unnumber(agent: Agent, report: HardwareReport) -> None:
    """Take back that the report was received, so that the same report can be sent again."""
    same = _still(agent).filter(sequence=report.sequence, boot_id=report.boot_id)
    same.update(sequence=agent.sequence, boot_id=agent.boot_id, reported_at=agent.reported_at, problem=agent.problem)


def _remember(agent: Agent, error: DrydockError) -> None:
    """Keep why a report was refused. The report before counts as the last one."""
    if not _still(agent).update(problem=str(error)[:2000], reported_at=agent.reported_at):
        return
    if not agent.problem:
        message = f"A report of the agent of {agent.place} was refused: {error}"
        record_event("agent.refused", message[:2000], blueprint_id=agent.blueprint_id, details={"agent": agent.pk})


def _return(agent: Agent) -> None:
    """Put the resources of an agent that was silent, or that replaces a revoked one, back into service."""
    silent = Agent.objects.filter(pk=agent.pk).exclude(silent_since=None)
    if silent.update(silent_since=None):
        message = f"The agent of {agent.place} reports again."
        record_event("agent.returned", message, blueprint_id=agent.blueprint_id, details={"agent": agent.pk})
    silent_agents.reopen(agent.pk)
