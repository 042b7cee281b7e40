"""The access receipt of a lease: where it is reached by SSH, as whom, and by which host keys it is known."""

from __future__ import annotations

from dataclasses import replace

from drydock.core.errors import NotSupported
from interfaces.endpoints import LocalEndpoint, SshEndpoint, endpoint_from_json
from interfaces.keys import PublicKey
from leases.client.values import AccessInfo, Bastion, HostKey
from leases.engine.core.transitions import record_event
from leases.given import checked
from leases.models import Lease
from leases.operations.callers import Caller, lease_of
from leases.operations.using import command, still_mine


@checked
def access(who: Caller, lease_id: int) -> AccessInfo:
    """How an active lease is reached now: a machine that was stopped and started may have another address. No secret
    is in it. Raises NotFound, LeaseEnded, NotSupported where it is not reached by SSH, and Conflict while the
    installation is suspended."""
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    there = _endpoint(lease)
    return AccessInfo(
        lease=lease.pk, host=there.host, port=there.port, user=there.user, host_keys=_keys(there), valid_until=lease.until,
        home=there.home or "", command=_command(there), known_hosts=known_hosts(there),
        ssh_config=ssh_config(lease.pk, there, made=not lease.public_keys), own_keys=bool(lease.public_keys),
        bastion=_bastion(there.bastion),
    )  # fmt: skip


@checked
def local_account(who: Caller, lease_id: int) -> LocalEndpoint | None:
    """The account of an active lease on this machine, for a shell with a terminal; None for a lease elsewhere.

    Recorded as a command is. Raises NotFound, LeaseEnded, Unreachable on another machine than the lease's, and Conflict
    while the installation is suspended.
    """
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    said = (lease.facts or {}).get("endpoint")
    found = endpoint_from_json(said) if said else None
    if not isinstance(found, LocalEndpoint):
        return None
    # Refused on another machine; and where a restart has removed the account's control group, this makes it again.
    command(who, lease_id).check(["true"])
    record_event("lease.command", "Ran a shell with a terminal.", actor=who.actor, lease_id=lease_id)
    return found


def _keys(there: SshEndpoint) -> tuple[HostKey, ...]:
    return tuple(HostKey(key=line, fingerprint=PublicKey.parse(line).fingerprint) for line in there.host_keys)


def _bastion(there: SshEndpoint | None) -> Bastion | None:
    if there is None:
        return None
    return Bastion(host=there.host, port=there.port, user=there.user, host_keys=_keys(there))


def _endpoint(lease: Lease) -> SshEndpoint:
    assert lease.resource is not None
    said = (lease.facts or {}).get("endpoint")
    found = endpoint_from_json(said) if said else None
    if not isinstance(found, SshEndpoint):
        raise NotSupported(
            f"A lease on {lease.resource.blueprint.kind} is not reached by SSH.",
            hint="Use its interfaces: drydock run, drydock cp.", capability="access",
        )  # fmt: skip
    return replace(found, host=lease.resource.facts.get("address") or found.host)


def _command(there: SshEndpoint) -> str:
    jump = f"-J {_jump(there.bastion)} " if there.bastion else ""
    return f"ssh {jump}-p {there.port} {there.user}@{there.host}"


def _jump(bastion: SshEndpoint) -> str:
    host = f"[{bastion.host}]" if ":" in bastion.host else bastion.host
    return f"{bastion.user}@{host}:{bastion.port}"


def known_hosts(there: SshEndpoint) -> str:
    """Lines for ~/.ssh/known_hosts, of the bastion too."""
    hosts = [there, *([there.bastion] if there.bastion else [])]
    return "".join(f"{one.known_as} {key}\n" for one in hosts for key in map(_plain, one.host_keys))


def _plain(line: str) -> str:
    return PublicKey.parse(line).line


def ssh_config(lease_id: int, there: SshEndpoint, *, made: bool) -> str:
    """An entry for ~/.ssh/config. `made`: the key pair was made for the lease, and its private half is to be kept in
    the file that is named."""
    lines = [
        f"Host drydock-{lease_id}", f"    HostName {there.host.replace('%', '%%')}", f"    Port {there.port}", f"    User {there.user}",
        "    StrictHostKeyChecking yes",
    ]  # fmt: skip
    if there.bastion:
        lines.append(f"    ProxyJump {_jump(there.bastion)}")
    if made:
        lines += [f"    IdentityFile ~/.ssh/drydock-{lease_id}", "    IdentitiesOnly yes"]
    return "\n".join(lines) + "\n"
