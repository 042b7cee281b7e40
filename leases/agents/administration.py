"""The operations on agents."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any

from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.db.models.functions import Now

from blueprints.contract import Reports
from blueprints.models import Blueprint
from drydock.core.errors import Conflict, InvalidRequest, NotFound
from drydock.core.units import duration, in_words
from drydock_client.values import AgentInfo, AgentOrderInfo, JoinCodeInfo
from leases.agents import endpoints, program
from leases.agents.enrolment import CLOCK_WARNING, NO_REPORTS, PREFIX, digest, reporting_kind
from leases.engine.core.transitions import record_event
from leases.engine.sync import silent_agents
from leases.messaging import hints
from leases.models import Agent, AgentOrder, JoinCode, Resource
from leases.operations.callers import Caller, operator_only
from leases.validation.input_checks import checked

LONGEST_CODE = dt.timedelta(hours=1)
"""The longest time for which a join code is valid."""
_ORDER_TIME = dt.timedelta(minutes=10)
_ORDERS_SHOWN = 10


@checked
def agents(who: Caller, *, blueprint: str | None = None, all_: bool = False) -> list[AgentInfo]:
    """Return the agents by blueprint and place. Raises NotAllowed."""
    operator_only(who, "see agents")
    found = Agent.objects.select_related("blueprint").defer("secrets").order_by("blueprint__name", "place", "id")
    if blueprint is not None:
        found = found.filter(blueprint__name=blueprint)
    if not all_:
        found = found.filter(revoked_at=None, blueprint__removed_at=None)
    return [info(row) for row in found]


@checked
def agent(who: Caller, agent_id: int) -> AgentInfo:
    """Return an agent with its last orders. Raises NotFound, NotAllowed."""
    operator_only(who, "see agents")
    row = _with_orders().filter(pk=agent_id).first()
    if row is None:
        raise _missing(agent_id)
    return info(row, orders=list(row.orders.all())[:_ORDERS_SHOWN])


@checked
def create_join_code(who: Caller, blueprint: str, *, host: str = "", ttl: Any = None) -> JoinCodeInfo:
    """Create a join code. Raises NotFound, NotAllowed, InvalidRequest, NotSupported and Conflict."""
    operator_only(who, "let agents join")
    row = Blueprint.objects.filter(name=blueprint, removed_at=None).first()
    if row is None:
        raise NotFound(f"There is no blueprint {blueprint!r}.", field="blueprint")
    kind, config = reporting_kind(row)
    place = _place(kind, host) if host else ""
    if place and not kind.accepts_agent(config, place):
        raise InvalidRequest(
            f"Blueprint {row.name} takes no reports about host {host!r}.", field="host", hint=NO_REPORTS
        )
    span = LONGEST_CODE if ttl is None else duration(ttl, field="ttl")
    if not dt.timedelta(0) < span <= LONGEST_CODE:
        raise InvalidRequest(f"A join code can be valid for at most {in_words(LONGEST_CODE)}.", field="ttl")
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        JoinCode.objects.filter(expires_at__lt=Now() - dt.timedelta(days=1)).delete()
        code = JoinCode.objects.create(
            blueprint=row, place=place, digest=digest(secret), expires_at=Now() + span, created_by=who.actor[:150]
        )
        message = f"A join code for {host or 'any host'} of blueprint {row.name}, valid for {in_words(span)}."
        record_event("agent.code_created", message, actor=who.actor, blueprint_id=row.pk)
    code.refresh_from_db(fields=["expires_at"])
    return JoinCodeInfo(code=secret, blueprint=row.name, place=place, expires_at=code.expires_at)


def _place(kind: Reports, host: str) -> str:
    """Return the place that a host's name stands for. Raises InvalidRequest."""
    if not kind.places_are_resources:
        return host
    there = Resource.objects.filter(gone_at=None, part_of=None)
    if host.isascii() and host.isdecimal() and there.filter(pk=int(host[:18])).exists():
        return str(int(host))
    found = list(there.filter(name=host).values_list("pk", flat=True)[:2])
    if len(found) != 1:
        problem = f"{host!r} is the name of several resources." if found else f"There is no resource {host!r}."
        raise InvalidRequest(problem, field="host", hint="Give the id of the host's resource: drydock resources list.")
    return str(found[0])


@checked
def revoke_agent(who: Caller, agent_id: int) -> AgentInfo:
    """Stop accepting anything from an agent. Doing it again changes nothing. Raises NotFound, NotAllowed."""
    operator_only(who, "revoke agents")
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
        if row is None:
            raise _missing(agent_id)
        if row.revoked_at is None:
            Agent.objects.filter(pk=agent_id).update(revoked_at=Now(), silent_since=row.silent_since or Now())
            row.tokens.all().delete()
            message = f"The agent of {row.place} was revoked."
            record_event(
                "agent.revoked", message, actor=who.actor, blueprint_id=row.blueprint_id, details={"agent": agent_id}
            )
    silent_agents.close()
    return agent(who, agent_id)


@checked
def order_agent(who: Caller, agent_id: int, *, action: str = AgentOrder.Action.DISCOVERY) -> AgentOrderInfo:
    """Give an agent an order, unless it has the same one already. Raises NotFound, NotAllowed, Conflict."""
    operator_only(who, "give agents orders")
    if action not in AgentOrder.Action.values:
        raise InvalidRequest(
            f"An agent cannot be ordered to {action!r}.", field="action",
            hint=f"Choose one of: {', '.join(AgentOrder.Action.values)}.",
        )  # fmt: skip
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
        if row is None:
            raise _missing(agent_id)
        if row.joined_at is None or row.revoked_at is not None:
            raise Conflict(f"No agent for {row.place} has joined, or it was revoked.")
        _expire(row)
        order = row.orders.filter(action=action, ended_at=None).first()
        if order is None:
            given = program.arguments() if action == AgentOrder.Action.UPGRADE else {}
            order = AgentOrder.objects.create(
                agent=row, action=action, arguments=given, expires_at=Now() + _ORDER_TIME, actor=who.actor[:150]
            )
            record_event(
                "agent.ordered", f"The agent of {row.place} was ordered: {order.get_action_display()}.",
                actor=who.actor, blueprint_id=row.blueprint_id, details={"agent": agent_id, "order": order.pk},
            )  # fmt: skip
        if row.endpoint and not row.offered:
            hints.after_commit("call_agent", row.pk)
    return order_info(AgentOrder.objects.get(pk=order.pk))


@checked
def confirm_agent(who: Caller, agent_id: int, fingerprint: str, *, endpoint: str = "") -> AgentInfo:
    """Trust the endpoint and the certificate that an agent announced. Raises NotFound, NotAllowed and Conflict.

    Conflict means that the agent announced another certificate or endpoint, or none that has to be confirmed. The
    endpoint must be given if the agent announced several with this certificate.
    """
    operator_only(who, "confirm certificates of agents")
    given, endpoint = fingerprint.replace(":", "").strip().lower(), endpoint.strip()
    with transaction.atomic():
        row = Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).first()
        if row is None:
            raise _missing(agent_id)
        if row.endpoint and row.fingerprint == given and endpoint in ("", row.endpoint) and not row.offered:
            return agent(who, agent_id)
        _refuse_other(row, given, endpoint)
        endpoints.trust(row.pk, row.offered["endpoint"], row.offered["fingerprint"])
        message = f"The endpoint {row.offered['endpoint']} of the agent of {row.place} was confirmed."
        record_event(
            "agent.endpoint_confirmed", message, actor=who.actor, blueprint_id=row.blueprint_id,
            details={"agent": agent_id, **row.offered},
        )  # fmt: skip
    return agent(who, agent_id)


def _refuse_other(row: Agent, fingerprint: str, endpoint: str) -> None:
    """Raise Conflict unless the agent announces this certificate, and this endpoint, or only one."""
    offered = row.offered
    if offered.get("fingerprint") != fingerprint:
        there = (
            f"It announced {offered['fingerprint']}." if offered
            else f"Nothing waits: {row.endpoint} is confirmed with {row.fingerprint}." if row.endpoint
            else "It announced no other one."
        )  # fmt: skip
        raise Conflict(
            f"The agent of {row.place} has not announced the certificate {fingerprint:.64}"
            f"{f' with the endpoint {endpoint:.300}' if endpoint else ''}.",
            field="fingerprint", hint=f"{there} Compare with `drydock-agent status` on its host.",
        )  # fmt: skip
    if endpoint and endpoint != offered["endpoint"]:
        raise Conflict(
            f"The agent of {row.place} announces the endpoint {offered['endpoint']}, not {endpoint:.300}.",
            field="endpoint", hint="Confirm the one that it announces, if the server may call that address.",
        )  # fmt: skip
    if not endpoint and (before := endpoints.before(row)):
        raise Conflict(
            f"The agent of {row.place} announced {before} with this certificate before, and now"
            f" {offered['endpoint']}.",
            field="endpoint", hint=f"Name the endpoint that you confirm: --endpoint {offered['endpoint']}",
        )  # fmt: skip


def _expire(row: Agent) -> None:
    late = row.orders.filter(ended_at=None, expires_at__lte=Now())
    late.update(state=AgentOrder.State.EXPIRED, ended_at=Now())


def _with_orders() -> QuerySet[Agent]:
    orders = Prefetch("orders", AgentOrder.objects.order_by("-id"))
    return Agent.objects.select_related("blueprint").defer("secrets").prefetch_related(orders)


def _missing(agent_id: int) -> NotFound:
    return NotFound(f"Agent {agent_id} does not exist.", field="agent")


def info(row: Agent, *, orders: list[AgentOrder] | None = None) -> AgentInfo:
    """Return an agent's row as a value."""
    return AgentInfo(
        id=row.pk, blueprint=row.blueprint.name, place=row.place, host=row.name, state=state(row), message=problem(row),
        version=row.version, outdated=row.outdated_since is not None, drivers=tuple(map(_driver, row.drivers)),
        interval=row.interval, clock_offset=row.clock_offset, joined_at=row.joined_at, reported_at=row.reported_at,
        silent_since=row.silent_since, revoked_at=row.revoked_at, endpoint=row.endpoint, fingerprint=row.fingerprint,
        offered_endpoint=row.offered.get("endpoint", ""), offered_fingerprint=row.offered.get("fingerprint", ""),
        call_problem=row.call_problem, orders=tuple(map(order_info, orders or ())),
    )  # fmt: skip


def state(row: Agent) -> str:
    """Return the state of an agent as one word."""
    if row.revoked_at is not None:
        return "revoked"
    if row.joined_at is None:
        return "expected"
    if row.silent_since is not None:
        return "silent"
    return "joined" if row.reported_at is None else "reporting"


def problem(row: Agent) -> str:
    """Return what is wrong with an agent, in words, or an empty string."""
    if row.revoked_at is not None:
        return ""
    found = []
    if row.silent_since is not None:
        found.append(
            "The blueprint requires an agent here, but none has joined." if row.joined_at is None
            else "It has never reported." if row.reported_at is None
            else f"Its last report came at {row.reported_at:%Y-%m-%d %H:%M:%S} UTC, not every {row.interval:g} s."
        )  # fmt: skip
    if row.clock_off_since is not None and row.clock_offset is not None:
        ahead = row.clock_offset
        found.append(
            f"The clock of the agent's host is {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}; at most "
            f"{CLOCK_WARNING:.0f} s are allowed."
        )
    if row.outdated_since is not None:
        found.append(f"The agent's version {row.version} is older than the server's.")
    if row.offered:
        found.append(
            f"It listens on {row.offered['endpoint']} with the certificate {row.offered['fingerprint']}, which is not"
            f" confirmed: `drydock agents confirm {row.pk} FINGERPRINT --endpoint {row.offered['endpoint']}`."
        )
    if row.problem:
        found.append(f"The agent's last report was refused: {row.problem}")
    return " ".join(found)


def _driver(found: dict[str, Any]) -> str:
    return str(found["name"]) + (f" (failed: {found['message']})" if found["status"] == "FAILED" else "")


def order_info(row: AgentOrder) -> AgentOrderInfo:
    """Return an order's row as a value."""
    return AgentOrderInfo(
        id=row.pk, action=row.action, state=row.state, percent=row.percent, message=row.message, actor=row.actor,
        created_at=row.created_at, expires_at=row.expires_at, ended_at=row.ended_at,
    )  # fmt: skip
