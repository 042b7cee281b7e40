"""Installing the agent on a host over its pinned control connection, and removing it.

Each step is one short call, so that it says where it failed. What failed is undone: a new installation is removed, and
an earlier one gets its program back.
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import dataclasses
import datetime as dt
import ssl
import uuid
from collections.abc import Iterator

from django.db import transaction
from django.db.models.functions import Now

from blueprints import registry
from blueprints.contract import Reports
from blueprints.hosts import HOST
from blueprints.hostshell import HostShell
from blueprints.models import Blueprint
from drydock.core import clock
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotFound, NotSupported
from drydock.core.logging import redact
from drydock.core.units import in_words
from drydock_agent.package import Package
from drydock_agent.program.connection import address_of
from drydock_agent.program.errors import AgentError
from drydock_client.values import AgentInstallation
from interfaces.deadline import Deadline
from interfaces.errors import CommandFailed
from interfaces.transport import Transport
from leases.agents import administration, hostscripts, program
from leases.agents.enrolment import NO_REPORTS, digest, reporting_kind
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction
from leases.engine.core.transitions import record_event
from leases.models import Agent, JoinCode, Resource, SlotLock
from leases.operations.callers import Caller, operator_only
from leases.validation.input_checks import checked

SECONDS = 240.0
"""The longest time in seconds that an installation may take. Requests of the REST API have less."""
_HELLO_SECONDS = 30.0
_LONGEST = dt.timedelta(seconds=2 * SECONDS + _HELLO_SECONDS)
"""The maximum duration of an installation and of undoing it. The lock of a process that died ends after this time."""
_MOST_CERTIFICATES = 262_144


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the agent is installed on a host."""

    account: str = "drydock-agent"
    folder: str = "/var/lib/drydock-agent"


LAYOUT = Layout()


class NotInstalled(Conflict):
    """The agent could not be installed on a host."""

    code = "agent_not_installed"


@checked
def install_agent(
    who: Caller, resource_id: int, *, blueprint: str = "", server: str = "", ca: str = "", start: bool = True
) -> AgentInstallation:  # fmt: skip
    """Install this server's version of the agent on a host, and have it join. Doing it again installs it anew.

    Raises NotFound, NotAllowed, InvalidRequest, NotSupported, and NotInstalled with the step that failed.
    """
    operator_only(who, "install agents")
    refuse_inside_transaction("Installing an agent")
    row, transport = _host(resource_id)
    try:
        _check(server, ca)
        installed = _Installation(who, row, _blueprint(row, blueprint), transport)
        with _alone(row):
            return installed.install(server, ca, start=start)
    finally:
        transport.close()


@checked
def uninstall_agent(who: Caller, resource_id: int) -> AgentInstallation:
    """Remove the agent from a host with its account and folder, and revoke it. Doing it again changes nothing.

    Raises NotFound, NotAllowed, NotSupported, and NotInstalled with the step that failed.
    """
    operator_only(who, "remove agents")
    refuse_inside_transaction("Removing an agent")
    row, transport = _host(resource_id)
    steps = _Steps(who, row)
    try:
        shell = HostShell(transport, SECONDS)
        with _alone(row), steps.doing("Remove the agent"):
            _remove(shell)
    finally:
        transport.close()
    for agent in Agent.objects.filter(place__in=(str(row.pk), row.name), revoked_at=None).exclude(joined_at=None):
        kind = registry.kind(agent.blueprint.kind)
        own = str(row.pk) if isinstance(kind, Reports) and kind.places_are_resources else row.name
        if agent.place == own:
            administration.revoke_agent(who, agent.pk)
            steps.done.append(f"Revoke agent {agent.pk} of blueprint {agent.blueprint.name}")
    record_event("agent.uninstalled", f"The agent was removed from {row.name}.", actor=who.actor, resource_id=row.pk)
    return AgentInstallation(resource=row.pk, steps=tuple(steps.done))


def _host(resource_id: int) -> tuple[Resource, Transport]:
    row = Resource.objects.filter(pk=resource_id, gone_at=None).select_related("blueprint").first()
    if row is None:
        raise NotFound(f"Resource {resource_id} does not exist.", field="resource")
    if row.type != HOST or row.state != "active":
        raise Conflict(f"Resource {row.pk} ({row.name}) is not an active host: it is {row.type}, {row.state}.")
    transport = specs.host_view(row).connect()
    if transport is None:
        raise NotSupported(f"{row.name} has no control account that can be used without a lease.", field="resource")
    return row, transport


@contextlib.contextmanager
def _alone(host: Resource) -> Iterator[None]:
    """Hold the slot lock of the agent of a host, so that no two installations or removals run there at once.

    Raises Conflict if another process holds it.
    """
    key, token = f"agent-installation:{host.pk}", uuid.uuid4().hex
    with transaction.atomic():
        SlotLock.objects.filter(key=key, created_at__lt=Now() - _LONGEST).delete()
        SlotLock.objects.bulk_create([SlotLock(key=key, value=token, resource=host)], ignore_conflicts=True)
    held = SlotLock.objects.filter(key=key).first()
    if held is None or held.value != token:
        since = "now" if held is None else f"since {held.created_at:%Y-%m-%d %H:%M:%S} UTC"
        raise Conflict(
            f"An installation of the agent on {host.name}, or its removal, is under way {since}.",
            hint=f"Try again when it has ended. If its process died, it counts as ended after {in_words(_LONGEST)}.",
        )
    try:
        yield
    finally:
        SlotLock.objects.filter(key=key, value=token).delete()


def _check(server: str, ca: str) -> None:
    """Raise InvalidRequest for an address or certificates that the agent on the host would refuse."""
    hint = "Give the address at which the host reaches this server, such as https://drydock.example.org."
    if not server or not server.isascii() or len(server) > 500 or " " in server or not server.isprintable():
        raise InvalidRequest(f"{server!r:.80} is not the address of this server.", field="server", hint=hint)
    try:
        address_of(server)
    except AgentError as error:
        raise InvalidRequest(str(error), field="server", hint=hint) from None
    if not ca:
        return
    if len(ca) > _MOST_CERTIFICATES or "PRIVATE KEY" in ca:
        raise InvalidRequest(
            f"There is a private key among the certificates, or they have more than {_MOST_CERTIFICATES} characters.",
            field="ca", hint="Give only the certificates of the authorities that the agent should trust.",
        )  # fmt: skip
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError, TypeError):
        raise InvalidRequest("These are not certificates in PEM.", field="ca") from None


def _blueprint(host: Resource, name: str) -> Blueprint:
    """Return the blueprint that the agent joins: the named one, or else the only one that takes reports of the host."""
    if name:
        found = Blueprint.objects.filter(name=name, removed_at=None).first()
        if found is None:
            raise NotFound(f"There is no blueprint {name!r}.", field="blueprint")
        if not _accepts(found, host):
            raise InvalidRequest(
                f"Blueprint {name} takes no reports about host {host.name!r}.", field="blueprint", hint=NO_REPORTS
            )
        return found
    fitting = []
    for one in Blueprint.objects.filter(enabled=True, removed_at=None).order_by("name"):
        with contextlib.suppress(DrydockError):
            fitting += [one] if _accepts(one, host) else []
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(one.name for one in fitting[:10])
    if not fitting:
        raise InvalidRequest(
            f"No blueprint takes reports about host {host.name!r}.", field="blueprint",
            hint="Add one: drydock blueprints add NAME accelerators reports=sent",
        )  # fmt: skip
    raise InvalidRequest(
        f"Several blueprints take reports about {host.name}: {names}.", field="blueprint",
        hint="Choose one of them: --blueprint NAME.",
    )  # fmt: skip


def _accepts(blueprint: Blueprint, host: Resource) -> bool:
    kind, config = reporting_kind(blueprint)
    return kind.accepts_agent(config, _place(kind, host))


def _place(kind: Reports, host: Resource) -> str:
    return str(host.pk) if kind.places_are_resources else host.name


class _Steps:
    """The steps that were done, for people."""

    def __init__(self, who: Caller, host: Resource) -> None:
        self.done: list[str] = []
        self._who, self._host = who, host

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Record that a step begins, and convert errors of the host in it to NotInstalled."""
        record_event("agent.install_step", f"{what}.", actor=self._who.actor, resource_id=self._host.pk)
        try:
            yield
        except CommandFailed as error:
            raise self.failed(what, _said(error)) from error
        except NotInstalled:
            raise
        except DrydockError as error:
            raise self.failed(what, error.message) from error
        self.done.append(what)

    def failed(self, what: str, why: str) -> NotInstalled:
        """Return the error for a step."""
        return NotInstalled(f"{self._host.name}: {what}: {redact(' '.join(why.split())[-800:])}")


class _Installation:
    """An installation of the agent on a host, step by step."""

    def __init__(self, who: Caller, host: Resource, blueprint: Blueprint, transport: Transport) -> None:
        self._who, self._host, self._blueprint, self._transport = who, host, blueprint, transport
        self._shell = HostShell(transport, SECONDS)
        self._steps = _Steps(who, host)
        self._offered: Package = program.current()
        self._code = ""
        self._there = False
        """Whether an earlier installation was found."""

    def install(self, server: str, ca: str, *, start: bool) -> AgentInstallation:
        """Install, and undo it if a step fails."""
        facts = self._set_up()
        try:
            self._copy(facts["python"])
            agent = self._joined(facts["python"])
            if agent is None:
                agent = self._join(facts["python"], server, ca)
            started = self._start(facts, agent, start=start)
        except BaseException:
            # The time of a request may be over, and what is undone must not be left because of that.
            contextvars.Context().run(self._undo)
            raise
        self._forget_code()
        message = (
            f"Version {self._offered.version} (SHA-256 {self._offered.sha256}) was installed on {self._host.name}."
        )
        record_event(
            "agent.installed", message, actor=self._who.actor, resource_id=self._host.pk, details={"agent": agent.pk}
        )
        return AgentInstallation(
            resource=self._host.pk, agent=agent.pk, version=self._offered.version, sha256=self._offered.sha256,
            started=started, steps=tuple(self._steps.done),
        )  # fmt: skip

    def _set_up(self) -> dict[str, str]:
        reasons = {
            hostscripts.NO_PYTHON: "The host has no Python 3.11 or later in /usr/bin or /usr/local/bin. Install it.",
            hostscripts.OTHER_ACCOUNT: f"The account {LAYOUT.account} belongs to something else: its home is not"
            f" {LAYOUT.folder}, or that is a link.",
            hostscripts.NO_RUNUSER: "The host has no runuser. Install util-linux.",
        }  # fmt: skip
        what = f"Create the account {LAYOUT.account} and the folder {LAYOUT.folder}"
        with self._steps.doing(what):
            try:
                said = self._as_root(hostscripts.SET_UP)
            except CommandFailed as error:
                if b"made=yes" in error.result.stdout:
                    _remove(self._shell)
                raise self._steps.failed(what, reasons.get(error.result.exit_code, _said(error))) from error
        facts = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        self._there = facts.get("there") == "yes"
        return facts

    def _copy(self, python: str) -> None:
        content = base64.b64encode(self._offered.content).decode()
        with self._steps.doing(f"Copy version {self._offered.version}, SHA-256 {self._offered.sha256}, and verify it"):
            said = self._as_root(hostscripts.COPY, python, self._offered.sha256, stdin=content).strip()
            if said != self._offered.version:
                raise self._steps.failed("Verify the program", f"its self-check says {said[:100]!r}")

    def _joined(self, python: str) -> Agent | None:
        """Return the agent that the host has, if it has joined this blueprint and its token is valid."""
        if not self._there:
            return None
        said = dict(
            line.split(None, 1) for line in self._as_root(hostscripts.STATUS, python).splitlines() if " " in line
        )
        number = said.get("agent", "").strip()
        if not number.isdecimal() or not said.get("token", "").strip().startswith("valid"):
            return None
        kind, _ = reporting_kind(self._blueprint)
        known = Agent.objects.filter(
            pk=int(number[:18]), blueprint=self._blueprint, place=_place(kind, self._host), revoked_at=None
        )
        return known.exclude(joined_at=None).first()

    def _join(self, python: str, server: str, ca: str) -> Agent:
        kind, _ = reporting_kind(self._blueprint)
        place = _place(kind, self._host)
        with self._steps.doing(f"Join {server} as the agent of {self._host.name} for {self._blueprint.name}"):
            self._code = administration.create_join_code(self._who, self._blueprint.name, host=place).code
            given = self._code + "\n" + ca
            self._as_root(hostscripts.JOIN, python, server, "yes" if ca else "no", stdin=given)
            agent = Agent.objects.filter(blueprint=self._blueprint, place=place, revoked_at=None).first()
            used = JoinCode.objects.filter(digest=digest(self._code)).exclude(used_at=None).exists()
            if agent is None or not used:
                raise self._steps.failed("Join", f"the agent joined another server than this one at {server}")
        return agent

    def _start(self, facts: dict[str, str], agent: Agent, *, start: bool) -> bool:
        """Start the agent, and wait for its hello. Return whether it runs as a service."""
        since = Agent.objects.values_list("hello_at", flat=True).get(pk=agent.pk)
        command = f"{facts['python']} -I {LAYOUT.folder}/program/drydock-agent.pyz run --state {LAYOUT.folder}"
        if start and facts["systemd"] == "yes":
            unit = hostscripts.UNIT.format(python=facts["python"], folder=LAYOUT.folder, account=LAYOUT.account)
            with self._steps.doing("Start the systemd unit drydock-agent, and wait for its hello"):
                self._shell.as_root(hostscripts.START, stdin=unit)
                self._wait_for_hello(agent, since)
            return True
        with self._steps.doing("Report once, and wait for the hello"):
            self._as_root(hostscripts.ONCE, facts["python"])
            self._wait_for_hello(agent, since)
        why = "It was not asked to start" if facts["systemd"] == "yes" else "The host has no systemd"
        self._steps.done.append(f"{why}. Start it as {LAYOUT.account} with: {command}")
        return False

    def _wait_for_hello(self, agent: Agent, since: dt.datetime | None) -> None:
        deadline = Deadline(_HELLO_SECONDS)
        while Agent.objects.filter(pk=agent.pk, hello_at=since).exists():
            if deadline.expired:
                raise self._steps.failed("Wait for the hello", f"none came within {deadline.seconds:g} s")
            clock.sleep(0.2)

    def _undo(self) -> None:
        """Remove what was installed, or give an earlier installation its program back."""
        shell = HostShell(self._transport, SECONDS)
        with contextlib.suppress(DrydockError):
            if self._there:
                shell.as_root(hostscripts.RESTORE, LAYOUT.account, LAYOUT.folder)
            else:
                _remove(shell)
        joined = (
            JoinCode.objects.filter(digest=digest(self._code)).exclude(used_at=None).exists() if self._code else False
        )
        if joined and not self._there:
            kind, _ = reporting_kind(self._blueprint)
            place = _place(kind, self._host)
            for agent in Agent.objects.filter(blueprint=self._blueprint, place=place, revoked_at=None):
                administration.revoke_agent(self._who, agent.pk)
        self._forget_code()

    def _forget_code(self) -> None:
        """End a code that was not used."""
        if self._code:
            JoinCode.objects.filter(digest=digest(self._code), used_at=None).update(expires_at=Now())

    def _as_root(self, script: str, *arguments: str, stdin: str = "") -> str:
        return self._shell.as_root(script, LAYOUT.account, LAYOUT.folder, *arguments, stdin=stdin)


def _remove(shell: HostShell) -> None:
    """Stop the agent, and remove its unit, processes, folder and account. Raises DrydockError."""
    said = shell.as_root(hostscripts.STOP, LAYOUT.account, LAYOUT.folder).strip()
    if said == "left":
        raise NotInstalled(f"Processes of {LAYOUT.account} could not be ended.")
    if said != "ended":
        return
    if not shell.remove_tree(LAYOUT.folder, root=True):
        raise NotInstalled(f"{LAYOUT.folder} could not be removed.")
    shell.as_root(hostscripts.REMOVE_ACCOUNT, LAYOUT.account)


def _said(error: CommandFailed) -> str:
    """Return what a failed command wrote, for people."""
    return (error.result.error_text.strip() or error.result.text.strip() or error.message)[-800:]
