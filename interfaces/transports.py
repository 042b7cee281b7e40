"""Select the transport for an endpoint."""

from __future__ import annotations

from drydock.core.errors import InvalidRequest
from interfaces.endpoints import Endpoint, LocalEndpoint
from interfaces.local.transport import LocalTransport
from interfaces.transport import Transport


def transport_to(endpoint: Endpoint, *, private_key: str = "", bastion_key: str = "") -> Transport:
    """Return the transport to an endpoint. Does not connect yet.

    `private_key` is OpenSSH text, required for SSH. `bastion_key` is the key for the bastions, by default the same key.
    Raises InvalidRequest if the account or a key cannot be used.
    """
    if isinstance(endpoint, LocalEndpoint):
        return LocalTransport(endpoint)
    # Not at the top: paramiko takes a third of a second to import, which a local lease need not pay.
    from interfaces.ssh.transport import SshTransport

    if not private_key:
        raise InvalidRequest("SSH requires the private key of the lease.", field="private_key")
    return SshTransport(endpoint, private_key=private_key, bastion_key=bastion_key or private_key)
