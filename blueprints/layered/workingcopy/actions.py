"""Step actions for a working copy, on the leased host."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.hosts import HOST, lease_of
from blueprints.layered import host as hosts
from blueprints.layered.account import account, in_stages
from blueprints.layered.host import BELOW
from blueprints.layered.workingcopy import scripts
from blueprints.layered.workingcopy.names import protocol_of
from blueprints.layered.workingcopy.work import base_of, done_on, forgotten, jobs_ended, refusal
from blueprints.specs import LeaseView, Spec

_CLEARING = "Files of the lease are being removed."


def have_host(spec: Spec, memo: Json) -> Answer:
    """Lease a host with room for the working copy."""
    return Ready() if HOST in spec.parents else hosts.needed_host(spec.config, spec.resource.capacity.disk_mib)


def _look(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    if refused := refusal(there, spec):
        return refused
    facts = hosts.facts_of(host, there)
    if missing := there.run(scripts.TOOLS, there.git_uid, protocol_of(_repository(spec))).strip():
        return Failed(scope=Scope.OFFER, code="no_git", message=f"On {facts['host']}, {missing}.")
    version = there.run("git --version").strip()
    folder = f"{facts['home']}/{spec.resource.key}"
    return Ready(facts=facts | {"folder": folder, "git": version, "repository": _repository(spec)})


look = BELOW.needed(_look)


def _clear(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    """End all processes, and remove everything except the control folder with the mirror, which no lease can access."""
    there = account(host, spec.deadline)
    stages = (lambda: there.emptied(f"{spec.resource.key}.control"), there.swept, there.ended)
    return in_stages(memo, _CLEARING, there.closed, there.ended, *stages) or Ready()


clear, empty = BELOW.needed(_clear), BELOW.ending(_clear)


def _clone(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    said = done_on(account(host, spec.deadline), spec, memo, "fetch")
    return Ready(log=f"fetched {_repository(spec)}") if isinstance(said, str) else said


clone = BELOW.needed(_clone)


def _checkout(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    ref = lease_of(spec).asked.requirements.ref or spec.config.ref or ""
    said = done_on(there, spec, memo, "checkout", ref, spec.config.author_name, spec.config.author_email)
    if not isinstance(said, str):
        return said
    there.admit()
    _, commit, branch = said.rstrip("\n").rpartition("\n")[2].split(" ", 2)
    facts = {"folder": spec.resource.facts["folder"], "repository": _repository(spec), "commit": commit}
    return Ready(facts=facts | {"ref": ref or branch, "branch": branch}, log=f"{ref or branch} is {commit}")


checkout = BELOW.needed(_checkout)


def _end(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    git = (there.git_ended, lambda: jobs_ended(there, spec), lambda: forgotten(there, spec), there.git_ended)
    stages = (there.closed, there.ended, *git, there.ended)
    return in_stages(memo, "Processes in the working copy are being ended.", *stages) or Ready()


end_processes = BELOW.ending(_end)


def _check(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there, folder = account(host, spec.deadline), str(spec.resource.facts.get("folder", "/nowhere/at/all"))
    if there.run(scripts.THERE, base_of(spec, folder.rpartition("/")[0])).split() == ["1"]:
        return Ready()
    return Failed(scope=Scope.OFFER, code="gone", message="The mirror of the repository no longer exists.")


check = BELOW.needed(_check)


def _remove(spec: Spec, memo: Json, host: LeaseView) -> Answer:
    there = account(host, spec.deadline)
    return in_stages(memo, "The repository is being removed.", there.emptied) or Ready()


remove = BELOW.ending(_remove)


def _repository(spec: Spec) -> str:
    return str(spec.resource.attributes["repository"])
