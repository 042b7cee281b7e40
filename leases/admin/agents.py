"""The admin of agents: who reports the hardware of which host, join codes, and orders."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from leases.admin.toolkit import columns, html
from leases.admin.toolkit.actions import Action, FormData
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.equivalent_commands import declared
from leases.admin.toolkit.panels import Panel
from leases.agents import administration
from leases.models import Agent, AgentOrder, JoinCode
from leases.operations.callers import Caller


def _revoke(who: Caller, row: Any, given: FormData) -> str:
    administration.revoke_agent(who, row.pk)
    return "Revoked."


def _discover(who: Caller, row: Any, given: FormData) -> str:
    made = administration.order_agent(who, row.pk)
    return f"Order {made.id} was given."


def _upgrade(who: Caller, row: Any, given: FormData) -> str:
    made = administration.order_agent(who, row.pk, action="upgrade")
    return f"Order {made.id} was given."


def _confirm(who: Caller, row: Any, given: FormData) -> str:
    info = administration.confirm_agent(who, row.pk, given["fingerprint"], endpoint=given["endpoint"])
    return f"The server may now call {info.endpoint}."


class EndpointForm(forms.Form):
    """The form that asks for the endpoint, and for the fingerprint, which the operator reads on the agent's host."""

    endpoint = forms.CharField(
        max_length=300,
        help_text="HOST:PORT that the server may call. If the agent announces another, nothing is trusted.",
    )
    fingerprint = forms.CharField(
        max_length=100, help_text="As `drydock-agent status` shows it on the agent's host, not as it is shown here."
    )


@admin.register(Agent)
class AgentAdmin(RecordAdmin):
    """The admin of agents, with what is wrong with each."""

    acts = (
        Action(
            name="discovery", label="Report now", does=_discover,
            equivalent=declared("order_agent", "drydock agents order {id} discovery", action="discovery"),
            sentence="The agent scans the hardware of its host and reports it.",
        ),
        Action(
            name="upgrade", label="Upgrade", does=_upgrade,
            equivalent=declared("order_agent", "drydock agents order {id} upgrade", action="upgrade"),
            sentence="The agent installs the version of this server, which takes over after it has said hello.",
        ),
        Action(
            name="confirm", label="Confirm the endpoint", does=_confirm, form=EndpointForm,
            applies=lambda row: bool(row.offered),
            equivalent=declared(
                "confirm_agent", "drydock agents confirm {id} FINGERPRINT --endpoint ENDPOINT",
                fingerprint="FINGERPRINT", endpoint="ENDPOINT",
            ),
            sentence="The server may call the agent at the endpoint that it announced.",
        ),
        Action(
            name="revoke", label="Revoke", does=_revoke,
            equivalent=declared("revoke_agent", "drydock agents revoke {id}"),
            sentence="End the agent's token. The resources that it reported serve no new leases.",
        ),
    )  # fmt: skip
    related = ("blueprint",)
    list_display = ("number", "blueprint_", "place", "name", "status", "reported", "version", "says")
    list_filter = ("blueprint",)
    search_fields = ("=id", "name", "place", "blueprint__name")
    ordering = ("blueprint__name", "place", "id")
    fields = (
        "blueprint_", "place", "name", "status", "says", "version", "interval", "offset", "identities_", "drivers_",
        "joined", "hello", "reported", "silent", "revoked", "endpoint", "fingerprint", "offered_", "call_problem",
    )  # fmt: skip

    number = columns.number()
    blueprint_ = columns.link("blueprint", "blueprint")
    status = columns.column("state", lambda row: administration.info(row).state)
    says = columns.column("problem", lambda row: administration.info(row).message or "-")
    offset = columns.column(
        "clock ahead of the server's", lambda row: "-" if row.clock_offset is None else f"{row.clock_offset:.1f} s"
    )
    identities_ = columns.values("identities", "identities")
    offered_ = columns.values("not confirmed", "offered")
    drivers_ = columns.column("drivers", lambda row: ", ".join(administration.info(row).drivers) or "-")
    joined = columns.time("joined", "joined_at")
    hello = columns.time("last hello", "hello_at")
    reported = columns.time("last report", "reported_at")
    silent = columns.time("silent since", "silent_since")
    revoked = columns.time("revoked", "revoked_at")

    def line(self, row: Agent) -> str:
        """Return the endpoint that waits for an operator."""
        return f"announces {row.offered['endpoint']}" if row.offered else ""

    def panels(self, row: Agent, request: HttpRequest) -> list[Panel]:
        """List the last orders of the agent."""
        orders = row.orders.order_by("-id")[:20]
        rows = [(html.link(one), one.action, one.state, html.time(one.created_at), one.message) for one in orders]
        return [Panel(title="Orders", columns=("Order", "Action", "State", "Given", "Message"), rows=rows)]


@admin.register(AgentOrder)
class AgentOrderAdmin(RecordAdmin):
    """The admin of orders to agents."""

    related = ("agent__blueprint",)
    list_display = ("number", "agent", "action", "state", "given", "ended", "actor", "message")
    list_filter = ("state",)
    search_fields = ("=agent__id", "agent__name", "agent__place", "actor", "message")
    ordering = ("-id",)
    fields = ("agent", "action", "arguments_", "state", "percent", "message", "actor", "given", "expires", "ended")

    number = columns.number()
    arguments_ = columns.values("arguments", "arguments")
    given = columns.time("given", "created_at")
    expires = columns.time("expires", "expires_at")
    ended = columns.time("ended", "ended_at")


@admin.register(JoinCode)
class JoinCodeAdmin(RecordAdmin):
    """The admin of join codes. Only their digests are stored, and these are not shown."""

    related = ("blueprint",)
    list_display = ("number", "blueprint_", "place", "made", "created_by", "expires", "used")
    search_fields = ("blueprint__name", "place", "created_by")
    ordering = ("-id",)
    fields = ("blueprint_", "place", "made", "created_by", "expires", "used")

    number = columns.number()
    blueprint_ = columns.link("blueprint", "blueprint")
    made = columns.time("created", "created_at")
    expires = columns.time("expires", "expires_at")
    used = columns.time("used", "used_at")
