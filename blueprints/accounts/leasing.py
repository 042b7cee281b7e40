"""What steps do for one lease on a host: a key pair, an account or a folder, and their end."""

from __future__ import annotations

from blueprints.accounts import ending, scripts
from blueprints.accounts.access import (
    connect_line,
    home_of,
    is_shared,
    lease_endpoint,
    mark_of,
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
    """A pair for this lease alone. It is kept before the host hears of it, so a lost answer only costs a pair."""
    if "private_key" in lease_of(spec).secrets:
        return Ready()
    pair = new_key_pair(mark_of(lease_of(spec)))
    return Ready(facts={"public_key": pair.public}, secrets={"private_key": pair.private})


@told
def make_account(spec: Spec, memo: Json) -> Answer:
    """An account of the lease's own, which nobody can enter yet."""
    lease = lease_of(spec)
    if is_shared(lease_of(spec)):
        return Ready()
    user, home = user_of(lease), home_of(lease)
    said = shell(spec).as_root(scripts.MAKE_ACCOUNT, user, home, "Drydock lease")
    uid, gid = map(int, said.split())
    return Ready(facts={"uid": uid, "gid": gid, "home": home, "user": user}, log=f"account {user}")


@told
def open_access(spec: Spec, memo: Json) -> Answer:
    """The lease's key and the owner's own let in."""
    lease = lease_of(spec)
    own, unread = owner_keys(lease)
    keys = "".join(f"{line} {mark_of(lease)}\n" for line in (_public(lease), *own))
    log = f"{unread} public keys of the owner could not be read" if unread else ""
    if is_shared(lease_of(spec)):
        return Ready(facts=_open_shared(spec, lease, keys), log=log)
    sudo = "sudo" if spec.config.lease_sudo else ""
    shell(spec).as_root(scripts.OPEN_ACCESS, user_of(lease), home_of(lease), sudo, stdin=keys)
    return Ready(facts=_way(lease, user_of(lease), home_of(lease)), log=log)


@told
def try_access(spec: Spec, memo: Json) -> Answer:
    """Go the way that the lease's interfaces will go."""
    deadline = Deadline(spec.deadline * 0.9)
    command = ShellCommand(transport_of(lease_of(spec)), still_mine=lambda: None)
    try:
        command.check(["true"], timeout=deadline.remaining)
    except AuthenticationRefused as error:
        return Failed(
            scope=Scope.OPERATOR,
            code="key_not_accepted",
            message=f"{error.message} Its SSH server may not read ~/.ssh/authorized_keys, or allow no such accounts.",
        )
    return Ready()


@told
def close_access(spec: Spec, memo: Json) -> Answer:
    """Nothing new begins for the lease."""
    lease = lease_of(spec)
    if is_shared(lease_of(spec)):
        ending.shared_close(shell(spec), user_of(lease))
    else:
        ending.close(shell(spec), user_of(lease))
    _hang_up(lease)
    return Ready()


@until_done("Processes of the lease are being ended.")
def end_processes(spec: Spec) -> bool:
    """Every process of the lease, detached ones too."""
    lease, there = lease_of(spec), shell(spec)
    if is_shared(lease_of(spec)):
        return ending.shared_ended(there, user_of(lease), lease.key, whole=spec.config.end_account)
    return not there.end_account(user_of(lease))


@told
def remove_files(spec: Spec, memo: Json) -> Answer:
    """Home or folder, and what lies in places that all may write to. An account whose home was put aside stays."""
    lease, there = lease_of(spec), shell(spec)
    user, home = user_of(lease), home_of(lease)
    if is_shared(lease):
        return remove_or_put_aside(memo, lambda: ending.shared_removed(there, user), None)
    return remove_or_put_aside(
        memo, lambda: ending.files_removed(there, user, home), lambda: ending.put_aside(shell(spec), home)
    )


@told
def remove_account(spec: Spec, memo: Json) -> Answer:
    """The account itself, last: only then may its uid be another's."""
    lease = lease_of(spec)
    if not is_shared(lease_of(spec)):
        ending.remove(shell(spec), user_of(lease), home_of(lease))
    return Ready()


def _public(lease: LeaseView) -> str:
    kind, body = lease.facts["public_key"].split()[:2]
    return f"{kind} {body}"


def _open_shared(spec: Spec, lease: LeaseView, keys: str) -> Json:
    folder = f"{ending.SHARED_FOLDER}/{user_of(lease)}"
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


def _hang_up(lease: LeaseView) -> None:
    """Connections that this process still has open as the lease."""
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
    "deactivate": (
        ("access", close_access),
        ("processes", end_processes),
        ("files", remove_files),
        ("account", remove_account),
    ),
}
