"""What the steps of local_host do, except for those that belong to a lease."""

from __future__ import annotations

import contextlib
from pathlib import Path

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLock, Ready, Scope
from blueprints.hostshell import HostShell, told, until_done
from blueprints.local import claims, folders, groups, machine
from blueprints.local.config import Config
from blueprints.local.leasing import ended, shell, swept
from blueprints.local.whereabouts import elsewhere
from blueprints.specs import Spec


def claim(spec: Spec, memo: Json) -> Answer:
    """Have the machine: a second host of the same blueprint would give its capacity twice."""
    if "machine" not in spec.locks:
        scope = f"local_host {machine.identity()} {spec.resource.blueprint.id}"
        return Need(locks=(NeededLock(name="machine", scope=scope, candidates=("1",)),))
    if said := objection(spec.config):
        return Failed(scope=Scope.OPERATOR, code="unsafe", message=said)
    return Ready(facts={"machine": machine.identity(), "isolation": "uid" if machine.as_root() else "none"})


@told
def make(spec: Spec, memo: Json) -> Answer:
    """The folder in which homes are made."""
    if answer := elsewhere(spec.resource):
        return answer
    folder = folders.folder_of(spec.resource)
    folders.make(folder.parent, 0o711 if machine.as_root() else 0o700)
    folders.make(folder, 0o711 if machine.as_root() else 0o700)
    folders.mark(folder, spec.tags)
    return Ready(facts={"folder": str(folder)}, log=f"made {folder}")


@told
def look(spec: Spec, memo: Json) -> Answer:
    """Whether the folder is there, with room on its disk."""
    if answer := elsewhere(spec.resource):
        return answer
    folder = folders.folder_of(spec.resource)
    if not folders.marked(folder):
        return Failed(scope=Scope.STEP, code="gone", message=f"{folder} is gone.")
    found = shell(spec).look(str(folder))
    if found.get("disk_free_mib", 0) < spec.config.min_free_mib:
        return Failed(scope=Scope.STEP, code="disk_full", message=f"{found.get('disk_free_mib')} MiB are free.")
    return Ready(facts=found)


@told
def end_leases(spec: Spec, memo: Json) -> Answer:
    """Whatever leases are left on it."""
    return elsewhere(spec.resource) or _end_leases(spec, memo)


@until_done("Processes and files of former leases are being removed.")
def _end_leases(spec: Spec) -> bool:
    here = shell(spec)
    return all(_end_lease(here, home, spec.config.cgroup) for home in _homes(spec))


def _end_lease(here: HostShell, home: Path, cgroup: str) -> bool:
    if here.tired or not ended(here, home) or not swept(here, home):
        return False
    if machine.as_root():
        if not groups.remove(cgroup, home.name):
            return False
        claims.give_back(home)
    return True


@until_done("The folder is being removed.")
def remove(spec: Spec) -> bool:
    """The folder itself; the last sign of it is its absence."""
    folder = folders.folder_of(spec.resource)
    if not shell(spec).remove_tree(str(folder), root=False):
        return False
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    return True


def objection(config: Config) -> str:
    """Why the machine cannot be used as the config says; empty when it can."""
    root = machine.as_root()
    if root and not machine.uids_exist(config.window[0], config.window[-1]):
        return f"This machine does not know the uids {config.window[0]} to {config.window[-1]}; see first_uid and uids."
    return folders.objection(folders.root_of(config), root=root)


def capacity(config: Config) -> Amounts:
    """What the machine has, as far as the config does not say it."""
    given = (config.cpu_millicores, config.ram_mib, config.disk_mib)
    measured = (1000 * machine.vcpus(), machine.ram_mib(), machine.disk_mib(folders.root_of(config)))
    cpu, ram, disk = (there if said is None else said for said, there in zip(given, measured, strict=True))
    return Amounts(slots=config.slots, cpu_millicores=cpu, ram_mib=ram, disk_mib=disk)


def _homes(spec: Spec) -> list[Path]:
    folder = folders.folder_of(spec.resource)
    return sorted({*folders.homes(folder), *(claims.below(folder) if machine.as_root() else ())})
