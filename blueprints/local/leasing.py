"""Step actions for one lease on a local host: give it a uid and a home, and take them back."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

from blueprints.answers import Answer, Failed, Json, Need, NeededLock, Ready, Scope, Wait
from blueprints.devices import detach_account, has_devices, has_network, revoke_account
from blueprints.hosts import LEASE_VARIABLE, endpoint_facts, lease_of
from blueprints.hostshell import HostShell, in_pieces, remove_or_put_aside, told, until_done
from blueprints.local import claims, folders, groups, machine
from blueprints.local.whereabouts import elsewhere, sentence
from blueprints.specs import Control, LeaseView, ResourceView, Spec
from interfaces.endpoints import LocalEndpoint, endpoint_from_json
from interfaces.errors import DeadlineExceeded, Unreachable
from interfaces.transport import Transport
from interfaces.transports import transport_to

_TIDYING = 10.0
_CANDIDATES = 256
_CLEARING = "Drydock is removing processes and files that an earlier lease left under this uid."


@told
def give_account(spec: Spec, memo: Json) -> Answer:
    """As root, claim a uid that only this lease uses. Not as root, all leases use this program's account."""
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
                scope=Scope.STEP, code="uid_taken", message=f"Uid {uid} was taken by a lease of another program."
            )
    return Ready(facts={"uid": uid, "gid": uid, "isolation": "uid"})


@in_pieces(_CLEARING)
def make_home(spec: Spec, memo: Json) -> Answer:
    """Create the lease's own home, after checking that the uid's previous owner left nothing reachable."""
    if answer := elsewhere(spec.resource):
        return answer
    lease = lease_of(spec)
    folder, home, uid, gid = folders.folder_of(lease.resource), folders.home_of(lease), *_account(lease)
    if not folders.marked(folder):
        return Failed(scope=Scope.STEP, code="gone", message=f"{folder} no longer exists.")
    folders.close(folder)
    here = shell(spec)
    if machine.as_root() and not (ended(here, home, spec.config.cgroup) and swept(here, home)):
        if here.tired:
            return Wait(after=1.0, memo=memo, sentence=_CLEARING)
        message = f"Some processes or files of UID {uid} could not be removed."
        return Failed(scope=Scope.STEP, code="uid_in_use", message=message)
    home.mkdir(mode=0o700, exist_ok=True)
    os.chown(home, uid, gid, follow_symlinks=False)
    home.chmod(0o700)
    endpoint = LocalEndpoint(uid=uid, gid=gid, home=str(home), environment=_environment(lease, uid))
    endpoint, limits = _bounded(endpoint, lease)
    return Ready(
        facts={
            "limits": limits,
            "endpoint": endpoint_facts(endpoint),
            "home": str(home),
            "user": str(uid),
            "hostname": lease.resource.attributes.get("hostname", ""),
            "connect": str(home),
        }
    )


@told
def close_home(spec: Spec, memo: Json) -> Answer:
    """Close the home, so that other leases cannot reach its contents by path."""
    if answer := elsewhere(spec.resource):
        return answer
    folders.home_of(lease_of(spec)).chmod(0o700)
    return Ready()


@told
def end_processes(spec: Spec, memo: Json) -> Answer:
    """End every process of the lease, including detached ones."""
    return elsewhere(spec.resource) or _end_processes(spec, memo)


@until_done("Processes of the lease are being ended.")
def _end_processes(spec: Spec) -> bool:
    return ended(shell(spec), folders.home_of(lease_of(spec)), spec.config.cgroup)


@told
def remove_files(spec: Spec, memo: Json) -> Answer:
    """Remove the home and, as root, the uid's files in world-writable directories.

    If the home cannot be removed, it is moved aside, and its uid stays reserved until the home is gone.
    """
    if answer := elsewhere(spec.resource):
        return answer
    home = folders.home_of(lease_of(spec))

    def put_aside() -> str:
        folders.put_aside(home)
        return str(home)

    return remove_or_put_aside(memo, lambda: swept(shell(spec), home), put_aside if machine.as_root() else None)


@told
def take_account_back(spec: Spec, memo: Json) -> Answer:
    """Check that the lease has left nothing behind, and release the uid unless its home was set aside.

    Devices that leases of accelerators gave to the uid are taken back first.
    """
    if answer := elsewhere(spec.resource):
        return answer
    home = folders.home_of(lease_of(spec))
    if not ended(shell(spec), home, spec.config.cgroup) or home.exists():
        return Failed(
            scope=Scope.STEP,
            code="still_there",
            message=f"Processes of the lease or files in {home} reappeared after their removal.",
        )
    if machine.as_root():
        revoke_devices(shell(spec), home)
        if not groups.remove(spec.config.cgroup, home.name):
            return Failed(scope=Scope.STEP, code="still_there", message=f"The control group of {home} is not empty.")
        if folders.aside_of(home).exists():
            return Ready(log=f"the uid of {home} is kept until everything is removed")
        claims.give_back(home)
    return Ready(log=f"{home} was removed")


def transport_of(lease: LeaseView) -> Transport:
    """Return a transport to the lease's account. Raises Unreachable on another machine."""
    if said := sentence(lease.resource):
        raise Unreachable(said)
    endpoint = endpoint_from_json(lease.facts["endpoint"])
    if isinstance(endpoint, LocalEndpoint) and _has_lost_its_group(endpoint):
        _group(lease)
    return transport_to(endpoint)


def control_of(lease: LeaseView) -> Control | None:
    """Return this program's own account if it runs as root and the lease has a uid, else None.

    Raises Unreachable on another machine.
    """
    if said := sentence(lease.resource):
        raise Unreachable(said)
    if not machine.as_root() or "home" not in lease.facts:
        return None
    uid, gid = _account(lease)
    return Control(transport=_here(), uid=uid, gid=gid, home=lease.facts["home"])


def reach(resource: ResourceView) -> Transport:
    """Return this program's own account. Raises Unreachable on another machine."""
    if said := sentence(resource):
        raise Unreachable(said)
    return _here()


def shell(spec: Spec) -> HostShell:
    """Return a shell on this machine with this program's rights."""
    return HostShell(_here(), spec.deadline)


def _here() -> Transport:
    return transport_to(LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home="/"))


def ended(here: HostShell, home: Path, cgroup: str) -> bool:
    """End the processes of the lease that owns the home; return True if none is left."""
    if machine.as_root():
        if not groups.end(cgroup, home.name):
            return False
        uid = claims.uid_of(home)
        return uid is None or not here.end_account(uid)
    return not here.end_marked(f"{LEASE_VARIABLE}={home.name}", str(home))


def swept(here: HostShell, home: Path) -> bool:
    """Remove the files of the lease that owns the home; return True if none is left."""
    if os.path.lexists(home) and not here.remove_tree(str(home), root=False):
        return False
    uid = claims.uid_of(home) if machine.as_root() else None
    return uid is None or here.sweep_account(uid, python=sys.executable, homes=str(home.parent.parent))


def revoke_devices(here: HostShell, home: Path) -> None:
    """Take back the devices of the uid that owns the home, so that they do not go to its next owner."""
    uid = claims.uid_of(home)
    if uid is not None and has_devices(uid):
        revoke_account(here, uid)
    if uid is not None and has_network(uid):
        detach_account(here, uid)


def tidy(folder: Path) -> None:
    """Spend some seconds retrying the removal of homes that were moved aside.

    Releases the uids of those that are gone.
    """
    here = HostShell(_here(), _TIDYING)
    for home in folders.aside(folder):
        place = folders.aside_of(home)
        with contextlib.suppress(DeadlineExceeded):
            if swept(here, home) and here.remove_tree(str(place), root=False):
                claims.give_back(home)
                continue
        with contextlib.suppress(FileNotFoundError):
            os.utime(place, follow_symlinks=False)  # the others first next time
        if here.tired:
            return


def _ask_for_uid(spec: Spec) -> Answer:
    candidates = claims.free(spec.config.window, _CANDIDATES)
    if not candidates:
        return Failed(scope=Scope.STEP, code="no_uid", message="No uid in the blueprint's range is free.")
    scope = f"uid of {machine.identity()}"
    return Need(locks=(NeededLock(name="uid", scope=scope, candidates=tuple(map(str, candidates))),))


def _account(lease: LeaseView) -> tuple[int, int]:
    return int(lease.facts["uid"]), int(lease.facts["gid"])


def _bounded(endpoint: LocalEndpoint, lease: LeaseView) -> tuple[LocalEndpoint, str]:
    """Return the endpoint with its limits, and the name of the mechanism that enforces them.

    Without root there are no limits, because other programs use the same account.
    """
    if not machine.as_root():
        return endpoint, "none"
    config, group = lease.resource.blueprint.config, _group(lease)
    cgroup = str(group.folder) if group else ""
    bounded = replace(endpoint, processes=config.processes, open_files=config.open_files, cgroup=cgroup)
    return bounded, "cgroup" if group and group.bounded else "rlimit"


def _has_lost_its_group(endpoint: LocalEndpoint) -> bool:
    """Return whether the lease's control group is missing, as after a restart of the machine.

    A lease outlives a restart.
    """
    return bool(endpoint.cgroup) and Path(endpoint.home).exists() and not Path(endpoint.cgroup).exists()


def _group(lease: LeaseView) -> groups.Group | None:
    config = lease.resource.blueprint.config
    return groups.make(config.cgroup, folders.home_of(lease).name, lease.asked.amounts, config.processes)


def _environment(lease: LeaseView, uid: int) -> tuple[tuple[str, str], ...]:
    name = f"lease-{uid}" if machine.as_root() else ""
    names = (("USER", name), ("LOGNAME", name)) if name else ()
    return (*names, (LEASE_VARIABLE, lease.key))
