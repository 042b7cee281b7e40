"""A script of git as a job on the host: started once, looked at until it is over, understood from what it said."""

from __future__ import annotations

import re

from blueprints.answers import Answer, Failed, Json, Scope, Wait
from blueprints.layered.host import transport_of
from blueprints.layered.workingcopy.names import allowed, prompts_of
from blueprints.specs import LeaseView, Spec
from interfaces.command import JobSpec, JobState, ShellCommand
from interfaces.command.jobs import Job, Jobs

_TAIL = 64 << 10
_STEPS = {"Receiving objects": (0, 80), "Resolving deltas": (80, 15), "Updating files": (95, 4)}
_PROGRESS = re.compile(rf"({'|'.join(_STEPS)}):\s+(\d+)%")
_SAID = re.compile(r"(?:fatal|error): .*")
_LONGEST = 400
CLEAN = "clean"


def done_on(host: LeaseView, spec: Spec, memo: Json, name: str, script: str, *arguments: str) -> str | Answer:
    """What the job said when it has ended well, else the answer of the step."""
    jobs = ShellCommand(transport_of(host), still_mine=lambda: None).jobs
    id = f"{name}-{spec.token or spec.key}"[:100]
    words = ["/bin/sh", "-c", script, "sh", *arguments]
    job = jobs.start(JobSpec(id=id, words=words, env=_environment(spec, secrets=name != CLEAN)))
    said = jobs.output(id, max(0, job.output_size - _TAIL), _TAIL).content.decode("utf-8", "replace")
    if not job.state.over:
        return _progress(said, memo)
    return _result(jobs, job, said)


def _result(jobs: Jobs, job: Job, said: str) -> str | Answer:
    # Forgotten before the answer is known to be kept: every script may run again.
    jobs.remove(job.id)
    if job.state is JobState.EXITED and job.exit_code == 0:
        return said
    if job.state is not JobState.EXITED:
        return Failed(scope=Scope.STEP, code="job_lost", message="The work on the host was ended from outside.")
    scope = Scope.OFFER if job.exit_code == 3 else Scope.STEP
    return Failed(scope=scope, code="git", message=_words(said))


def _progress(said: str, memo: Json) -> Wait:
    found = _PROGRESS.findall(said)
    if not found:
        return Wait(after=0.5, memo=memo, sentence="git is at work.")
    begin, span = _STEPS[found[-1][0]]
    percent = begin + span * min(100, int(found[-1][1])) // 100
    return Wait(after=1.0, memo=memo, percent=percent, sentence=f"{found[-1][0]}.")


def _words(said: str) -> str:
    """What git said, short: where it gave up, and the line before, where ssh and the other side say why."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", said) if line.strip() and "%" not in line]
    chosen = [line for n, line in enumerate(lines) if any(map(_SAID.match, lines[n : n + 2]))] or lines[-1:]
    return " ".join(chosen)[-_LONGEST:] or "git said nothing."


def _environment(spec: Spec, *, secrets: bool) -> dict[str, str]:
    config = spec.config
    repository = str(spec.resource.attributes["repository"])
    known = spec.resource.blueprint.credentials.get(config.credential, {}) if secrets else {}
    # Whoever may name any server may name one that keeps what it is told.
    if not config.repositories or not allowed(repository, config.protocols, config.repositories):
        known = {}
    return {
        "GIT_ALLOW_PROTOCOL": ":".join(config.protocols),
        # A pattern would mean little if the other side could send git elsewhere.
        "DRYDOCK_REDIRECTS": "false" if config.repositories or config.credential else "initial",
        "DRYDOCK_KNOWN_HOSTS": "\n".join(config.known_hosts),
        "DRYDOCK_KEY": known.get("private_key", ""),
        "DRYDOCK_USERNAME": known.get("username", ""),
        "DRYDOCK_PASSWORD": known.get("password", ""),
        "DRYDOCK_PROMPTS": "".join(f"{each}\n" for each in prompts_of(repository, known.get("username", ""))),
    }
