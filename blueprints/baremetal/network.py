"""Steps that move a host between the networks for provisioning, cleaning and tenants, of which it is in one at most.

What is attached is recorded with the host before the switch is called, so that it is detached after a crash at any
point. Every port has left all other networks, as read back from the switch, before the first port enters the next one.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal.config import Config
from blueprints.baremetal.registration import registration_of, said
from blueprints.contract import Act
from blueprints.hosts import lease_of
from blueprints.hostshell import NeedsOperator, told
from blueprints.networks.config import Networks, Purpose
from blueprints.networks.contract import Access, Port
from blueprints.networks.errors import NetworkError, NetworkRefused, NetworkUnreachable
from blueprints.specs import ResourceView, Spec
from interfaces.deadline import Deadline

logger = logging.getLogger(__name__)

FACT = "network"
"""Name of the fact with the networks that a host may be in. In the facts of a lease, the network of the lease."""
NOT_SWITCHED = frozenset({NetworkUnreachable.code})
"""Codes of failures after which a host serves no new leases until a check succeeds, and is then cleaned up.

The check reads from the switch (`look`), so a switch that can be read and not be changed is none of these.
"""
_PATIENCE = 14.0
"""Seconds that one call of a step may take, so that a switch that does not answer is found out quickly."""


class Unchanged(NetworkRefused):
    """The switch can be read, but did not carry out a change in time."""


class Misplaced(NetworkError):
    """The host is not in the network in which it must be."""

    words: ClassVar[str]

    def __init__(self, port: Port, network: str) -> None:
        self.network = network
        super().__init__(self.words.format(it=f"The {port}", network=network))

    @property
    def plain(self) -> str:
        """The error without the switch and the port."""
        return self.words.format(it="The host", network=self.network)


class NotLeft(Misplaced):
    """The host is still in a network that it should have left."""

    code = "network_not_left"
    scope = Scope.STEP
    words = "{it} was detached from the network {network}, but is still in it."


class NotEntered(Misplaced):
    """The host is not in the network to which it was attached."""

    code = "network_not_entered"
    scope = Scope.STEP
    words = "{it} was attached to the network {network}, but is not in it."


class Occupied(Misplaced):
    """The host is in a network that is none of its blueprint."""

    code = "network_occupied"
    words = "{it} is in the network {network}, which is none of its blueprint. Detach it at the switch."


@dataclass(frozen=True, kw_only=True)
class Attached:
    """The networks that a host may be in, and the ports that may be in them."""

    networks: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Attached:
        """Return what is recorded in the facts of a host."""
        known = facts.get(FACT) or {}
        ports = tuple(Port.model_validate(one) for one in known.get("ports", ()))
        return cls(networks=tuple(known.get("networks", ())), ports=ports)

    def facts(self) -> Json:
        """Return the facts that record it."""
        ports = [one.model_dump(mode="json", exclude_defaults=True) for one in self.ports]
        return {FACT: {"networks": list(self.networks), "ports": ports} if self.networks else None}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of the driver. `left` and `entered` read the networks of the port, and compare them with `network`.

    `left` also detaches the port from networks of the blueprint that were not recorded. `read` only reads.
    """

    action: Literal["detach", "left", "attach", "entered", "read"]
    port: Port
    network: str


def calls(recorded: Attached, ports: Sequence[Port], wanted: str) -> tuple[Call, ...]:
    """Return the calls that move a host from the recorded networks to the wanted one, or to none if it is empty."""
    every = {one.name: one for one in (*recorded.ports, *ports)}
    allowed = {one.name: wanted for one in ports}
    leave = [
        Call(action="detach", port=port, network=network)
        for name, port in every.items()
        for network in recorded.networks
        if network != allowed.get(name)
    ]
    left = [Call(action="left", port=port, network=allowed.get(name, "")) for name, port in every.items()]
    if not wanted:
        return (*leave, *left)
    enter = [Call(action="attach", port=port, network=wanted) for port in ports]
    return (*leave, *left, *enter, *(Call(action="entered", port=port, network=wanted) for port in ports))


def network_told(act: Act) -> Act:
    """Wrap an act so that errors of switches, and what an operator must do, become its answer."""
    inner = told(act)

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        try:
            return inner(spec, memo)
        except NetworkError as error:
            return Failed(scope=error.scope, code=error.code, message=_sentence(spec, error))

    return answered


def _sentence(spec: Spec, error: NetworkError) -> str:
    """Return what went wrong. Owners of leases do not read names of switches; these are logged instead."""
    if spec.lease is None:
        return str(error)
    logger.warning("%s, phase %s: %s", spec.resource.key, spec.phase, error)
    return error.plain


def record(purpose: Purpose) -> Act:
    """Return the act that records the network for a purpose, before `move` attaches it. Calls nothing."""

    @network_told
    def recorded(spec: Spec, memo: Json) -> Answer:
        network, before = _network_of(spec, purpose), Attached.of(spec.resource.facts)
        ports = {one.name: one for one in (*before.ports, *_ports(spec.resource))}
        now = Attached(networks=tuple(dict.fromkeys((*before.networks, network))), ports=tuple(ports.values()))
        return Ready(facts={FACT: network} if purpose == "tenant" else {}, resource_facts=now.facts())

    return recorded


def move(purpose: Purpose) -> Act:
    """Return the act that attaches a host to the network for a purpose, once it has left all others."""

    @network_told
    def moved(spec: Spec, memo: Json) -> Answer:
        network, ports = _network_of(spec, purpose), _ports(spec.resource)
        wanted = calls(Attached.of(spec.resource.facts), ports, network)
        waits = _carried_out(spec, memo, wanted, f"The host is being moved to the network {network}.")
        now = Attached(networks=(network,), ports=ports)
        return waits or Ready(resource_facts=now.facts(), log=f"The host is in the network {network}.")

    return moved


@network_told
def leave(spec: Spec, memo: Json) -> Answer:
    """Detach a host from all networks to which it may be attached, and read that back. Calls nothing if there is none.

    A host is in no network then, so that neither its former tenant nor its next one reaches it.
    """
    before = Attached.of(spec.resource.facts)
    if not before.networks:
        return Ready()
    wanted = calls(before, (), "")
    waits = _carried_out(spec, memo, wanted, "The host is being detached from its network.")
    log = f"The host has left the network {', '.join(before.networks)}."
    return waits or Ready(resource_facts=Attached().facts(), log=log)


@network_told
def look(spec: Spec, memo: Json) -> Answer:
    """Read the ports of a host that must leave its network, because a phase failed, to see whether the switch answers.

    Nothing is called for hosts in no network, and for those of active leases.
    """
    before = Attached.of(spec.resource.facts)
    if not before.networks or spec.resource.lease_facts():
        return Ready()
    wanted = [Call(action="read", port=port, network="") for port in before.ports]
    try:
        return _carried_out(spec, memo, wanted, "The switches of the host are being asked.") or Ready()
    except NetworkUnreachable:
        raise
    except NetworkError as error:
        return Ready(log=f"The networks of the host cannot be read: {error}")


def left_behind(spec: Spec) -> Failed | None:
    """Return the failure of a step if a host is attached to a network, but its blueprint no longer switches any.

    Without the driver, the host cannot be detached. It must neither be cleaned nor leased until it is.
    """
    before = Attached.of(spec.resource.facts)
    if spec.config.switches_networks or not before.networks:
        return None
    message = (
        f"The host may still be attached to the network {', '.join(before.networks)}, but `network` was removed from "
        "the blueprint. Add it again until the host has left the network."
    )
    return Failed(scope=Scope.OPERATOR, code=NotLeft.code, message=message)


def _carried_out(spec: Spec, memo: Json, wanted: Sequence[Call], sentence: str) -> Wait | None:
    """Make the calls, as many as there is time for. Return None once all of them are made. Raises NetworkError."""
    config: Config = spec.config
    assert config.network is not None
    # After a change of the config or of the registration, the calls are others, and begin anew.
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]
    begun = memo.get("at", 0) if memo.get("of") == digest else 0
    whole, recorded = Deadline(min(spec.deadline * 0.9, _PATIENCE)), Attached.of(spec.resource.facts)
    for at in range(begun, len(wanted)):
        if at > begun and whole.remaining < config.network.timeout:
            percent = 100 * at // len(wanted)
            return Wait(after=0.0, memo={"at": at, "of": digest}, percent=percent, sentence=sentence)
        try:
            _make(config.network, _access(spec.resource, whole), wanted[at], recorded)
        except NetworkUnreachable as error:
            if wanted[at].action != "read" and _is_readable(spec.resource, wanted[at].port, whole):
                raise Unchanged(error.message, hint="The switch can be read, but not be changed.") from error
            raise
    return None


def _is_readable(resource: ResourceView, port: Port, whole: Deadline) -> bool:
    """Return whether a port can be read, after another call of its switch did not succeed in time."""
    try:
        resource.blueprint.config.network.used.check(_access(resource, whole), port)
    except NetworkError:
        return False
    return True


def _make(networks: Networks, access: Access, call: Call, recorded: Attached) -> None:
    """Make one call, and compare what is read with what it must be. Raises NetworkError."""
    driver, port, network = networks.used, call.port, call.network
    if call.action == "detach":
        driver.detach(access, port, network)
    elif call.action == "attach":
        driver.attach(access, port, network)
    else:
        there = driver.check(access, port)
        known = {*recorded.networks, *networks.names}
        if call.action == "left" and (forgotten := there & known - {network}):
            for name in sorted(forgotten):
                driver.detach(access, port, name)
            there = driver.check(access, port)
        if call.action != "read" and (wrong := sorted(there - {network})):
            raise (NotLeft if wrong[0] in known else Occupied)(port, wrong[0])
        if call.action == "entered" and not there:
            raise NotEntered(port, network)


def _network_of(spec: Spec, purpose: Purpose) -> str:
    """Return the name of the network for a purpose. Raises NeedsOperator if the blueprint has none."""
    config: Config = spec.config
    assert config.network is not None
    if purpose != "tenant":
        return str(getattr(config.network, purpose))
    asked = lease_of(spec).asked.requirements.network
    if asked is not None and asked not in config.network.tenant:
        raise NeedsOperator(
            f"The blueprint has no network {asked!r} for leases, only {', '.join(config.network.tenant)}."
        )
    return str(asked or config.network.tenant[0])


def _ports(resource: ResourceView) -> tuple[Port, ...]:
    """Return the registered ports of a host. Raises NeedsOperator if there are none."""
    found = registration_of(resource).ports
    if not found:
        raise NeedsOperator("The registration of the host names no ports of switches.", hint="Add `ports` to it.")
    return found


def _access(resource: ResourceView, whole: Deadline) -> Access:
    """Return what a call gets, with at most what is left of the time. Raises NeedsOperator without a whole login."""
    config: Config = resource.blueprint.config
    assert config.network is not None
    wanted, credential = config.network.used.Credential, {}
    if wanted is not None:
        known = resource.blueprint.credentials.get(config.network_credential, {})
        credential = {name: value for name, value in known.items() if name in wanted.model_fields}
        try:
            wanted.model_validate(credential)
        except ValidationError as error:
            name = f"credential {config.network_credential!r}" if config.network_credential else "network_credential"
            raise NeedsOperator(
                f"The login of the switches is incomplete: {said(error)}", hint=f"Set the {name}."
            ) from None
    deadline = Deadline(min(config.network.timeout, whole.remaining))
    return Access(settings=config.network.parsed, credential=credential, deadline=deadline)
