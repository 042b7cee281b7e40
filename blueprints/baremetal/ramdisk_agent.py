"""Calls of `drydock-agent` in the ramdisk over SSH, and the jobs that it carries out there.

The agent reads and prints JSON. Its jobs outlive the connection and are found again by their id, so that a step only
looks at them from time to time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from blueprints.accounts.access import control_endpoint, transport_at
from blueprints.answers import Answer, Failed, Json, Scope, Wait
from blueprints.baremetal.registration import registration_of
from blueprints.baremetal.sessions import since
from blueprints.hostshell import HostShell, NeedsOperator
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from drydock.core.errors import DrydockError
from interfaces.errors import CommandFailed, ConnectionLost, DeadlineExceeded, Unreachable

FACT = "ramdisk"
"""Name of the fact, and of the secret, about the present boot of the ramdisk."""
USER = "root"
_CALL = 'exec drydock-agent "$@"'
_LOOK = 1.5  # as in `power`: less than the interval of the sweep
_PATIENCE = 600.0
"""Seconds for which the ramdisk may be out of reach while a job is at work."""
_AWAY = (Unreachable, ConnectionLost, DeadlineExceeded)


class AgentRefused(DrydockError):
    """The agent in the ramdisk refused a call. The code and the message are those of the agent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def address(resource: ResourceView) -> str:
    """Return the address of the host while it runs the ramdisk."""
    network = registration_of(resource).ramdisk_network
    return network.ip if network is not None else str(resource.facts["address"])


def shell(resource: ResourceView, seconds: float) -> HostShell:
    """Return a shell in the ramdisk, whose host key was made for this boot. Raises NeedsOperator before the boot."""
    booted = resource.facts.get(FACT)
    if not booted:
        raise NeedsOperator("The host does not run the ramdisk.")
    place = {
        "host": address(resource), "port": resource.blueprint.config.ramdisk.port, "user": USER,
        "host_keys": (booted["host_key"],),
    }  # fmt: skip
    return HostShell(transport_at(resource, control_endpoint(resource, **place)), seconds)


def call(resource: ResourceView, *words: str, request: Json | None = None, seconds: float = 25.0) -> Json:
    """Call the agent, and return its answer. Raises AgentRefused and InterfaceError."""
    given = "" if request is None else json.dumps(request)
    try:
        return _read(shell(resource, seconds).run(_CALL, *words, stdin=given))
    except CommandFailed as error:
        text = error.result.text
        found = _error(text)
        raise AgentRefused(*(found or ("ramdisk_agent", f"drydock-agent failed: {error.message}"[:1000]))) from None


def _read(text: str) -> Json:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise AgentRefused("ramdisk_agent", "drydock-agent in the ramdisk printed something that is not JSON.")
    return found


def _error(text: str) -> tuple[str, str] | None:
    try:
        found = json.loads(text)["error"]
        return str(found["code"])[:100], str(found["message"])[:2000]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def follow(spec: Spec, memo: Json, job: str, start: Callable[[], Any], sentence: str) -> Answer | Json:
    """Start a job, or find the one that was started before. Return its result, or the answer of a step meanwhile.

    `start` is called only if the ramdisk does not know the job. Raises AgentRefused and InterfaceError.
    """
    away = memo.get("away_since")
    try:
        state = call(spec.resource, "jobs", "show", job)
        if state.get("state") == "unknown":
            if memo.get("started"):
                message = "The host was restarted while the ramdisk was at work on its disks."
                return Failed(scope=Scope.OPERATOR, code="ramdisk_restarted", message=message)
            start()
            return Wait(after=1.0, memo={"started": True}, percent=0, sentence=sentence)
    except _AWAY as error:
        if away is not None and since(away) >= _PATIENCE:
            message = f"The ramdisk is out of reach: {error.message}"
            return Failed(scope=Scope.OPERATOR, code="ramdisk_silent", message=message)
        known = {**memo, "away_since": away or clock.now().isoformat()}
        return Wait(after=_LOOK, memo=known, sentence=f"The ramdisk does not answer: {error.message}"[:500])
    return _outcome(state, sentence)


def _outcome(state: Json, sentence: str) -> Answer | Json:
    if state.get("state") == "done" and isinstance(state.get("result"), dict):
        found: Json = state["result"]
        return found
    if state.get("state") == "running":
        said = str(state.get("sentence") or sentence)[:500]
        percent = state.get("percent")
        known = percent if isinstance(percent, int) and 0 <= percent <= 100 else None
        return Wait(after=_LOOK, memo={"started": True}, percent=known, sentence=said)
    told = state.get("error")
    error: Json = told if isinstance(told, dict) else {}
    code, message = str(error.get("code") or "ramdisk_job")[:100], str(error.get("message") or "It gave no reason.")
    return Failed(scope=Scope.OPERATOR, code=code, message=message[:2000])
