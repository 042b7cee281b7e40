"""Step actions for storage, on the leased host."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.hosts import HOST
from blueprints.layered import host as hosts
from blueprints.layered.account import Account, account, in_stages
from blueprints.layered.host import BELOW
from blueprints.layered.storage import loop
from blueprints.layered.usage import USED
from blueprints.specs import LeaseView, Spec

_MKDIR = r"""
mkdir -p -m 700 -- "$1" || exit 1
[ -z "$2" ] || chown -h "$2:$3" -- "$1"
"""
_THERE = '[ -d "$1" ] && [ ! -L "$1" ] && echo 1 || echo 0'
_CLEARING = "Files in the storage are being removed."


def have_host(spec: Spec, memo: Json) -> Answer:
    """Lease a host with room for the storage."""
    if HOST in spec.parents:
        return Ready()
    size = loop.image_mib(spec.resource.capacity.disk_mib)
    return hosts.needed_host(spec.config, size)


def _clear(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    """End all processes, and remove everything except the storage folder and its image file.

    Runs before the folder is made, and before a lease gets it.
    """
    there = account(host, spec.deadline)
    ours = (spec.resource.key, f"{spec.resource.key}.img")
    stages = (there.closed, there.ended, lambda: there.emptied(*ours), there.ended)
    return in_stages(memo, _CLEARING, *stages) or Ready()


clear = BELOW.needed(_clear)


def _make(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    facts = hosts.facts_of(host, there)
    size, folder = spec.resource.capacity.disk_mib, f"{facts['home']}/{spec.resource.key}"
    try:
        refused = _enforce(spec, there, folder, size)
    except loop.DiskFull:
        return Failed(scope=Scope.OFFER, code="disk_full", message=f"The host's disk has no room for {size} MiB.")
    limit, promised = "checked" if refused else "loop", spec.resource.attributes.get("limit")
    if promised not in (None, limit):
        return Failed(scope=Scope.BLUEPRINT, code="no_limit", message=f"The size cannot be enforced: {refused}.")
    log = f"{folder}: {size} MiB, {limit}" + (f" ({refused})" if refused else "")
    return Ready(
        facts=facts | {"folder": folder, "limit": limit, "disk_mib": size}, attributes={"limit": limit}, log=log
    )


make = BELOW.needed(_make)


def _enforce(spec: Spec, there: Account, folder: str, size: int) -> str:
    """Make the folder. Return why its size is only checked, or an empty string if the kernel enforces it."""
    there.run(_MKDIR, folder, there.uid, there.gid)
    if "checked" in (spec.config.limit, spec.resource.attributes.get("limit")):
        return "the blueprint or the lease sets limit: checked"
    if not there.controlled:
        return "the host cannot be accessed as root"
    return loop.make(there, folder, size)


def _open(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    if said := _missing(spec, there):
        return said
    there.admit()
    return Ready(facts={name: spec.resource.facts[name] for name in ("folder", "limit", "disk_mib", "host")})


open_it = BELOW.needed(_open)


def _check(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    facts, there = spec.resource.facts, account(host, spec.deadline)
    if said := _missing(spec, there):
        return said
    used = int(there.run(USED, facts["folder"]) or 0)
    if facts["limit"] == "checked" and used > facts["disk_mib"] << 10:
        over = f"The storage contains {used >> 10} MiB, more than its size of {facts['disk_mib']} MiB."
        return Failed(scope=Scope.STEP, code="over_limit", message=over)
    return Ready(facts={"used_mib": used >> 10})


check = BELOW.needed(_check)


def _missing(spec: Spec, there: Account) -> Failed | None:
    """Return a failure if the folder or its file system is gone.

    Mount the file system again if a reboot unmounted it.
    """
    folder = spec.resource.facts.get("folder", "")
    if not folder or there.run(_THERE, folder).split() != ["1"]:
        return Failed(scope=Scope.OFFER, code="gone", message="The folder no longer exists.")
    if said := _unmounted(spec, there, folder):
        return Failed(scope=Scope.OFFER, code="unmounted", message=f"The file system cannot be mounted again: {said}.")
    return None


def _unmounted(spec: Spec, there: Account, folder: str) -> str:
    """Return why the file system that enforces the size is not mounted on the folder.

    Return an empty string if it is mounted, or if there is none.
    """
    if spec.resource.facts["limit"] != "loop":
        return ""
    return loop.again(there, folder) if there.controlled else "the host cannot be accessed as root"


def _end(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    return in_stages(memo, "Processes in the storage are being ended.", there.closed, there.ended) or Ready()


end_processes = BELOW.ending(_end)


def _wipe(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    stages = (there.closed, there.ended, lambda: _unmounted_for_good(spec, there), there.emptied, there.swept)
    return in_stages(memo, _CLEARING, *stages, there.ended) or Ready(log="emptied")


wipe = BELOW.ending(_wipe)


def _make_again(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    facts, there = spec.resource.facts, account(host, spec.deadline)
    if "limit" not in facts:
        return Ready(log="it was never created")
    there.run(_MKDIR, facts["folder"], there.uid, there.gid)
    try:
        said = loop.make(there, facts["folder"], facts["disk_mib"]) if facts["limit"] == "loop" else ""
    except loop.DiskFull:
        said = "the host's disk is full"
    if said:
        return Failed(scope=Scope.STEP, code="unmounted", message=f"The file system cannot be created again: {said}.")
    return Ready()


make_again = BELOW.ending(_make_again)


def _remove(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    stages = (there.closed, there.ended, lambda: _unmounted_for_good(spec, there), there.emptied)
    return in_stages(memo, _CLEARING, *stages) or Ready(log="removed")


remove = BELOW.ending(_remove)


def _unmounted_for_good(spec: Spec, there: Account) -> bool:
    """Remove the file system that enforces the size; return True if none is left."""
    home = there.home
    return not home or not there.controlled or loop.end(there, f"{home}/{spec.resource.key}")
