"""Which host keys and which private key a connection uses: the given ones, and nothing from this machine."""

from __future__ import annotations

import base64
import io

import paramiko

from drydock.core.errors import InvalidRequest
from interfaces.endpoints import SshEndpoint
from interfaces.errors import HostKeyMismatch
from interfaces.keys import PublicKey

_PRIVATE = (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey)


class PinnedOnly(paramiko.MissingHostKeyPolicy):
    """Refuses a host that is not pinned; there is no way to add one at connection time."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise HostKeyMismatch(f"No key is pinned for {hostname}; it shows {key.get_name()}.")


def client_for(endpoint: SshEndpoint) -> paramiko.SSHClient:
    """A client that knows the endpoint's pinned keys only."""
    client = paramiko.SSHClient()
    for line in endpoint.host_keys:
        pinned = PublicKey.parse(line)
        key = paramiko.PKey.from_type_string(pinned.kind, base64.b64decode(pinned.body))
        client.get_host_keys().add(endpoint.known_as, pinned.kind, key)
    client.set_missing_host_key_policy(PinnedOnly())
    return client


def private_key_of(text: str) -> paramiko.PKey:
    """The key in an OpenSSH private key text. Raises InvalidRequest, without the text in it."""
    for kind in _PRIVATE:
        try:
            return kind.from_private_key(io.StringIO(text))
        except (paramiko.SSHException, ValueError, IndexError, TypeError):
            continue
    raise InvalidRequest("Not a private key, or one with a passphrase.", field="private_key")
