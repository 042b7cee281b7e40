"""The web server of a lease."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from drydock.core.errors import InvalidRequest
from interfaces.filesystem.contract import Transfer
from interfaces.httpd.contract import Httpd, HttpdStatus
from leases.client.values import LogPart, ServerInfo
from leases.engine.core.transitions import record_event
from leases.given import checked, printable
from leases.operations.callers import Caller
from leases.operations.using import interface


def _test(server: Httpd) -> HttpdStatus:
    server.test_config()
    return server.status()


ACTS: dict[str, Callable[[Httpd], HttpdStatus]] = {
    "status": lambda server: server.status(), "start": lambda server: server.start(),
    "stop": lambda server: server.stop(), "restart": lambda server: server.restart(),
    "reload": lambda server: server.reload(), "test": _test,
}  # fmt: skip
LOOKS = ("status", "test")


def httpd(who: Caller, lease_id: int) -> Httpd:
    """The httpd interface of a lease. Raises as `interface`."""
    return cast(Httpd, interface(who, lease_id, "httpd"))


@checked
def act(who: Caller, lease_id: int, name: str) -> ServerInfo:
    """Do one of ACTS; how it stands then. Recorded. Raises what that method of `Httpd` raises."""
    if name not in ACTS:
        raise InvalidRequest(f"{name!r} cannot be done to a web server.", field="act", hint=f"{', '.join(ACTS)} can.")
    server = httpd(who, lease_id)
    if name not in LOOKS:
        record_event("lease.httpd", f"Web server: {name}.", actor=who.actor, lease_id=lease_id)
    status = ACTS[name](server)
    return ServerInfo(state=status.state.value, pid=status.pid, detail=status.detail, uri=server.uri())


@checked
def publish(who: Caller, lease_id: int, path: str, content: bytes) -> str:
    """Put a page in place in one step; its address. Recorded. Raises what `Httpd.publish` raises."""
    address = httpd(who, lease_id).publish(path, content)
    record_event("lease.httpd", f"Published {printable(path)}.", actor=who.actor, lease_id=lease_id)
    return address


@checked
def publish_tree(who: Caller, lease_id: int, local: Path, path: str = "") -> Transfer:
    """Put a folder of this machine in place. Recorded. Raises what `Httpd.publish_tree` raises."""
    server = httpd(who, lease_id)
    record_event("lease.httpd", f"Published a folder to {printable(path) or '/'}.", actor=who.actor, lease_id=lease_id)
    return server.publish_tree(local, path)


@checked
def unpublish(who: Caller, lease_id: int, path: str) -> None:
    """Take a page or folder away. Recorded. Raises what `Httpd.unpublish` raises."""
    httpd(who, lease_id).unpublish(path)
    record_event("lease.httpd", f"Unpublished {printable(path)}.", actor=who.actor, lease_id=lease_id)


@checked
def uri(who: Caller, lease_id: int, path: str = "") -> str:
    """The address of a page."""
    return httpd(who, lease_id).uri(path)


@checked
def log(who: Caller, lease_id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> LogPart:
    """A part of the `access` or `error` log. Raises InvalidRequest for another."""
    if kind not in ("access", "error"):
        raise InvalidRequest(f"There is no log {kind!r}.", field="kind", hint="There are: access, error.")
    if offset < 0 or not 1 <= limit <= 16 << 20:
        raise InvalidRequest("An offset is 0 or more, a limit 1 byte to 16 MiB.", field="offset")
    part = httpd(who, lease_id).logs("access" if kind == "access" else "error", offset, limit)
    return LogPart(content=part.content, next_offset=part.next_offset)
