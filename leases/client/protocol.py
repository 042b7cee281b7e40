"""What a shell, or any program outside the engine, asks of it: here or over HTTP, the same."""

from __future__ import annotations

from drydock_client.protocol import Attendance, Client, Leases, Operating, Request, Serving, Stream, Words, Work

__all__ = ["Attendance", "Client", "Leases", "Operating", "Request", "Serving", "Stream", "Words", "Work"]
