"""Account names, keys and transports used by the control side and by leases to reach a host."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from blueprints.accounts import scripts
from blueprints.accounts.config import Accounts
from blueprints.hosts import LEASE_VARIABLE
from blueprints.hostshell import HostShell, NeedsOperator
from blueprints.specs import BlueprintView, Control, LeaseView, ResourceView, Spec, UnitHost
from blueprints.units import Identity
from drydock.core.errors import InvalidRequest
from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint, endpoint_from_json
from interfaces.errors import Unreachable
from interfaces.keys import PublicKey
from interfaces.transport import Transport
from interfaces.transports import transport_to

_PLACE = ("address", "port", "user", "host_keys")


def prefix(resource: ResourceView) -> str:
    """Return the prefix of the account names of all leases on this host."""
    return f"dd{_digest(resource.key, 10)}-"


def user_of(lease: LeaseView) -> str:
    """Return the name of a lease's account, which never changes."""
    return prefix(lease.resource) + _digest(lease.key, 12)


def is_shared(lease: LeaseView) -> bool:
    """Return whether the lease uses the control account.

    A later change of the config does not affect an existing account.
    """
    if "user" in lease.facts:
        return bool(lease.facts["user"] != user_of(lease))
    return bool(lease.resource.blueprint.config.accounts == "shared")


def home_of(lease: LeaseView) -> str:
    """Return the home of a lease's account. An existing home stays at its path, even if the config changes."""
    made = lease.facts.get("home", "")
    if made and not is_shared(lease):
        return str(made)
    return home_for(lease.resource, user_of(lease))


def home_for(resource: ResourceView, user: str) -> str:
    """Return the path at which the current config places an account's home."""
    return f"{resource.blueprint.config.homes.rstrip('/')}/{user}"


def mark_of_host(resource: ResourceView) -> str:
    """Return the prefix shared by the comments of all keys that leases on this host add to a shared account."""
    return f"drydock:{prefix(resource)}"


def mark_of(lease: LeaseView) -> str:
    """Return the comment of the keys that one lease adds to a shared account."""
    return f"drydock:{user_of(lease)}"


def control(resource: ResourceView) -> SshEndpoint:
    """Return the endpoint of the control account.

    Raises NeedsOperator if a registered host lacks a required fact, and Unreachable if any other host does.
    """
    facts = resource.facts
    missing = ", ".join(name for name in _PLACE if not facts.get(name))
    if missing and resource.origin == "registered":
        raise NeedsOperator(f"The registration of the host lacks: {missing}.", hint="Register the host again.")
    if missing:
        raise Unreachable(f"The host has no {missing}.")
    return control_endpoint(
        resource, host=facts["address"], port=facts["port"], user=facts["user"], host_keys=tuple(facts["host_keys"])
    )


def control_endpoint(
    resource: ResourceView, *, host: str, port: int, user: str, host_keys: tuple[str, ...]
) -> SshEndpoint:
    """Return the endpoint of an account of a host, through the bastion if there is one."""
    config: Accounts = resource.blueprint.config
    return SshEndpoint(
        host=host,
        port=port,
        user=user,
        host_keys=host_keys,
        connect_timeout=config.connect_timeout,
        bastion=config.bastion.endpoint(connect_timeout=config.connect_timeout) if config.bastion else None,
    )


def shell(spec: Spec, *, at_most: float | None = None) -> HostShell:
    """Return a shell for the control account, with the deadline of this call. Raises NeedsOperator without a key."""
    return HostShell(control_transport(spec.resource), min(spec.deadline, at_most or spec.deadline))


def control_transport(resource: ResourceView) -> Transport:
    """Return the transport to the control account."""
    return transport_at(resource, control(resource))


def transport_at(resource: ResourceView, endpoint: SshEndpoint) -> Transport:
    """Return the transport to an account of a host that the key of its control account opens."""
    return transport_to(endpoint, private_key=control_key(resource), bastion_key=_bastion_key(resource.blueprint))


def control_key(resource: ResourceView) -> str:
    """Return the control account's private key.

    This is the host's own key or, if it has none, the key in the credential that the config names. Raises NeedsOperator
    if both are missing.
    """
    own: str = resource.secrets.get("private_key", "")
    config: Accounts = resource.blueprint.config
    if not own and not config.control_credential:
        raise NeedsOperator("The host has no key pair of its own, and its blueprint names no credential for it.")
    return own or key_of(resource.blueprint, config.control_credential)


def control_of(lease: LeaseView) -> Control | None:
    """Return the control account for a lease; None if the lease uses the control account itself or has no home yet."""
    if is_shared(lease) or "home" not in lease.facts:
        return None
    kind, body = lease.facts["public_key"].split()[:2]
    return Control(
        transport=control_transport(lease.resource),
        uid=lease.facts["uid"],
        gid=lease.facts["gid"],
        home=lease.facts["home"],
        kept={".ssh/authorized_keys": f"{kind} {body} {mark_of(lease)}\n"},
        renumber=(scripts.RENUMBER, user_of(lease)),
        numbers=(scripts.NUMBERS, user_of(lease)),
    )


def unit_host_of(lease: LeaseView) -> UnitHost | None:
    """Return the host of a lease for the unit of its workload, or None if the host cannot run units.

    Units belong to root. A shared control account that is not root may be all that its lease has.
    """
    if not may_have_unit(lease):
        return None
    found = UnitHost(transport=control_transport(lease.resource), account=user_of(lease))
    return found if is_shared(lease) else replace(found, uid=lease.facts["uid"], gid=lease.facts["gid"])


def may_have_unit(lease: LeaseView) -> bool:
    """Return whether the workload of a lease can be a unit, by what was found when the lease was activated."""
    if lease.facts.get("workloads") != "units":
        return False
    if is_shared(lease):
        return bool(lease.resource.facts.get("user") == "root")
    return Identity(uid=lease.facts["uid"], gid=lease.facts["gid"]).mappable


def may_have_units(resource: ResourceView) -> bool:
    """Return whether units may have been started on a host for any lease."""
    root = resource.blueprint.config.accounts == "per_lease" or resource.facts.get("user") == "root"
    return "systemd" in resource.facts and root


def lease_endpoint(lease: LeaseView, *, user: str, home: str) -> SshEndpoint:
    """Return an endpoint for the lease's own account.

    It has the same pinned host keys and bastion as the control account.
    """
    there = control(lease.resource)
    return SshEndpoint(
        host=there.host,
        port=there.port,
        user=user,
        host_keys=there.host_keys,
        connect_timeout=there.connect_timeout,
        home=home,
        environment=((LEASE_VARIABLE, lease.key),),
        bastion=there.bastion,
    )


def transport_of(lease: LeaseView) -> Transport:
    """Return a transport to the lease's own account, using its own key and the host's current address.

    The address may change when the host is stopped and started. Raises Unreachable if the lease is not activated.
    """
    if "endpoint" not in lease.facts or "private_key" not in lease.secrets:
        raise Unreachable("The lease has no account on its host.")
    known = endpoint_from_json(lease.facts["endpoint"])
    address = lease.resource.facts.get("address")
    return transport_to(
        replace(known, host=address) if isinstance(known, SshEndpoint) and address else known,
        private_key=lease.secrets["private_key"],
        bastion_key=_bastion_key(lease.resource.blueprint),
    )


def connect_line(endpoint: SshEndpoint) -> str:
    """Return the ssh command line with which a person can log in."""
    jump = f"-J {endpoint.bastion.user}@{endpoint.bastion.host}:{endpoint.bastion.port} " if endpoint.bastion else ""
    return f"ssh {jump}-p {endpoint.port} {endpoint.user}@{endpoint.host}"


def owner_keys(lease: LeaseView) -> tuple[list[str], int]:
    """Return the owner's public keys without options and comments, and the number of keys that could not be parsed."""
    found = []
    for line in lease.public_keys:
        try:
            found.append(PublicKey.parse(line).line)
        except InvalidRequest:
            continue
    return found, len(lease.public_keys) - len(found)


def key_of(blueprint: BlueprintView, credential: str) -> str:
    """Return the private key in the credential of this name. Raises NeedsOperator if the key is missing."""
    secrets = blueprint.credentials.get(credential)
    if secrets is None:
        raise NeedsOperator(
            f"Credential {credential!r} does not exist.",
            hint="Add the credential, or name another one in the blueprint.",
        )
    if not secrets.get("private_key"):
        raise NeedsOperator(
            f"The credential {credential!r} has no private_key.", hint="Store the OpenSSH key as private_key."
        )
    return secrets["private_key"]


SCAN = 8.0
"""Seconds allowed for a host to present its keys."""


def scan(blueprint: BlueprintView, address: str, port: int) -> list[str]:
    """Return the host keys presented at an address. Raises InterfaceError or NeedsOperator."""
    # Not at the top: paramiko takes a third of a second to import.
    from interfaces.ssh.scan import shown_keys

    config: Accounts = blueprint.config
    within = min(config.connect_timeout, SCAN)
    way = config.bastion.endpoint(connect_timeout=within) if config.bastion else None
    found = shown_keys(address, port, Deadline(SCAN), bastion=way, bastion_key=_bastion_key(blueprint))
    return [key.line for key in found]


def _bastion_key(blueprint: BlueprintView) -> str:
    config: Accounts = blueprint.config
    if config.bastion is None:
        return ""
    return key_of(blueprint, config.bastion_credential or config.control_credential)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]
