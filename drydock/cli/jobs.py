"""`drydock job`: commands on a lease that keep running after this program has ended."""

from __future__ import annotations

from typing import Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded, stoppable
from drydock.core import clock

JobId = Annotated[int, typer.Argument(metavar="JOB", help="The job's number.")]

_EVERY = 0.5


def add_jobs(app: typer.Typer) -> None:
    """Add `drydock job`."""
    group = typer.Typer(
        help="Commands that continue after this program ends: start, show, output, cancel.", no_args_is_help=True
    )
    for name, command in (("start", start), ("list", list_), ("show", show), ("output", read), ("cancel", cancel)):
        group.command(name)(command)
    app.add_typer(group, name="job", rich_help_panel="Work")


@guarded
def start(
    lease: o.LeaseId, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")], *,
    shell: Annotated[bool, typer.Option("--shell", help="COMMAND is one line for /bin/sh.")] = False,
    cwd: Annotated[str, typer.Option(help="Folder to run the command in, relative to the lease's home.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE")] = None,
    ends_lease: Annotated[bool, typer.Option("--ends-lease", help="Release the lease when the job ends.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Start a command and leave it running."""
    words = " ".join(command) if shell else command
    job = o.client().start_job(lease, words, env=o.variables(env), cwd=cwd, ends_lease=ends_lease)
    if as_json:
        return output.emit(job)
    output.line(job.id)
    output.say(f"job {job.id} is {job.state}: drydock job output {job.id} --follow")
    return None


@guarded
def list_(
    *, lease: o.LeaseOption = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List jobs, newest first, in their last known state."""
    found = o.client().jobs(lease=lease)
    if as_json:
        return output.emit(found)
    rows = [(j.id, j.lease, j.state, j.exit_code, j.created_at, _line(j.command), j.message) for j in found]
    output.table(("id", "lease", "state", "exit code", "asked", "command", "message"), rows, empty="No jobs.")
    return None


def _line(command: object) -> str:
    words = command if isinstance(command, str) else " ".join(command)  # type: ignore[arg-type]
    return words if len(words) <= 60 else f"{words[:57]}..."


@guarded
def show(job: JobId, *, as_json: o.AsJson = False) -> None:
    """Show the current state of a job on its host."""
    found = o.client().job(job)
    if as_json:
        return output.emit(found)
    facts = [
        ("lease", found.lease), ("exit code", found.exit_code), ("started", found.started_at),
        ("ended", found.ended_at), ("command", _line(found.command)), ("message", found.message),
    ]  # fmt: skip
    return output.pairs(f"job {found.id} {found.state}", facts)


@guarded
def read(
    job: JobId, *, offset: Annotated[int, typer.Option(help="Start at this byte.")] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the job ends, then exit with its exit code.")
    ] = False,
    raw: o.Raw = False,
) -> None:  # fmt: skip
    """Print the output of a job."""
    with stoppable():
        client, shown = o.client(), output.Stream(raw=raw)
        while True:
            part = client.job_output(job, offset=offset)
            shown.write(part.content)
            offset = part.next_offset
            if part.over or (not follow and not part.content):
                break
            if not part.content:
                clock.sleep(_EVERY)
        shown.end()
        if follow:
            raise typer.Exit(client.job(job).exit_code or 0)


@guarded
def cancel(job: JobId, *, as_json: o.AsJson = False) -> None:
    """End a job and all its processes."""
    found = o.client().cancel_job(job)
    output.emit(found) if as_json else output.line(f"job {found.id} {found.state}")
