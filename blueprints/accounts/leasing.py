"""Step actions for one lease on a host: create and remove its key pair and its account or folder."""

from __future__ import annotations

from blueprints import units
from blueprints.accounts import removal, scripts
from blueprints.accounts.access import (
    connect_line,
    home_of,
    is_shared,
    lease_endpoint,
    mark_of,
    may_have_unit,
    owner_keys,
    shell,
    transport_of,
    user_of,
)
from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.contract import Act
from blueprints.hosts import endpoint_facts, lease_of
from blueprints.hostshell import remove_or_put_aside, told, until_done
from blueprints.specs import LeaseView, Spec
from drydock.core.errors import InvalidRequest
from interfaces.command.shell import ShellCommand
from interfaces.deadline import Deadline
from interfaces.errors import AuthenticationRefused
from interfaces.keys import new_key_pair


def make_key(spec: Spec, memo: Json) -> Answer:
    """Make a key pair for this lease.

    The key pair is stored before the host receives the public key. If an answer is lost, only a key pair is wasted.
    """
    if "private_key" in lease_of(spec).secrets:
        return Ready()
    pair = new_key_pair(mark_of(lease_of(spec)))
    return Ready(facts={"public_key": pair.public}, secrets={"private_key": pair.private})


@told
def make_account(spec: Spec, memo: Json) -> Answer:
    """Make an account for the lease, with no way to log in yet."""
    lease = lease_of(spec)
    if is_shared(lease_of(spec)):
        return Ready()
    user, home = user_of(lease), home_of(lease)
    said = shell(spec).as_root(scripts.MAKE_ACCOUNT, user, home, "Drydock lease")
    uid, gid = map(int, said.split())
    return Ready(facts={"uid": uid, "gid": gid, "home": home, "user": user}, log=f"account {user}")


@until_done("Drydock is removing files that could let the former owner in.")
def end_other_ways(spec: Spec) -> bool:
    """Remove the account's files that could let its former owner in, from ~/.ssh, shared folders and other homes."""
    lease, there = lease_of(spec), shell(spec)
    if is_shared(lease):
        return True
    searched = not there.as_root(scripts.TAKE_FROM_FORMER, user_of(lease), home_of(lease)).strip()
    return there.sweep_account(user_of(lease)) and searched


@told
def drop_setuid(spec: Spec, memo: Json) -> Answer:
    """Clear the setuid and setgid bits in the home, so that no remaining file runs as the account for another user."""
    lease = lease_of(spec)
    if not is_shared(lease):
        shell(spec).as_root(scripts.DROP_SETUID, user_of(lease))
    return Ready()


@told
def open_access(spec: Spec, memo: Json) -> Answer:
    """Authorize the lease's key and the owner's own keys."""
    lease = lease_of(spec)
    own, unread = owner_keys(lease)
    keys = "".join(f"{line} {mark_of(lease)}\n" for line in (_public(lease), *own))
    log = f"{unread} public keys of the owner could not be parsed" if unread else ""
    if is_shared(lease_of(spec)):
        return Ready(facts=_open_shared(spec, lease, keys), log=log)
    sudo = "sudo" if spec.config.lease_sudo else ""
    shell(spec).as_root(scripts.OPEN_ACCESS, user_of(lease), home_of(lease), sudo, stdin=keys)
    return Ready(facts=_way(lease, user_of(lease), home_of(lease)), log=log)


@told
def try_access(spec: Spec, memo: Json) -> Answer:
    """Connect in the same way as the lease's interfaces will, and find out whether workloads can be units."""
    deadline = Deadline(spec.deadline * 0.9)
    command = ShellCommand(transport_of(lease_of(spec)), still_mine=lambda: None)
    try:
        said = command.check(["/bin/sh", "-c", scripts.CAN_RUN_UNITS], timeout=deadline.remaining).text.strip()
    except AuthenticationRefused as error:
        return Failed(
            scope=Scope.OPERATOR,
            code="key_not_accepted",
            message=f"{error.message} The host may ignore ~/.ssh/authorized_keys or refuse the account.",
        )
    return Ready(facts={"workloads": said} if said == "units" else {})


@told
def close_access(spec: Spec, memo: Json) -> Answer:
    """Prevent new logins and processes for the lease, and close its open connections."""
    lease = lease_of(spec)
    if is_shared(lease_of(spec)):
        removal.shared_close(shell(spec), user_of(lease))
    else:
        removal.close(shell(spec), user_of(lease))
    hang_up(lease)
    return Ready()


@until_done("Processes of the lease are being ended.")
def end_processes(spec: Spec) -> bool:
    """End the unit of the lease's workload and every process of the lease, including detached ones.

    Return whether nothing is left of the unit, and no process.
    """
    lease, there = lease_of(spec), shell(spec)
    if may_have_unit(lease) and not units.removed(there, user_of(lease)):
        return False
    if is_shared(lease_of(spec)):
        return removal.shared_ended(there, user_of(lease), lease.key, whole=spec.config.end_account)
    return not there.end_account(user_of(lease))


@told
def remove_files(spec: Spec, memo: Json) -> Answer:
    """Remove the lease's home or folder and its files in world-writable directories.

    If the home was set aside, the account is kept.
    """
    lease, there = lease_of(spec), shell(spec)
    user, home = user_of(lease), home_of(lease)
    if is_shared(lease):
        return remove_or_put_aside(memo, lambda: removal.shared_removed(there, user), None)
    return remove_or_put_aside(
        memo, lambda: removal.files_removed(there, user, home), lambda: removal.put_aside(shell(spec), home)
    )


@told
def remove_account(spec: Spec, memo: Json) -> Answer:
    """Remove the account last, because its uid can be reused as soon as the account is gone."""
    lease = lease_of(spec)
    if not is_shared(lease_of(spec)):
        removal.remove(shell(spec), user_of(lease), home_of(lease))
    return Ready()


def _public(lease: LeaseView) -> str:
    kind, body = lease.facts["public_key"].split()[:2]
    return f"{kind} {body}"


def _open_shared(spec: Spec, lease: LeaseView, keys: str) -> Json:
    folder = f"{removal.SHARED_FOLDER}/{user_of(lease)}"
    home, uid, gid = shell(spec).run(scripts.SHARED_OPEN, folder, mark_of(lease), stdin=keys).splitlines()
    return _way(lease, spec.resource.facts["user"], home) | {"uid": int(uid), "gid": int(gid)}


def _way(lease: LeaseView, user: str, home: str) -> Json:
    endpoint = lease_endpoint(lease, user=user, home=home)
    return {
        "endpoint": endpoint_facts(endpoint),
        "connect": connect_line(endpoint),
        "user": user,
        "home": home,
        "address": endpoint.host,
        "port": endpoint.port,
        "isolation": lease.resource.attributes.get("isolation", ""),
    }


def hang_up(lease: LeaseView) -> None:
    """Close this process's own connections to the lease's account."""
    if "endpoint" not in lease.facts or "private_key" not in lease.secrets:
        return
    try:
        transport_of(lease).close()
    except InvalidRequest:
        return


PLANS: dict[str, tuple[tuple[str, Act], ...]] = {
    "activate": (
        ("key", make_key),
        ("account", make_account),
        ("access", open_access),
        ("try", try_access),
    ),
    "hand_over": (
        ("close", close_access),
        ("processes", end_processes),
        ("ways", end_other_ways),
        ("key", make_key),
        ("access", open_access),
        ("files", drop_setuid),
        ("try", try_access),
    ),
    "deactivate": (
        ("access", close_access),
        ("processes", end_processes),
        ("files", remove_files),
        ("account", remove_account),
    ),
}
