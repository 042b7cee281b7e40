"""Deprecated. The client protocol and its values are in `drydock_client`, which does not need Django."""

from __future__ import annotations

from drydock.core.deprecation import moved

_HOMES = {
    "Client": "drydock_client.protocol",
    "LeaseFailed": "drydock_client.errors",
    "NoWorker": "drydock_client.errors",
    "*": "drydock_client.values",
}
__getattr__ = moved(__name__, _HOMES)
