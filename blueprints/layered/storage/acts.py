"""What the steps of storage do on the leased host."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.hosts import HOST
from blueprints.hostshell import HostShell
from blueprints.layered import host as hosts
from blueprints.layered.host import BELOW
from blueprints.layered.storage import loop
from blueprints.layered.usage import used_kib
from blueprints.specs import LeaseView, Spec
from interfaces.command.shell import ShellCommand

_EMPTY = r"""
[ -d "$1" ] && [ ! -L "$1" ] || exit 0
cd -- "$1" || exit 1
find . -xdev -type d ! -perm -700 -exec chmod u+rwx '{}' ';' 2>/dev/null
find . -xdev ! -name . -delete
"""
_EMPTY_HOME = r"""
cd -- "$HOME" || exit 1
for each in * .[!.]* ..?*; do
  case $each in "$1"|"$1.img") continue;; esac
  { [ -e "$each" ] || [ -L "$each" ]; } && { chmod -R u+rwX -- "$each" 2>/dev/null; rm -rf -- "$each" || exit 1; }
done
:
"""


def have_host(spec: Spec, memo: Json) -> Answer:
    """A host with room for it."""
    if HOST in spec.parents:
        return Ready()
    size = loop.image_mib(spec.resource.capacity.disk_mib)
    return hosts.needed_host(spec.config, size)


def _make(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    facts = hosts.facts_of(host, spec.deadline)
    size, folder = spec.resource.capacity.disk_mib, f"{facts['home']}/{spec.resource.key}"
    shell = hosts.shell_of(host, spec.deadline)
    shell.run('mkdir -p -m 700 -- "$1"', folder)
    try:
        refused = _enforce(spec, host, folder, size)
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


def _enforce(spec: Spec, host: LeaseView, folder: str, size: int) -> str:
    """Why the size is only checked; empty where the kernel keeps it."""
    if "checked" in (spec.config.limit, spec.resource.attributes.get("limit")):
        return "as the blueprint or the lease says"
    root = hosts.privileged(host, spec.deadline)
    if root is None:
        return "no root on the host"
    uid, gid = map(int, hosts.shell_of(host, spec.deadline).run("id -u; id -g").split())
    return loop.make(root, folder, size, (uid, gid))


def _open(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    if said := _missing(spec, host):
        return said
    return Ready(facts={name: spec.resource.facts[name] for name in ("folder", "limit", "disk_mib", "host")})


open_it = BELOW.needed(_open)


def _check(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    facts = spec.resource.facts
    if said := _missing(spec, host):
        return said
    command = ShellCommand(hosts.transport_of(host), still_mine=lambda: None)
    used = used_kib(command, facts["folder"], spec.deadline / 2)
    if facts["limit"] == "checked" and used > facts["disk_mib"] << 10:
        over = f"{used >> 10} MiB are in a storage of {facts['disk_mib']} MiB."
        return Failed(scope=Scope.STEP, code="over_limit", message=over)
    return Ready(facts={"used_mib": used >> 10})


check = BELOW.needed(_check)


def _missing(spec: Spec, host: LeaseView) -> Failed | None:
    """What is not there any more. A file system that a reboot took away is put back."""
    folder, shell = spec.resource.facts.get("folder", ""), hosts.shell_of(host, spec.deadline)
    if not folder or shell.run('[ -d "$1" ] && echo 1 || echo 0', folder).split() != ["1"]:
        return Failed(scope=Scope.OFFER, code="gone", message="The folder is gone.")
    if said := _unmounted(spec, host, shell, folder):
        return Failed(scope=Scope.OFFER, code="unmounted", message=f"Its file system cannot be mounted again: {said}.")
    return None


def _unmounted(spec: Spec, host: LeaseView, shell: HostShell, folder: str) -> str:
    """Why the file system that keeps the size is not over the folder; empty when it is, or when there is none."""
    if spec.resource.facts["limit"] != "loop" or loop.mounted(shell, folder):
        return ""
    root = hosts.privileged(host, spec.deadline)
    return "no root on the host" if root is None else loop.again(root, folder)


def _ended(spec: Spec, host: LeaseView) -> bool:
    return hosts.end_processes(host, spec.deadline)


end_processes = BELOW.until(_ended, "Processes in the storage are being ended.")


def _wipe(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    shell = hosts.shell_of(host, spec.deadline)
    folder = spec.resource.facts.get("folder") or f"{hosts.home_of(shell)}/{spec.resource.key}"
    # Else what the lease wrote would come back with the file system when it is mounted again.
    if "limit" in spec.resource.facts and (said := _unmounted(spec, host, shell, folder)):
        return Failed(scope=Scope.STEP, code="unmounted", message=f"Its file system cannot be emptied: {said}.")
    shell.run(_EMPTY, folder)
    shell.run(_EMPTY_HOME, spec.resource.key)
    if hosts.sweep(host, spec.deadline):
        return Ready(log="emptied")
    return Wait(memo=memo, sentence="Files of the lease are being removed.")


wipe = BELOW.ending(_wipe)


def _remove(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    shell = hosts.shell_of(host, spec.deadline)
    if not (home := hosts.home_of(shell)):
        return Ready(log="its home is gone")
    folder = f"{home}/{spec.resource.key}"
    if loop.mounted(shell, folder):
        root = hosts.privileged(host, spec.deadline)
        if root is None or not loop.end(root, folder):
            return Failed(scope=Scope.STEP, code="mounted", message="Its file system cannot be unmounted.")
    shell.run('chmod -R u+rwX -- "$1" 2>/dev/null; rm -rf -- "$1" "$1.img" "$1.img.new"', folder)
    return Ready(log=f"{folder} is gone")


remove = BELOW.ending(_remove)
