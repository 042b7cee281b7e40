"""What a shell, or any program outside the engine, asks of it: here or over HTTP, the same."""

from __future__ import annotations

from drydock_client.protocol import (
    Attendance,
    Catalogue,
    Client,
    Costs,
    Fleet,
    Leases,
    Operating,
    Request,
    Serving,
    Stream,
    Wanted,
    Words,
    Work,
)

__all__ = [
    "Attendance",
    "Catalogue",
    "Client",
    "Costs",
    "Fleet",
    "Leases",
    "Operating",
    "Request",
    "Serving",
    "Stream",
    "Wanted",
    "Words",
    "Work",
]
