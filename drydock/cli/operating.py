"""`drydock installation`, `confirm-installation`, `suspend-installation` and `workers`: for who runs it.

They look into the database of this machine's installation, also with `--server` set for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded

if TYPE_CHECKING:
    from leases.operations.callers import Caller
    from leases.operations.installation import InstallationInfo


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    named = {
        "installation": show, "confirm-installation": confirm, "suspend-installation": suspend,
        "workers": workers,
    }  # fmt: skip
    for name, command in named.items():
        app.command(name, rich_help_panel="Installation")(command)


def _caller() -> Caller:
    from drydock.cli.session import ready_database, set_up, user

    set_up()
    ready_database()
    from leases.operations.callers import caller

    return caller(user())


@guarded
def show(*, as_json: o.AsJson = False) -> None:
    """Whether this installation may touch anything outside; while it may not, everything that it would do."""
    who = _caller()
    from leases.operations import installation

    _tell(installation.standing(who), as_json)


@guarded
def confirm(
    *, yes: Annotated[bool, typer.Option("--yes", help="Without asking.")] = False, as_json: o.AsJson = False
) -> None:
    """Say that this database, restored or moved as it may be, alone speaks for the installation from now on."""
    who = _caller()
    from leases.operations import installation

    if not yes:
        before = installation.standing(who)
        if before.problem:
            _tell(before, False)
            typer.confirm("All of this is done then. Is no other copy of this database in use?", abort=True)
    _tell(installation.confirm(who), as_json)


@guarded
def suspend(
    *, message: Annotated[str, typer.Option("--message", "-m", help="Why.")] = "", as_json: o.AsJson = False
) -> None:
    """Touch nothing outside until somebody confirms; before a point-in-time recovery, for one."""
    who = _caller()
    from leases.operations import installation

    _tell(installation.suspend(who, message), as_json)


def _tell(info: InstallationInfo, as_json: bool) -> None:
    if as_json:
        return output.emit(info)
    output.line(f"Installation {info.uuid}, epoch {info.epoch}: {'SUSPENDED' if info.problem else 'at work'}.")
    if info.problem:
        output.line(f"{info.problem} Until `drydock confirm-installation` nothing outside is touched.")
    for held in info.held:
        output.line(f"  would {held.what} {held.name}" + (f": {held.message}" if held.message else ""))
    return None


@guarded
def workers(*, as_json: o.AsJson = False) -> None:
    """Workers and how long ago each was seen; exit code 8 when none lives."""
    who = _caller()
    from django.conf import settings

    from drydock.cli.exits import NO_WORKER
    from leases.operations import installation

    found = installation.workers(who, settings.DRYDOCK.lost_worker_seconds)
    for worker in found:
        said = f"{worker.name} ({', '.join(worker.queues)}) seen {worker.age:g} s ago" + (", lost" * worker.lost)
        output.emit_line(worker) if as_json else output.line(said)
    if all(worker.lost for worker in found):
        raise typer.Exit(NO_WORKER)
