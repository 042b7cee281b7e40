"""Step actions for a local host, except those for a lease."""

from __future__ import annotations

import contextlib
from pathlib import Path

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLock, Ready, Scope
from blueprints.devices import hand_back_all
from blueprints.hostshell import HostShell, told, until_done
from blueprints.local import claims, folders, groups, machine
from blueprints.local.config import Config
from blueprints.local.leasing import ended, revoke_devices, shell, swept, tidy
from blueprints.local.whereabouts import elsewhere
from blueprints.specs import Draft, Spec


def claim(spec: Spec, memo: Json) -> Answer:
    """Claim the machine, because a second host of the same blueprint would offer its capacity twice."""
    if "machine" not in spec.locks:
        scope = f"local_host {machine.identity()} {spec.resource.blueprint.id}"
        return Need(locks=(NeededLock(name="machine", scope=scope, candidates=("1",)),))
    if said := objection(spec.config):
        return Failed(scope=Scope.OPERATOR, code="unsafe", message=said)
    return Ready(facts={"machine": machine.identity(), "isolation": "uid" if machine.as_root() else "none"})


@told
def make(spec: Spec, memo: Json) -> Answer:
    """Make the folder for homes."""
    if answer := elsewhere(spec.resource):
        return answer
    folder = folders.folder_of(spec.resource)
    folders.make(folder.parent, 0o711 if machine.as_root() else 0o700)
    folders.make(folder, 0o711 if machine.as_root() else 0o700)
    folders.mark(folder, spec.tags)
    return Ready(facts={"folder": str(folder)}, log=f"created {folder}")


@told
def check_health(spec: Spec, memo: Json) -> Answer:
    """Check that the folder exists and its disk has room."""
    if answer := elsewhere(spec.resource):
        return answer
    folder = folders.folder_of(spec.resource)
    if not folders.marked(folder):
        return Failed(scope=Scope.STEP, code="gone", message=f"{folder} no longer exists.")
    folders.close(folder)
    tidy(folder)
    found = shell(spec).look(str(folder))
    if found.get("disk_free_mib", 0) < spec.config.min_free_mib:
        return Failed(
            scope=Scope.STEP,
            code="disk_full",
            message=f"Only {found.get('disk_free_mib')} MiB of this machine's disk are free.",
        )
    left = [str(home) for home in folders.aside(folder)]
    return Ready(facts=found | ({"aside": left} if left or spec.resource.facts.get("aside") else {}))


@told
def end_leases(spec: Spec, memo: Json) -> Answer:
    """End all leases that remain on the host."""
    return elsewhere(spec.resource) or _end_leases(spec, memo)


@until_done("Processes and files of former leases are being removed.")
def _end_leases(spec: Spec) -> bool:
    here = shell(spec)
    return all(_end_lease(here, home, spec.config.cgroup) for home in _homes(folders.folder_of(spec.resource)))


def _end_lease(here: HostShell, home: Path, cgroup: str) -> bool:
    if here.tired or not ended(here, home, cgroup) or not swept(here, home):
        return False
    if machine.as_root():
        if not groups.remove(cgroup, home.name):
            return False
        revoke_devices(here, home)
        claims.give_back(home)
    return True


@told
def remove(spec: Spec, memo: Json) -> Answer:
    """Remove the folder of the host. This is the last step, because a missing folder means that the host is gone."""
    return elsewhere(spec.resource) or _remove(spec, memo)


@until_done("The folder is being removed.")
def _remove(spec: Spec) -> bool:
    folder, here = folders.folder_of(spec.resource), shell(spec)
    if machine.as_root():
        hand_back_all(here)
    if not here.remove_tree(str(folder), root=False):
        return False
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
    return True


def objection(config: Config) -> str:
    """Return why the machine cannot be used with this config, or an empty string if it can."""
    root = machine.as_root()
    if root and not machine.uids_exist(config.window[0], config.window[-1]):
        return (
            f"The uids {config.window[0]} to {config.window[-1]} are not available on this machine. "
            "Change first_uid and uids."
        )
    return folders.objection(folders.root_of(config), root=root)


@told
def leave_folder(spec: Spec, memo: Json) -> Answer:
    """Remove the old folder, with everything that leases left in it, if the config now names another one."""
    return elsewhere(spec.resource) or _leave_folder(spec, memo)


@until_done("The folder of the previous config is being removed.")
def _leave_folder(spec: Spec) -> bool:
    before, here = Path(spec.resource.facts["folder"]), shell(spec)
    if before == folders.folder_of(spec.resource) or not folders.marked(before):
        return True
    if not all(_end_lease(here, home, spec.config.cgroup) for home in _homes(before)):
        return False
    return here.remove_tree(str(before), root=False)


def apply(spec: Spec, memo: Json) -> Answer:
    """Apply the config's traits, limits and location."""
    if said := objection(spec.config):
        return Failed(scope=Scope.OPERATOR, code="unsafe", message=said)
    now = draft(spec.config)
    return Ready(attributes={"region": None, **now.attributes}, traits=now.traits, capacity=now.capacity)


def draft(config: Config) -> Draft:
    """Return a draft of the whole machine."""
    place = {"region": config.region} if config.region else {}
    return Draft(
        name=str(machine.attributes()["hostname"]),
        attributes=machine.attributes() | place,
        capacity=capacity(config),
        traits=frozenset(config.traits),
    )


def capacity(config: Config) -> Amounts:
    """Return the capacity set by the config, or measured on the machine if the config omits it."""
    given = (config.cpu_millicores, config.ram_mib, config.disk_mib)
    measured = (1000 * machine.vcpus(), machine.ram_mib(), machine.disk_mib(folders.root_of(config)))
    cpu, ram, disk = (there if said is None else said for said, there in zip(given, measured, strict=True))
    return Amounts(slots=config.slots, cpu_millicores=cpu, ram_mib=ram, disk_mib=disk)


def _homes(folder: Path) -> list[Path]:
    return sorted({*folders.homes(folder), *(claims.below(folder) if machine.as_root() else ())})
