"""Run a git script as a job on the host: start it once, poll it until it is over, and interpret its output."""

from __future__ import annotations

import re

from blueprints.answers import Answer, Failed, Json, Scope, Wait
from blueprints.layered.account import Account
from blueprints.layered.workingcopy import scripts
from blueprints.layered.workingcopy.names import allowed, prompts_of
from blueprints.specs import Spec
from interfaces.command import JobSpec, JobState
from interfaces.command.jobs import Job, Jobs
from interfaces.errors import DeadlineExceeded, JobConflict

_TAIL = 64 << 10
_STEPS = {"Receiving objects": (0, 80), "Resolving deltas": (80, 15), "Updating files": (95, 4)}
_PROGRESS = re.compile(rf"({'|'.join(_STEPS)}):\s+([0-9]{{1,3}})%")
_SAID = re.compile(r"(?:fatal|error): .*")
_LONGEST = 400


def base_of(spec: Spec, home: str) -> str:
    """Return the control folder in the account's home, with the mirror and the jobs."""
    return f"{home}/{spec.resource.key}.control"


def done_on(there: Account, spec: Spec, memo: Json, name: str, *more: str) -> str | Answer:
    """Return git's output if the job has succeeded, else the answer of the step."""
    folder, config = spec.resource.facts["folder"], spec.config
    base = base_of(spec, folder.rpartition("/")[0])
    repository = str(spec.resource.attributes["repository"])
    known = _credential(there, spec)
    # A pattern would mean little if the other side could send git elsewhere.
    redirects = "false" if config.repositories or config.credential else "initial"
    words = there.words(
        scripts.WORK, base, there.git_uid, folder, there.uid, there.gid, scripts.GIT,
        ":".join(config.protocols), redirects, "\n".join(config.known_hosts),
        "".join(f"{each}\n" for each in prompts_of(repository, known.get("username", ""))),
        repository, str(config.depth or 0), name, *(more or ("", "", "")),
    )  # fmt: skip
    secrets = f"{known.get('username', '')}\n{known.get('password', '')}\n{known.get('private_key', '')}"
    id = f"{name}-{spec.token or spec.key}"[:100]
    try:
        if not memo.get("base"):
            there.make_base(base)
            memo = {**memo, "base": True}
        jobs = there.jobs(base)
        job = jobs.start(JobSpec(id=id, words=words, stdin=secrets.encode()))
        said = jobs.output(id, max(0, job.output_size - _TAIL), _TAIL).content.decode("utf-8", "replace")
    except DeadlineExceeded:
        return Wait(after=1.0, memo=memo, sentence="The host answers slowly.")
    if not job.state.over:
        return _progress(said, memo)
    return _result(jobs, job, said)


def jobs_ended(there: Account, spec: Spec) -> bool:
    """End every git job; return True if none is left."""
    if not (home := there.home):
        return True
    jobs = there.jobs(base_of(spec, home))
    try:
        for job in jobs.list():
            if not job.state.over:
                jobs.cancel(job.id)
            jobs.remove(job.id)
    except JobConflict:  # root's part of it, which ends by itself as soon as git has
        return False
    return True


def forgotten(there: Account, spec: Spec) -> bool:
    """Remove the files left by a job that was ended, the credential first of all."""
    if home := there.home:
        there.run(scripts.FORGET, base_of(spec, home))
    return True


def refusal(there: Account, spec: Spec) -> Failed | None:
    """Return a failure if the blueprint has a credential that the host could not keep from leases."""
    if there.controlled or not spec.config.credential:
        return None
    message = (
        f"The credential {spec.config.credential!r} is not given to this host: leases there use one account, which can "
        "read what it is given. Require a host whose leases have accounts of their own (isolation uid or machine)."
    )
    return Failed(scope=Scope.OFFER, code="no_outside", message=message)


def _credential(there: Account, spec: Spec) -> dict[str, str]:
    config, repository = spec.config, str(spec.resource.attributes["repository"])
    # Whoever may name any server may name one that keeps what it is told.
    if not config.repositories or not allowed(repository, config.protocols, config.repositories):
        return {}
    return dict(spec.resource.blueprint.credentials.get(config.credential, {})) if there.controlled else {}


def _result(jobs: Jobs, job: Job, said: str) -> str | Answer:
    # Forgotten before the answer is known to be kept: every script may run again.
    jobs.remove(job.id)
    if job.state is JobState.EXITED and job.exit_code == 0:
        return said
    if job.state is not JobState.EXITED:
        return Failed(scope=Scope.STEP, code="job_lost", message="The git job on the host was ended from outside.")
    scope = Scope.OFFER if job.exit_code == 3 else Scope.STEP
    return Failed(scope=scope, code="git", message=_words(said))


def _progress(said: str, memo: Json) -> Wait:
    found = _PROGRESS.findall(said)
    if not found:
        return Wait(after=0.5, memo=memo, sentence="git is running.")
    begin, span = _STEPS[found[-1][0]]
    percent = begin + span * min(100, int(found[-1][1])) // 100
    return Wait(after=1.0, memo=memo, percent=percent, sentence=f"{found[-1][0]}.")


def _words(said: str) -> str:
    """Shorten git's output to the line with the error and the line before it.

    In that line ssh or the server explains the cause.
    """
    lines = [line.strip() for line in re.split(r"[\r\n]+", said) if line.strip() and "%" not in line]
    chosen = [line for n, line in enumerate(lines) if any(map(_SAID.match, lines[n : n + 2]))] or lines[-1:]
    return " ".join(chosen)[-_LONGEST:] or "git printed nothing."
