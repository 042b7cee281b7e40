"""From where a machine is looked at: this computer, by TCP and by SSH with the key that is pinned."""

from __future__ import annotations

import socket

from blueprints.hostshell import HostShell
from interfaces.endpoints import SshEndpoint
from interfaces.transports import transport_to

_CALL = 60.0


class Outside:
    """This computer. On a double whose machines share it, a subclass says what a machine of its own would."""

    def connects(self, address: str, port: int) -> bool:
        """Whether somebody answers there within three seconds."""
        try:
            with socket.create_connection((address, port), timeout=3.0):
                return True
        except OSError:
            return False

    def run(self, endpoint: SshEndpoint, private_key: str, script: str, *arguments: str) -> str:
        """What a script prints there. Raises InterfaceError."""
        return HostShell(transport_to(endpoint, private_key=private_key), _CALL).run(script, *arguments)
