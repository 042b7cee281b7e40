"""The step before an installation for which the BMC fetches the image by SCP: its key, and the limits of that key.

Written after what NVIDIA's firmware does (https://github.com/NVIDIA/phosphor-bmc-code-mgmt, `bmc/scp-transfer` and
`bmc/download_manager.cpp`; https://github.com/NVIDIA/bmcweb, `redfish-core/lib/update_service.hpp`):

- It runs `scp -v USER@ADDRESS:PATH` of Dropbear, which speaks the old protocol of SCP, so the server runs `scp -f`.
- There is no way to say a port, and the address of the server is all that is before the first slash of the ImageURI. An
  absolute path therefore follows two slashes, as in NVIDIA's own tool (https://github.com/Mellanox/dpu-update).
- It ends the transfer if it has not read "Sending file modes:" within 10 s, which the scp of the server writes only if
  it is verbose.
- It trusts the keys that PublicKeyExchange has appended to its known_hosts. If another one of the type is there for
  the address, the transfer fails. RevokeAllRemoteServerPublicKeys removes every line that contains the address: for
  10.0.0.1 also those of 10.0.0.10. So nothing is revoked here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from blueprints.answers import Answer, Json, Ready
from blueprints.bluefield.access import bmc_told
from blueprints.dpu.bluefield import host
from blueprints.dpu.bluefield.preparing import PATH, by_scp, session
from blueprints.hostshell import NeedsOperator
from blueprints.layered.account import Controlled
from blueprints.layered.within import account_of
from blueprints.specs import Spec
from interfaces.endpoints import SshEndpoint
from interfaces.errors import Unreachable

URI, USER = "scp_uri", "scp_user"
"""Names of secrets: the address from which the BMC fetches, and the account with which it logs in."""
PORT = 22
"""The only port to which the BMC connects."""
_BEST = "ssh-ed25519 "
"""The type of host key for which Dropbear asks first."""
_KEYS = ".ssh/authorized_keys"
_PLAIN = re.compile(r"(/[A-Za-z0-9._+-]+)+")
"""A path that means the same to SCP, to a shell and in authorized_keys."""
_ACCOUNT = 'echo "$(getent passwd "$1" | cut -d: -f1)"; command -v scp || :'
# $1 gid, $2 file. The account of the lease may read the file, and pass through its folder without listing it.
_OPEN = 'chown -- ":$1" "${2%/*}" "$2" && chmod 710 -- "${2%/*}" && chmod 640 -- "$2"'


@dataclass(frozen=True, kw_only=True)
class Server:
    """The SSH server from which a BMC fetches, and the account of the lease on it."""

    address: str
    host_keys: tuple[str, ...]
    user: str


def server_of(spec: Spec) -> Server:
    """Return the server of a build. Raises NeedsOperator if a BMC cannot fetch from it, and Unreachable."""
    name, endpoint, there = host.lease_of(spec).resource.name, _endpoint_of(spec), host.account_on(spec)
    if not _PLAIN.fullmatch(host.base_of(there)):
        raise NeedsOperator(
            f"The homes of leases on host {name} are at a path with other characters than letters, digits and ._+-.",
            hint="Correct `homes` in the blueprint of the host.",
        )
    user, _, program = there.run(_ACCOUNT, there.uid).partition("\n")
    if not user:
        raise Unreachable(f"The account of the lease on host {name} is gone.")
    if not program.strip():
        raise NeedsOperator(
            f"Host {name} lacks the program scp, with which its SSH server sends the image.",
            hint="Install it (Debian: openssh-client).",
        )
    return Server(address=endpoint.host, host_keys=preferred(endpoint.host_keys), user=user)


def preferred(host_keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the host keys that the BMC is told: the best ones only, because it forgets none that it was told."""
    return tuple(one for one in host_keys if one.startswith(_BEST)) or host_keys


def _endpoint_of(spec: Spec) -> SshEndpoint:
    """Return the address and the pinned keys of the host, as they are known to the workers."""
    name = host.lease_of(spec).resource.name
    endpoint = getattr(account_of(host.control_of(spec).transport), "endpoint", None)
    if not isinstance(endpoint, SshEndpoint):
        raise NeedsOperator(
            f"Host {name} is not reached by SSH, so a BMC cannot fetch the image from it by SCP.",
            hint="Let `scp` require another host, such as by its hostname.",
        )
    if endpoint.port != PORT:
        raise NeedsOperator(
            f"The SSH server of host {name} has port {endpoint.port}, and a BMC fetches by SCP from port {PORT} only.",
            hint=f"Let the SSH server listen on port {PORT}, or let `scp` require another host.",
        )
    if endpoint.bastion is not None:
        raise NeedsOperator(
            f"Host {name} is reached through the bastion {endpoint.bastion.host}, which a BMC does not use.",
            hint="Let `scp` require a host that the BMCs and the workers reach at the same address.",
        )
    if ":" in endpoint.host:
        raise NeedsOperator(
            f"Host {name} is registered by an IPv6 address, which a BMC does not understand in a request for SCP.",
            hint="Register the host by a name or an IPv4 address, or let `scp` require another host.",
        )
    return endpoint


@bmc_told
def exchange_keys(spec: Spec, memo: Json) -> Answer:
    """Let the BMC trust the server, and its key fetch this one file. A repeated call has the same effect."""
    if not by_scp(spec):
        return Ready()
    server, there = server_of(spec), host.account_on(spec)
    path = host.path_of(there, spec.resource.secrets[PATH])
    with session(spec) as bmc:
        keys = [bmc.exchange_keys(server.address, key) for key in server.host_keys]
    there.run(_OPEN, there.gid, path)
    kept = {_KEYS: "".join(f"{allowed(path, key)}\n" for key in dict.fromkeys(keys))}
    Controlled(replace(host.control_of(spec), kept=kept), spec.deadline).admit()
    return Ready(secrets={URI: f"{server.address}/{path}", USER: server.user})


def allowed(path: str, key: str) -> str:
    """Return the line of authorized_keys with which a key can do nothing but fetch one file by SCP.

    The command is the same whatever the client asks for: another file, another command, or SFTP.
    """
    return f'restrict,command="scp -v -f -- {path}" {key}'
