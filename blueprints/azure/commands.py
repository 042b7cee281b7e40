"""Run Command: what the agent in a guest is asked to tell. Source: REST reference, "Virtual Machines - Run Command"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.azure.calls import seconds
from blueprints.azure.connection import Connection
from blueprints.cloud.values import Underway

VERSION = "2024-07-01"
TRIED_AGAIN = 5.0
_SCRIPT = ("cat /etc/ssh/ssh_host_*_key.pub",)


def host_keys(connection: Connection, key: str, command: str) -> Sequence[str] | Underway:
    """Ask for them, or (`command`, the URL of what was asked) for what has become of that."""
    if command:
        answer, headers = connection.ask("GET", command, doing=f"read the answer of {key}")
    else:
        path = (
            f"/subscriptions/{connection.subscription}/resourceGroups/{connection.group}"
            f"/providers/Microsoft.Compute/virtualMachines/{key}/runCommand"
        )
        body = {"commandId": "RunShellScript", "script": list(_SCRIPT)}
        answer, headers = connection.ask("POST", path, version=VERSION, body=body, doing=f"ask {key} for its host keys")
        command = headers.get("Location", "")
    if answer.get("value") is None and command:
        told = "The guest is asked for its host key."
        return Underway(handle={"command": command}, after=seconds(headers, TRIED_AGAIN), sentence=told)
    return _lines(answer)


def _lines(answer: Mapping[str, Any]) -> list[str]:
    """What is between [stdout] and [stderr] of its message."""
    said = "\n".join(str(one.get("message") or "") for one in answer.get("value") or ())
    return said.partition("[stdout]")[2].partition("[stderr]")[0].strip().splitlines()
