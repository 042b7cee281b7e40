"""What the steps of local_host do for one lease: an account number and a home, and their end."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from blueprints.answers import Answer, Failed, Json, Need, NeededLock, Ready, Scope, Wait
from blueprints.hosts import LEASE_VARIABLE, endpoint_facts, lease_of
from blueprints.hostshell import HostShell, in_pieces, told, until_done
from blueprints.local import claims, folders, groups, machine
from blueprints.local.whereabouts import elsewhere, sentence
from blueprints.specs import LeaseView, Spec
from interfaces.endpoints import LocalEndpoint, endpoint_from_json
from interfaces.errors import Unreachable
from interfaces.transport import Transport
from interfaces.transports import transport_to

_CANDIDATES = 256
_CLEARING = "What an earlier lease left under its uid is being looked for."


@told
def give_account(spec: Spec, memo: Json) -> Answer:
    """As root: a uid that no other lease has. Else all leases share the account of this program."""
    if answer := elsewhere(spec.resource):
        return answer
    if not machine.as_root():
        return Ready(facts={"uid": os.geteuid(), "gid": os.getegid(), "isolation": "none"})
    home = folders.home_of(lease_of(spec))
    uid = claims.uid_of(home)
    if uid is None:
        if "uid" not in spec.locks:
            return _ask_for_uid(spec)
        uid = int(spec.locks["uid"])
        if not claims.take(uid, home):
            return Failed(
                scope=Scope.STEP, code="uid_taken", message=f"Uid {uid} was taken by another program's lease."
            )
    return Ready(facts={"uid": uid, "gid": uid, "isolation": "uid"})


@in_pieces(_CLEARING)
def make_home(spec: Spec, memo: Json) -> Answer:
    """The lease's own folder; whoever had the uid before has left nothing that it could find."""
    if answer := elsewhere(spec.resource):
        return answer
    lease = lease_of(spec)
    folder, home, uid, gid = folders.folder_of(lease.resource), folders.home_of(lease), *_account(lease)
    if not folders.marked(folder):
        return Failed(scope=Scope.STEP, code="gone", message=f"{folder} is gone.")
    here = shell(spec)
    if machine.as_root() and not (ended(here, home) and swept(here, home)):
        if here.tired:
            return Wait(after=1.0, memo=memo, sentence=_CLEARING)
        return Failed(scope=Scope.STEP, code="uid_in_use", message=f"Something of uid {uid} cannot be removed.")
    home.mkdir(mode=0o700, exist_ok=True)
    os.chown(home, uid, gid, follow_symlinks=False)
    home.chmod(0o700)
    endpoint = _bounded(LocalEndpoint(uid=uid, gid=gid, home=str(home), environment=_environment(lease, uid)), lease)
    return Ready(
        facts={
            "limits": _limits(endpoint),
            "endpoint": endpoint_facts(endpoint),
            "home": str(home),
            "user": str(uid),
            "hostname": lease.resource.attributes.get("hostname", ""),
            "connect": str(home),
        }
    )


@told
def end_processes(spec: Spec, memo: Json) -> Answer:
    """Every process of the lease, detached ones too."""
    return elsewhere(spec.resource) or _end_processes(spec, memo)


@until_done("Processes of the lease are being ended.")
def _end_processes(spec: Spec) -> bool:
    return ended(shell(spec), folders.home_of(lease_of(spec)))


@until_done("Files of the lease are being removed.")
def remove_files(spec: Spec) -> bool:
    """The home, and as root whatever the uid left in places that all may write to."""
    home = folders.home_of(lease_of(spec))
    return swept(shell(spec), home)


@told
def take_account_back(spec: Spec, memo: Json) -> Answer:
    """Nothing of the lease is left; the uid is free again."""
    home = folders.home_of(lease_of(spec))
    if not ended(shell(spec), home) or home.exists():
        return Failed(scope=Scope.STEP, code="still_there", message=f"Something in {home} came back.")
    if machine.as_root():
        if not groups.remove(spec.config.cgroup, home.name):
            return Failed(scope=Scope.STEP, code="still_there", message=f"The control group of {home} is not empty.")
        claims.give_back(home)
    return Ready(log=f"{home} is gone")


def transport_of(lease: LeaseView) -> Transport:
    """The way to the lease's account. Raises Unreachable on another machine."""
    if said := sentence(lease.resource):
        raise Unreachable(said)
    return transport_to(endpoint_from_json(lease.facts["endpoint"]))


def shell(spec: Spec) -> HostShell:
    """This machine, with the rights of this program."""
    here = LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home="/")
    return HostShell(transport_to(here), spec.deadline)


def ended(here: HostShell, home: Path) -> bool:
    """End the processes of a home's lease; True when none is left."""
    if machine.as_root():
        uid = claims.uid_of(home)
        return uid is None or not here.end_account(uid)
    return not here.end_marked(f"{LEASE_VARIABLE}={home.name}", str(home))


def swept(here: HostShell, home: Path) -> bool:
    """Remove the files of a home's lease; True when none is left."""
    if os.path.lexists(home) and not here.remove_tree(str(home), root=False):
        return False
    uid = claims.uid_of(home) if machine.as_root() else None
    return uid is None or here.sweep_account(uid)


def _ask_for_uid(spec: Spec) -> Answer:
    candidates = claims.free(spec.config.window, _CANDIDATES)
    if not candidates:
        return Failed(scope=Scope.STEP, code="no_uid", message="No uid of the blueprint's window is free.")
    scope = f"uid of {machine.identity()}"
    return Need(locks=(NeededLock(name="uid", scope=scope, candidates=tuple(map(str, candidates))),))


def _account(lease: LeaseView) -> tuple[int, int]:
    return int(lease.facts["uid"]), int(lease.facts["gid"])


def _bounded(endpoint: LocalEndpoint, lease: LeaseView) -> LocalEndpoint:
    """With what holds the lease to its share. Without root nothing does: others work with the same account."""
    if not machine.as_root():
        return endpoint
    config, name = lease.resource.blueprint.config, Path(endpoint.home).name
    group = groups.make(config.cgroup, name, lease.asked.amounts, config.processes)
    cgroup = str(group) if group else ""
    return replace(endpoint, processes=config.processes, open_files=config.open_files, cgroup=cgroup)


def _limits(endpoint: LocalEndpoint) -> str:
    if endpoint.cgroup:
        return "cgroup"
    return "rlimit" if endpoint.processes else "none"


def _environment(lease: LeaseView, uid: int) -> tuple[tuple[str, str], ...]:
    name = f"lease-{uid}" if machine.as_root() else ""
    names = (("USER", name), ("LOGNAME", name)) if name else ()
    return (*names, (LEASE_VARIABLE, lease.key))
