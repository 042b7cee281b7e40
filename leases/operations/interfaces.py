"""Operations on the hosts of leases: commands, files, the web server, and SSH access."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from drydock.core.errors import Busy, Conflict, InvalidRequest, NotSupported
from drydock.core.units import duration
from drydock_client.values import AccessInfo, Bastion, Ended, FileInfo, HostKey, LogPart, ServerInfo
from interfaces.command.contract import Command, Output, Words, argv_of
from interfaces.contract import Interface
from interfaces.deadline import Cancel
from interfaces.endpoints import LocalEndpoint, SshEndpoint, endpoint_from_json
from interfaces.errors import LeaseEnded
from interfaces.filesystem.contract import Filesystem, Progress, Transfer
from interfaces.httpd.contract import Httpd, HttpdStatus
from interfaces.keys import PublicKey
from interfaces.launch import exports
from leases.engine.core import specs
from leases.engine.core.database import patient, refuse_inside_transaction, rows
from leases.engine.core.installation import current
from leases.engine.core.transitions import record_event
from leases.models import Lease
from leases.operations.callers import Caller, lease_of
from leases.validation.input_checks import checked, printable

LONGEST = 86_400.0
"""Default timeout in seconds for transferring or removing a file or tree."""


@checked
def interface(who: Caller, lease_id: int, name: str) -> Interface:
    """Return the interface `name` of an active lease. Every call of the interface first checks the lease again.

    Raises NotFound, LeaseEnded, NotSupported if the kind does not provide the interface, and InsideTransaction.
    """
    check = _check(who, lease_id)
    check()
    lease = patient(lease_of, who, lease_id, related=True)
    return specs.opened(specs.lease_view(lease, still_mine=check), name, check)


def _check(who: Caller, lease_id: int) -> Callable[[], None]:
    lease = patient(lease_of, who, lease_id)
    return partial(patient, still_mine, lease_id, lease.owner_id)


_STANDS = """
    SELECT state, release_wanted <> '', coalesce(until <= clock_timestamp(), FALSE), owner_id IS NOT DISTINCT FROM %s,
        held AND active_at IS NOT NULL AND coalesce(hold_until > clock_timestamp(), TRUE)
            AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id),
        EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id AND n.phase = 'hand_over')
    FROM leases_lease l WHERE id = %s"""

_CONFIRM = "An operator can check `drydock installation`, and confirm it if this is the right database."


def still_mine(lease_id: int, owner_id: int | None) -> None:
    """Raise LeaseEnded unless this owner has the lease and may use it now.

    The lease must be active and not expired, or held for debugging. Raises InsideTransaction, Busy while the lease
    is being transferred to this owner, and Conflict while the installation is suspended: this database may be a
    copy, and the original may have leased the host to somebody else.
    """
    refuse_inside_transaction("An interface")
    if problem := current().problem:
        raise Conflict(f"Leased hosts cannot be used while the installation is suspended. {problem}", hint=_CONFIRM)
    found = rows(_STANDS, (owner_id, lease_id))
    if not found or not found[0][3]:
        raise LeaseEnded(f"Lease {lease_id} is not yours or was transferred.")
    state, wanted, over, _, held, handed_over = found[0]
    if held and state in ("active", "released"):
        return
    if state in ("pending", "acquired"):
        raise LeaseEnded(f"Lease {lease_id} is {state} and not active yet.", hint="Wait until it is active.")
    if state != "active" or wanted or over:
        raise LeaseEnded(f"Lease {lease_id} has ended.")
    if handed_over:
        raise Busy(f"Lease {lease_id} is being transferred, and its former owner may still have access.")


def command(who: Caller, lease_id: int) -> Command:
    """Return the command interface of a lease.

    Raises what `interface` raises, and NotSupported if the lease cannot run commands.
    """
    found = interface(who, lease_id, "command")
    if not isinstance(found, Command):
        raise NotSupported("Leases of this kind cannot run commands.")
    return found


def filesystem(who: Caller, lease_id: int) -> Filesystem:
    """Return the filesystem interface of a lease. Raises what `interface` raises."""
    return cast(Filesystem, interface(who, lease_id, "filesystem"))


@checked
def run_command(
    who: Caller, lease_id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "",
    stdin: bytes = b"", timeout: float | None = None, on_output: Callable[[Output], None] | None = None,
    cancel: Cancel | None = None,
) -> Ended:  # fmt: skip
    """Run a command on the leased host until it ends. Pass its output to `on_output` as it arrives.

    Records an event with the name of the program, without the arguments, which may be secret. Raises what
    `Command.run` raises.
    """
    exports(list((env or {}).items()))
    if timeout is not None:
        duration(timeout, field="timeout")
    argv = argv_of(words)
    program = "a shell line" if isinstance(words, str) else argv[0]
    shell = command(who, lease_id)
    patient(record_event, "lease.command", f"Ran {printable(program, 100)}.", actor=who.actor, lease_id=lease_id)
    kept = 0 if on_output is not None else 1 << 20
    done = shell.run(
        words, env=env, cwd=cwd, stdin=stdin, timeout=timeout, on_output=on_output, max_output=kept, cancel=cancel
    )
    return Ended(
        exit_code=done.exit_code, signal=done.signal, duration=done.duration, stdout=done.text,
        stderr=done.error_text, truncated=done.truncated and on_output is None,
    )  # fmt: skip


@checked
def read_file(who: Caller, lease_id: int, path: str) -> bytes:
    """Return the content of a file, up to 64 MiB. Raises what `Filesystem.read_bytes` raises."""
    return filesystem(who, lease_id).read_bytes(path)


@checked
def write_file(who: Caller, lease_id: int, path: str, content: bytes, *, permissions: int = 0o644) -> None:
    """Write a file atomically, and record an event. Raises what `Filesystem.write_bytes` raises."""
    filesystem(who, lease_id).write_bytes(path, content, permissions=permissions)
    record_event("lease.file", f"Wrote {printable(path)}.", actor=who.actor, lease_id=lease_id)


@checked
def write_parts(who: Caller, lease_id: int, path: str, parts: Iterable[bytes], *, timeout: float = LONGEST) -> None:
    """Write a file of any size atomically from its parts, and record an event.

    Raises what `Filesystem.write_parts` raises.
    """
    filesystem(who, lease_id).write_parts(path, parts, timeout=timeout)
    record_event("lease.file", f"Wrote {printable(path)}.", actor=who.actor, lease_id=lease_id)


@checked
def list_files(who: Caller, lease_id: int, path: str = "") -> list[FileInfo]:
    """Return the entries of a folder, sorted by name. Raises what `Filesystem.list` raises."""
    return [
        FileInfo(
            name=entry.name, kind=entry.kind, size=entry.size, permissions=entry.permissions,
            modified_at=dt.datetime.fromtimestamp(entry.modified, dt.UTC),
        )
        for entry in filesystem(who, lease_id).list(path)
    ]  # fmt: skip


@checked
def upload(
    who: Caller, lease_id: int, local: Path, path: str, progress: Callable[[Progress], None] | None = None, *,
    timeout: float = LONGEST,
) -> Transfer:  # fmt: skip
    """Copy a local file or tree to the lease, and record an event. Raises what `Filesystem.upload` raises."""
    files = filesystem(who, lease_id)
    record_event("lease.file", f"Uploaded to {printable(path) or '.'}.", actor=who.actor, lease_id=lease_id)
    return files.upload(local, path, progress=progress, timeout=timeout)


@checked
def download(
    who: Caller, lease_id: int, path: str, local: Path, progress: Callable[[Progress], None] | None = None, *,
    limit: int | None = None, timeout: float = LONGEST,
) -> Transfer:  # fmt: skip
    """Copy a file or tree from the lease to this machine. Raises what `Filesystem.download` raises."""
    return filesystem(who, lease_id).download(path, local, progress=progress, limit=limit, timeout=timeout)


def _test(server: Httpd) -> HttpdStatus:
    server.test_config()
    return server.status()


SERVER_ACTS: dict[str, Callable[[Httpd], HttpdStatus]] = {
    "status": lambda server: server.status(), "start": lambda server: server.start(),
    "stop": lambda server: server.stop(), "restart": lambda server: server.restart(),
    "reload": lambda server: server.reload(), "test": _test,
}  # fmt: skip

SERVER_READS = ("status", "test")


def httpd(who: Caller, lease_id: int) -> Httpd:
    """Return the httpd interface of a lease. Raises what `interface` raises."""
    return cast(Httpd, interface(who, lease_id, "httpd"))


@checked
def server_act(who: Caller, lease_id: int, name: str) -> ServerInfo:
    """Perform one of `SERVER_ACTS` on the web server, and return its status afterwards.

    Records an event if the act changes anything. Raises InvalidRequest for an unknown act, and what the method of
    `Httpd` raises.
    """
    if name not in SERVER_ACTS:
        raise InvalidRequest(
            f"{name!r} is not an action on a web server.", field="act", hint=f"Choose one of: {', '.join(SERVER_ACTS)}."
        )
    server = httpd(who, lease_id)
    if name not in SERVER_READS:
        record_event("lease.httpd", f"Web server: {name}.", actor=who.actor, lease_id=lease_id)
    status = SERVER_ACTS[name](server)
    return ServerInfo(state=status.state.value, pid=status.pid, detail=status.detail, uri=server.uri())


@checked
def publish(who: Caller, lease_id: int, path: str, content: bytes) -> str:
    """Publish a page atomically, record an event, and return the page's URL. Raises what `Httpd.publish` raises."""
    address = httpd(who, lease_id).publish(path, content)
    record_event("lease.httpd", f"Published {printable(path)}.", actor=who.actor, lease_id=lease_id)
    return address


@checked
def publish_tree(who: Caller, lease_id: int, local: Path, path: str = "") -> Transfer:
    """Publish a local folder, and record an event. Raises what `Httpd.publish_tree` raises."""
    server = httpd(who, lease_id)
    record_event("lease.httpd", f"Published a folder to {printable(path) or '/'}.", actor=who.actor, lease_id=lease_id)
    return server.publish_tree(local, path)


@checked
def unpublish(who: Caller, lease_id: int, path: str) -> None:
    """Remove a page or folder from the web server, and record an event. Raises what `Httpd.unpublish` raises."""
    httpd(who, lease_id).unpublish(path)
    record_event("lease.httpd", f"Unpublished {printable(path)}.", actor=who.actor, lease_id=lease_id)


@checked
def uri(who: Caller, lease_id: int, path: str = "") -> str:
    """Return the URL of a page, or of the web server if `path` is empty. Raises what `interface` raises."""
    return httpd(who, lease_id).uri(path)


@checked
def server_log(who: Caller, lease_id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> LogPart:
    """Return a part of the web server's `access` or `error` log. Raises InvalidRequest for any other log."""
    if kind not in ("access", "error"):
        raise InvalidRequest(f"Log {kind!r} does not exist.", field="kind", hint="Choose one of: access, error.")
    if offset < 0 or not 1 <= limit <= 16 << 20:
        raise InvalidRequest("offset must be at least 0 and limit from 1 byte to 16 MiB.", field="offset")
    part = httpd(who, lease_id).logs("access" if kind == "access" else "error", offset, limit)
    return LogPart(content=part.content, next_offset=part.next_offset)


@checked
def access(who: Caller, lease_id: int) -> AccessInfo:
    """Return the address, user and host keys for reaching an active lease by SSH. Contains no secrets.

    A machine that was restarted may have another address. Raises NotFound, LeaseEnded, NotSupported if the lease cannot
    be reached by SSH, and Conflict while the installation is suspended.
    """
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    there = _endpoint(lease)
    return AccessInfo(
        lease=lease.pk, host=there.host, port=there.port, user=there.user, host_keys=_keys(there), valid_until=lease.until,
        home=there.home or "", command=_command(there), known_hosts=known_hosts(there),
        ssh_config=ssh_config(lease.pk, there, made=not lease.public_keys), own_keys=bool(lease.public_keys),
        bastion=_bastion(there.bastion),
    )  # fmt: skip


@checked
def local_account(who: Caller, lease_id: int) -> LocalEndpoint | None:
    """Return the account of an active lease on this machine, for opening a terminal, or None if the lease has none.

    Records an event, as `run_command` does. Raises NotFound, LeaseEnded, Unreachable if the account is on another
    machine, and Conflict while the installation is suspended.
    """
    lease = lease_of(who, lease_id, related=True)
    still_mine(lease_id, lease.owner_id)
    said = (lease.facts or {}).get("endpoint")
    found = endpoint_from_json(said) if said else None
    if not isinstance(found, LocalEndpoint):
        return None
    # This fails on another machine, and recreates the account's control group if a restart has removed it.
    command(who, lease_id).check(["true"])
    record_event("lease.command", "Ran a shell with a terminal.", actor=who.actor, lease_id=lease_id)
    return found


def _keys(there: SshEndpoint) -> tuple[HostKey, ...]:
    return tuple(HostKey(key=line, fingerprint=PublicKey.parse(line).fingerprint) for line in there.host_keys)


def _bastion(there: SshEndpoint | None) -> Bastion | None:
    if there is None:
        return None
    return Bastion(host=there.host, port=there.port, user=there.user, host_keys=_keys(there))


def _endpoint(lease: Lease) -> SshEndpoint:
    assert lease.resource is not None
    said = (lease.facts or {}).get("endpoint")
    found = endpoint_from_json(said) if said else None
    if not isinstance(found, SshEndpoint):
        raise NotSupported(
            f"A lease of kind {lease.resource.blueprint.kind} cannot be reached by SSH.",
            hint="Use the interfaces of the lease: drydock run, drydock cp.", capability="access",
        )  # fmt: skip
    return replace(found, host=lease.resource.facts.get("address") or found.host)


def _command(there: SshEndpoint) -> str:
    jump = f"-J {_jump(there.bastion)} " if there.bastion else ""
    return f"ssh {jump}-p {there.port} {there.user}@{there.host}"


def _jump(bastion: SshEndpoint) -> str:
    host = f"[{bastion.host}]" if ":" in bastion.host else bastion.host
    return f"{bastion.user}@{host}:{bastion.port}"


def known_hosts(there: SshEndpoint) -> str:
    """Return the lines for ~/.ssh/known_hosts with the keys of the host, and of its bastion if it has one."""
    hosts = [there, *([there.bastion] if there.bastion else [])]
    return "".join(f"{one.known_as} {key}\n" for one in hosts for key in map(_plain, one.host_keys))


def _plain(line: str) -> str:
    return PublicKey.parse(line).line


def ssh_config(lease_id: int, there: SshEndpoint, *, made: bool) -> str:
    """Return the lease's entry for ~/.ssh/config.

    If `made` is true, the key pair was generated for the lease, and the entry names a file for the private key.
    """
    lines = [
        f"Host drydock-{lease_id}", f"    HostName {there.host.replace('%', '%%')}", f"    Port {there.port}", f"    User {there.user}",
        "    StrictHostKeyChecking yes",
    ]  # fmt: skip
    if there.bastion:
        lines.append(f"    ProxyJump {_jump(there.bastion)}")
    if made:
        lines += [f"    IdentityFile ~/.ssh/drydock-{lease_id}", "    IdentitiesOnly yes"]
    return "\n".join(lines) + "\n"
