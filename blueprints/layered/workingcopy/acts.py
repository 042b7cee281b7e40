"""What the steps of working_copy do on the leased host."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.hosts import HOST, lease_of
from blueprints.layered import host as hosts
from blueprints.layered.host import BELOW
from blueprints.layered.workingcopy import scripts
from blueprints.layered.workingcopy.names import protocol_of
from blueprints.layered.workingcopy.work import CLEAN, done_on
from blueprints.specs import LeaseView, Spec

_INSTEAD = "Use https, or a host of another kind."
_EMPTY_HOME = r"""
cd -- "$HOME" 2>/dev/null || exit 0
for each in * .[!.]* ..?*; do
  [ "$each" != "$1" ] || continue
  { [ -e "$each" ] || [ -L "$each" ]; } || continue
  [ -L "$each" ] || chmod -R u+rwX -- "$each" 2>/dev/null
  rm -rf -- "./$each" || exit 1
done
"""


def have_host(spec: Spec, memo: Json) -> Answer:
    """A host with room for it."""
    return Ready() if HOST in spec.parents else hosts.needed_host(spec.config, spec.resource.capacity.disk_mib)


def _look(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    facts = hosts.facts_of(host, spec.deadline)
    version = hosts.shell_of(host, spec.deadline).run("git --version 2>/dev/null || :").strip()
    if not version:
        return Failed(scope=Scope.OFFER, code="no_git", message=f"There is no git on {facts['host']}.")
    if said := _hindrance(spec, host):
        return Failed(scope=Scope.OFFER, code="no_ssh", message=f"On {facts['host']} {said}. {_INSTEAD}")
    folder = f"{facts['home']}/{spec.resource.key}"
    return Ready(facts=facts | {"folder": folder, "git": version, "repository": _repository(spec)})


look = BELOW.needed(_look)


def _hindrance(spec: Spec, host: LeaseView) -> str:
    """Why the repository cannot be reached from there; empty when nothing is known against it."""
    if protocol_of(_repository(spec)) != "ssh":
        return ""
    return hosts.shell_of(host, spec.deadline).run(scripts.SSH_HINDRANCE).strip()


def _clone(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    said = done_on(host, spec, memo, "clone", scripts.FETCH, *_source(spec))
    return Ready(log=f"fetched {_repository(spec)}") if isinstance(said, str) else said


clone = BELOW.needed(_clone)


def _checkout(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    ref = lease_of(spec).asked.requirements.ref or spec.config.ref or ""
    author = (spec.config.author_name, spec.config.author_email)
    said = done_on(host, spec, memo, "checkout", scripts.CHECKOUT, *_source(spec), ref, *author)
    if not isinstance(said, str):
        return said
    _, commit, branch = said.rstrip("\n").rpartition("\n")[2].split(" ", 2)
    facts = {"folder": spec.resource.facts["folder"], "repository": _repository(spec), "commit": commit}
    return Ready(facts=facts | {"ref": ref or branch, "branch": branch}, log=f"{ref or branch} is {commit}")


checkout = BELOW.needed(_checkout)


def _ended(spec: Spec, host: LeaseView) -> bool:
    return hosts.end_processes(host, spec.deadline)


end_processes = BELOW.until(_ended, "Processes in the working copy are being ended.")


def _empty_home(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    hosts.shell_of(host, spec.deadline).run(_EMPTY_HOME, spec.resource.key)
    if hosts.sweep(host, spec.deadline):
        return Ready()
    return Wait(memo=memo, sentence="Files of the lease are being removed.")


empty_home = BELOW.ending(_empty_home)


def _pristine(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    said = done_on(host, spec, memo, CLEAN, scripts.PRISTINE, _folder(spec, host))
    return Ready() if isinstance(said, str) else said


pristine = BELOW.ending(_pristine)


def _check(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = '[ -d "$1/.git" ] && echo 1 || echo 0'
    if hosts.shell_of(host, spec.deadline).run(there, spec.resource.facts.get("folder", "/nowhere")).split() == ["1"]:
        return Ready()
    return Failed(scope=Scope.OFFER, code="gone", message="The repository is gone.")


check = BELOW.needed(_check)


def _remove(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    script = 'for each; do chmod -R u+rwX -- "$each" 2>/dev/null; rm -rf -- "$each" || exit 1; done'
    folder = _folder(spec, host)
    home = folder.rpartition("/")[0]
    hosts.shell_of(host, spec.deadline).run(script, folder, f"{folder}.new", f"{home}/.drydock")
    return Ready(log=f"{folder} is gone")


remove = BELOW.ending(_remove)


def _folder(spec: Spec, host: LeaseView) -> str:
    if folder := spec.resource.facts.get("folder"):
        return str(folder)
    home = hosts.home_of(hosts.shell_of(host, spec.deadline)) or "/nonexistent"
    return f"{home}/{spec.resource.key}"


def _repository(spec: Spec) -> str:
    return str(spec.resource.attributes["repository"])


def _source(spec: Spec) -> tuple[str, str, str]:
    return spec.resource.facts["folder"], _repository(spec), str(spec.config.depth or 0)
