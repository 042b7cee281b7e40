"""The first and every later hello of an agent: which host it speaks for, and what it says about itself."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from django.db.models import Q
from django.db.models.functions import Coalesce, Now

from blueprints import registry
from blueprints.contract import Reports
from blueprints.identities import real
from blueprints.models import Blueprint
from drydock import DISTRIBUTION
from drydock.core import clock
from drydock.core.errors import Conflict, NotAllowed, NotSupported
from drydock_agent.messages import Hello, moment
from leases.agents import endpoints
from leases.engine.core import specs
from leases.engine.core.database import short
from leases.engine.core.transitions import record_event
from leases.engine.sync import discovery
from leases.models import Agent, JoinCode, ResourceIdentity

PREFIX = "ddj_"
"""The first letters of every join code."""
NO_REPORTS = "Its config says which hosts have agents, such as `reports` and `hosts` of kind `accelerators`."
"""The hint for a host about which no blueprint takes reports."""
CLOCK_LIMIT = 300.0
"""The largest difference in seconds between the clocks of an agent and of the server at which reports are accepted."""
CLOCK_WARNING = 60.0
"""The difference in seconds from which an agent's clock is shown as wrong."""


class BadCode(NotAllowed):
    """This join code is not valid. It may have been used, or have expired."""

    code = "bad_join_code"


class Replaced(NotAllowed):
    """The agent was revoked, or another one took its place, while it was sending this."""

    code = "agent_replaced"


def digest(secret: str) -> str:
    """Return the digest of a join code, under which it is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def server_version() -> str:
    """Return the version of this server."""
    return version(DISTRIBUTION)


def valid_code(secret: str) -> JoinCode | None:
    """Return the join code with this secret if it can still be used."""
    if not secret.startswith(PREFIX):
        return None
    found: JoinCode | None = _usable(secret).first()
    return found


def _usable(secret: str) -> Any:
    return JoinCode.objects.filter(digest=digest(secret), used_at=None, expires_at__gt=Now())


@short
def join(secret: str, hello: Hello) -> Agent:
    """Use up a join code, and return the agent of the host that it was made for.

    If the code names a host whose agent joined before, the new agent takes its place. Raises BadCode, NotAllowed if the
    host is not one of the blueprint's, and Conflict if its agent has joined before and the code does not name it.
    """
    code = _usable(secret).select_for_update(no_key=True, of=("self",)).select_related("blueprint").first()
    if code is None:
        raise BadCode
    blueprint: Blueprint = code.blueprint
    kind, config = reporting_kind(blueprint)
    identities = {one.namespace: one.value for one in real(hello.identities)}
    place = code.place or _place(kind, hello, identities)
    if not kind.accepts_agent(config, place):
        raise NotAllowed(f"Blueprint {blueprint.name} takes no reports about host {place!r}.", hint=NO_REPORTS)
    _refuse_second(blueprint, place, identities)
    agent = _agent_of(blueprint, place, replaces=bool(code.place))
    JoinCode.objects.filter(pk=code.pk).update(used_at=Now())
    # Whoever has a code may replace the agent, so a certificate that was pinned before has no meaning any more.
    Agent.objects.filter(pk=agent.pk).update(
        joined_at=Now(), identities=identities, sequence=0, reported_at=None, problem="", endpoint="", fingerprint="",
        offered={}, call_problem="", secrets={}, **_about(blueprint, hello),
    )  # fmt: skip
    agent.tokens.all().delete()
    message = f"The agent of {place} joined blueprint {blueprint.name} with a code of {code.created_by}."
    record_event(
        "agent.joined", message, actor=f"agent {agent.pk}", blueprint_id=blueprint.pk, details={"agent": agent.pk}
    )
    _judge(agent, hello)
    endpoints.announced(Agent.objects.select_related("blueprint").get(pk=agent.pk), hello)
    return Agent.objects.select_related("blueprint").get(pk=agent.pk)


def _agent_of(blueprint: Blueprint, place: str, *, replaces: bool) -> Agent:
    """Return the agent of a place, which is created if it is new. Raises Conflict if it must not be replaced."""
    known = Agent.objects.select_for_update(no_key=True).filter(blueprint=blueprint, place=place, revoked_at=None)
    agent: Agent | None = known.first()
    if agent is None:
        made = Agent(blueprint=blueprint, place=place, interval=discovery.interval(blueprint))
        Agent.objects.bulk_create([made], ignore_conflicts=True)  # another code may be used for it at this moment
        agent = known.get()
    if agent.joined_at is not None and not replaces:
        raise Conflict(
            f"An agent for {place} of blueprint {blueprint.name} has joined before.",
            hint="To replace that agent, create a join code for its host: "
            f"`drydock agents join {blueprint.name} --host {place}`.",
        )
    return agent


@short
def renew(agent: Agent, hello: Hello) -> Agent:
    """Store what an agent says about itself. Raises NotAllowed if it runs on another host than the one that joined.

    Raises Replaced if it was revoked or replaced after it was authenticated.
    """
    hold(agent)
    refuse_other_host(agent, hello.identities, "identities")
    Agent.objects.filter(pk=agent.pk).update(**_about(agent.blueprint, hello))
    _judge(agent, hello)
    endpoints.announced(agent, hello)
    return Agent.objects.select_related("blueprint").get(pk=agent.pk)


def hold(agent: Agent) -> None:
    """Lock an agent in the current transaction. Raises Replaced if it was revoked or has joined again.

    An agent is authenticated before its body has arrived, which it can delay.
    """
    still = Agent.objects.select_for_update(no_key=True).filter(
        pk=agent.pk, joined_at=agent.joined_at, revoked_at=None
    )  # fmt: skip
    if not still.exists():
        raise Replaced


def reporting_kind(blueprint: Blueprint) -> tuple[Reports, Any]:
    """Return the kind of a blueprint that takes reports, and its config. Raises Conflict and NotSupported."""
    if not blueprint.enabled or blueprint.removed_at is not None:
        raise Conflict(f"Blueprint {blueprint.name} is disabled.")
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Reports):
        raise NotSupported(f"Blueprint {blueprint.name} has no agents: kind {blueprint.kind!r} takes no reports.")
    return kind, specs.config(blueprint.kind, blueprint.config)


def refuse_other_host(agent: Agent, given: Mapping[str, str], field: str) -> None:
    """Raise NotAllowed if identities contradict those with which the agent joined."""
    for one in real(given):
        if agent.identities.get(one.namespace, one.value) != one.value:
            raise NotAllowed(
                f"The host with {one.namespace} {one.value} is not the host for which this agent joined.",
                field=f"{field}.{one.namespace}", hint="Create a join code for the other host.",
            )  # fmt: skip


def _place(kind: Reports, hello: Hello, identities: Mapping[str, str]) -> str:
    """Return the place of a host: its name, or the id of the resource that has its identities."""
    if not kind.places_are_resources:
        return hello.name
    named = [Q(namespace=name, value=value) for name, value in identities.items()]
    wanted = Q(pk=None)
    for one in named:
        wanted |= one
    found = set(ResourceIdentity.objects.filter(wanted, resource__part_of=None).values_list("resource", flat=True)[:2])
    if len(found) != 1:
        problem = "more than one resource" if found else "no resource"
        raise NotAllowed(
            f"Host {hello.name} cannot be recognized: its identities belong to {problem}.",
            field="identities", hint="Create a join code for this host: `drydock agents join BLUEPRINT --host HOST`.",
        )  # fmt: skip
    return str(found.pop())


def _refuse_second(blueprint: Blueprint, place: str, identities: Mapping[str, str]) -> None:
    """Raise Conflict if the agent of another place has joined with one of these identities."""
    wanted = Q(pk=None)
    for name, value in identities.items():
        wanted |= Q(identities__contains={name: value})
    others = Agent.objects.filter(wanted, blueprint=blueprint, revoked_at=None).exclude(place=place)
    other = others.first()
    if other is not None:
        raise Conflict(
            f"This is the same host as {other.place}, whose agent has joined before.",
            field="identities", hint=f"Revoke it first: `drydock agents revoke {other.pk}`.",
        )  # fmt: skip


def _about(blueprint: Blueprint, hello: Hello) -> dict[str, Any]:
    drivers = [
        {"name": one.name, "type": list(one.type), "status": str(one.status), "message": one.message}
        for one in hello.drivers
    ]
    return {
        "name": hello.name, "version": hello.agent_version, "boot_id": hello.boot_id, "drivers": drivers,
        "hello_at": Now(), "interval": discovery.interval(blueprint),
    }  # fmt: skip


def _judge(agent: Agent, hello: Hello) -> None:
    """Record whether the agent's clock is wrong, and whether its software is older than the server's."""
    note_clock(agent, offset(hello.time))
    note_version(agent, hello.agent_version)


def offset(time: str) -> float:
    """Return the number of seconds by which a clock that shows `time` is ahead of this machine's."""
    return (moment(time) - clock.now()) / dt.timedelta(seconds=1)


def note_clock(agent: Agent, ahead: float) -> None:
    """Store how far an agent's clock is ahead, and record an event when it turns out to be wrong."""
    wrong = abs(ahead) > CLOCK_WARNING
    since = Coalesce("clock_off_since", Now()) if wrong else None
    Agent.objects.filter(pk=agent.pk).update(clock_offset=ahead, clock_off_since=since)
    if wrong and agent.clock_off_since is None:
        message = f"The clock of {agent.place} is {abs(ahead):.0f} seconds {'ahead' if ahead > 0 else 'behind'}."
        record_event("agent.clock_off", message, blueprint_id=agent.blueprint_id, details={"agent": agent.pk})


def note_version(agent: Agent, found: str) -> None:
    """Record an event when an agent turns out to be older than the server."""
    old = is_older(found, server_version())
    Agent.objects.filter(pk=agent.pk).update(outdated_since=Coalesce("outdated_since", Now()) if old else None)
    if old and agent.outdated_since is None:
        message = (
            f"The agent of {agent.place} has version {found}, which is older than the server's {server_version()}."
        )
        record_event("agent.outdated", message, blueprint_id=agent.blueprint_id, details={"agent": agent.pk})


def is_older(found: str, than: str) -> bool:
    """Return whether a version such as 0.1.0 is older than another. A version without numbers counts as older."""
    return _numbers(found) < _numbers(than)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split("+")[0].split("-")[0].split(".")
    return tuple(int(word[:9]) for word in words if word.isdecimal() and word.isascii())
