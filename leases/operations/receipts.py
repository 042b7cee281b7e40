"""The access receipt of a lease: where it is reached by SSH, as whom, and by which host keys it is known."""

from __future__ import annotations

from dataclasses import replace

from drydock.core.errors import NotSupported
from interfaces.endpoints import SshEndpoint, endpoint_from_json
from interfaces.keys import PublicKey
from leases.client.values import AccessInfo, HostKey
from leases.given import checked
from leases.models import Lease
from leases.operations.callers import Caller, lease_of
from leases.operations.using import still_mine


@checked
def access(who: Caller, lease_id: int) -> AccessInfo:
    """How an active lease is reached now: a machine that was stopped and started may have another address. No secret
    is in it. Raises NotFound, LeaseEnded, NotSupported where it is not reached by SSH, and Conflict while the
    installation is suspended."""
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    there = _endpoint(lease)
    keys = tuple(HostKey(key=line, fingerprint=PublicKey.parse(line).fingerprint) for line in there.host_keys)
    return AccessInfo(
        lease=lease.pk, host=there.host, port=there.port, user=there.user, host_keys=keys, valid_until=lease.until,
        home=there.home or "", command=_command(there), known_hosts=known_hosts(there),
        ssh_config=ssh_config(lease.pk, there, made=not lease.public_keys), own_keys=bool(lease.public_keys),
    )  # fmt: skip


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
        f"Host drydock-{lease_id}", f"    HostName {there.host}", f"    Port {there.port}", f"    User {there.user}",
        "    StrictHostKeyChecking yes",
    ]  # fmt: skip
    if there.bastion:
        lines.append(f"    ProxyJump {_jump(there.bastion)}")
    if made:
        lines += [f"    IdentityFile ~/.ssh/drydock-{lease_id}", "    IdentitiesOnly yes"]
    return "\n".join(lines) + "\n"
