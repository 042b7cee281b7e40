"""Commands for the installation on this machine: demo, up, worker, doctor, migrate, ramdisk, secrets, confirmation.

`installation`, `workers` and `secrets` use the database of this machine even if `--server` is set for other commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import FAILURE, guarded

if TYPE_CHECKING:
    from drydock.core.rotation import Progress
    from leases.operations.callers import Caller
    from leases.operations.installation import InstallationInfo


_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_installation(app: typer.Typer) -> None:
    """Add demo, up, worker, doctor and migrate."""
    for name, command in (("demo", demo), ("up", up), ("worker", worker), ("doctor", doctor), ("migrate", migrate)):
        app.command(name, rich_help_panel="Installation")(command)


@guarded
def demo(
    *,
    hardware: Annotated[bool, typer.Option("--hardware", help="Find hardware, and lease a captured GPU.")] = False,
) -> None:
    """Lease a host, a directory and a web site on this machine, use them and release them. Touches no other data."""
    from drydock.demo.runner import main

    raise typer.Exit(main(hardware=hardware))


@guarded
def up() -> None:
    """Run engines, web process, workers and beat in the foreground, until Ctrl-C."""
    from drydock.up import main

    raise typer.Exit(main())


@guarded
def worker(
    *, concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Processes.")] = None,
    queues: Annotated[str, typer.Option("--queues", "-Q", help="Queues, comma separated.")] = "claims,steps,periodic",
    beat: Annotated[bool, typer.Option(help="Also schedule the sweep (in one worker per installation).")] = True,
) -> None:  # fmt: skip
    """Run a worker in the foreground, for servers of your own. Ctrl-C finishes the work in progress."""
    from drydock.cli.toolkit.session import ready_database, set_up

    set_up()
    ready_database()
    from django.conf import settings

    number = concurrency or settings.DRYDOCK.worker_concurrency
    command = [sys.executable, "-m", "celery", "-A", "drydock.celery", "--quiet", "worker", "-Q", queues]
    command += ["-c", str(number), "--loglevel", settings.DRYDOCK.log_level]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    command += ["--beat", "--scheduler", "leases.schedule:Scheduler"] if beat else []
    os.execve(sys.executable, command, {**os.environ, "PYTHONWARNINGS": _ROOT_IS_FINE})  # noqa: S606


_ROOT_IS_FINE = "ignore:You're running the worker with superuser privileges"


@guarded
def doctor(*, as_json: o.AsJson = False) -> None:
    """Check engines, migrations, workers, clock and keys, and explain how to fix problems."""
    from drydock.cli.toolkit.session import set_up

    set_up()
    from drydock.doctor import examine

    failed = False
    for finding in examine():
        verdict = str(finding.verdict)
        failed = failed or verdict == "fail"
        if as_json:
            output.emit_line(
                {"check": finding.check, "verdict": verdict, "message": finding.message, "mend": finding.mend}
            )
        else:
            _print(verdict, finding.check, finding.message, finding.mend)
    if failed:
        raise typer.Exit(FAILURE)


def _print(verdict: str, check: str, message: str, mend: str) -> None:
    if sys.stdout.isatty():
        from rich.text import Text

        mark = Text(_MARKS[verdict], style=output.COLOURS[verdict])
        output.console().print(mark, Text(check.replace("_", " "), style="bold"), Text(message))
    else:
        output.line(f"{_MARKS[verdict]} {check.replace('_', ' ')}: {message}")
    if mend:
        output.line(f"     {mend}")


@guarded
def migrate(
    *, operator: Annotated[str, typer.Option("--operator", metavar="NAME", help="Make this user an operator.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Migrate the database to this version. Private databases are migrated automatically."""
    from drydock.cli.toolkit import session

    session.set_up()
    missing = sorted(session.missing_migrations())
    if missing:
        from django.core.management import call_command

        call_command("migrate", verbosity=0, interactive=False)
    if operator:
        session.make_operator(operator)
    names = [f"{app}.{name}" for app, name in missing]
    said = {"applied": names, "operator": operator}
    if as_json:
        return output.emit(said)
    output.line(f"{len(names)} migrations applied" if names else "Nothing to apply.")
    if operator:
        output.line(f"{operator} is an operator.")


def add_operating(app: typer.Typer) -> None:
    """Add the commands that show, confirm and suspend the installation."""
    named = {
        "installation": show_installation, "confirm-installation": confirm_installation,
        "suspend-installation": suspend_installation,
        "workers": workers,
    }  # fmt: skip
    for name, command in named.items():
        app.command(name, rich_help_panel="Installation")(command)


def _caller() -> Caller:
    from drydock.cli.toolkit.session import ready_database, set_up, user

    set_up()
    ready_database()
    from leases.operations.callers import caller

    return caller(user())


@guarded
def show_installation(*, as_json: o.AsJson = False) -> None:
    """Show whether the installation is suspended and, if so, all deferred actions."""
    who = _caller()
    from leases.operations import installation

    _tell_installation(installation.standing(who), as_json)


@guarded
def confirm_installation(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Confirm that this database, after a restore or move, belongs to the installation from now on."""
    who = _caller()
    from leases.operations import installation

    if not yes:
        before = installation.standing(who)
        if before.problem:
            _tell_installation(before, False)
            typer.confirm(
                "All these actions will be carried out. Are you sure that no other copy of this database is in use?",
                abort=True,
            )
    _tell_installation(installation.confirm(who), as_json)


@guarded
def suspend_installation(
    *, message: Annotated[str, typer.Option("--message", "-m", help="Why.")] = "", as_json: o.AsJson = False
) -> None:
    """Suspend all changes outside the database until confirm-installation, such as before a point-in-time recovery."""
    who = _caller()
    from leases.operations import installation

    _tell_installation(installation.suspend(who, message), as_json)


def _tell_installation(info: InstallationInfo, as_json: bool) -> None:
    if as_json:
        return output.emit(info)
    output.line(f"Installation {info.uuid}, epoch {info.epoch}: {'SUSPENDED' if info.problem else 'active'}.")
    if info.problem:
        output.line(
            f"{info.problem.rstrip('.')}. Nothing outside the database is changed until you run "
            "`drydock confirm-installation`."
        )
    for held in info.held:
        output.line(f"  would {held.what} {held.name}" + (f": {held.message}" if held.message else ""))
    return None


@guarded
def workers(*, as_json: o.AsJson = False) -> None:
    """List workers and how long ago each was seen. Exit code 8 if none is alive."""
    who = _caller()
    from django.conf import settings

    from drydock.cli.toolkit.exits import NO_WORKER
    from leases.operations import installation

    found = installation.workers(who, settings.DRYDOCK.lost_worker_seconds)
    for worker in found:
        said = f"{worker.name} ({', '.join(worker.queues)}) seen {worker.age:g} s ago" + (", lost" * worker.lost)
        output.emit_line(worker) if as_json else output.line(said)
    if all(worker.lost for worker in found):
        raise typer.Exit(NO_WORKER)


def add_ramdisk(app: typer.Typer) -> None:
    """Add `drydock ramdisk`."""
    group = typer.Typer(
        no_args_is_help=True, help="The ramdisk with which bare-metal hosts are erased and deployed: build."
    )
    group.command("build")(build_ramdisk)
    group.callback()(_ramdisk_group)
    app.add_typer(group, name="ramdisk", rich_help_panel="Installation")


def _ramdisk_group() -> None:
    """Build the ramdisk with which bare-metal hosts are erased and deployed."""


@guarded
def build_ramdisk(
    *,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Folder for the files; it is created.")],
    suite: Annotated[str, typer.Option("--suite", metavar="NAME", help="Debian release; by default that of apt.")] = "",
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="LINE", help="Source of packages as in sources.list, not apt's; repeatable."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="PACKAGE", help="Add a package, such as firmware of network cards; repeatable."),
    ] = None,
    like: Annotated[
        Path | None, typer.Option("--like", metavar="MANIFEST", help="Use the packages of this manifest.json.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Build the ramdisk from Debian's packages: kernel, initramfs, bootable image and manifest. Needs no root.

    [dim]drydock ramdisk build --to /srv/www/ramdisk[/dim]
    """
    from drydock.ramdisk import Request, build

    request = Request(to=to, suite=suite, sources=tuple(source or ()), add=tuple(add or ()), like=like)
    made = build(request, output.say)
    if as_json:
        return output.emit(made)
    output.line(f"{made.folder}: {made.packages} packages, Linux {made.kernel}, {made.sizes['ramdisk.iso'] >> 20} MiB")
    for name, digest in made.sha256.items():
        output.line(f"{digest}  {name}")
    return None


_TOLD_EACH = 10_000

Batch = Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Number of rows read at a time.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the number of remaining rows.")]


def add_secrets(app: typer.Typer) -> None:
    """Add `drydock secrets`."""
    group = typer.Typer(no_args_is_help=True, help="The key that encrypts stored secrets: rotate.")
    group.command("rotate")(rotate)
    app.add_typer(group, name="secrets", rich_help_panel="Installation")


@guarded
def rotate(*, batch: Batch = 200, dry_run: DryRun = False, as_json: o.AsJson = False) -> None:
    """Rewrite every stored secret under the first of DRYDOCK_ENCRYPTION_KEYS.

    The command can be interrupted and run again. The exit code is 1 while any secret is still encrypted with an older
    key; once it is 0, the older keys can be removed.
    """
    from drydock.cli.toolkit.session import ready_database, set_up, user

    set_up()
    ready_database()
    from drydock.core.rotation import rotate_all
    from leases.operations.callers import caller, operator_only

    operator_only(caller(user()), "rotate the encryption key")
    done = _followed(rotate_all(batch=batch, dry_run=dry_run), quiet=as_json)
    rotated = sum(one.rotated for one in done)
    if rotated:
        # Processes that do not have the new key yet may have stored secrets meanwhile.
        done = _followed(rotate_all(batch=batch, dry_run=True), quiet=True)
    left = sum(one.left for one in done)
    if as_json:
        kept = ("model", "rows", "left", "unreadable")
        models = [{name: getattr(one, name) for name in kept} for one in done]
        output.emit({"rotated": rotated, "left": left, "models": models})
    else:
        _tell_rotation(done, rotated, left)
    if left:
        raise typer.Exit(FAILURE)


def _followed(steps: Iterator[Progress], *, quiet: bool) -> list[Progress]:
    """Return the last progress of each model, and print progress as it is made."""
    found: dict[str, Progress] = {}
    told = 0
    for progress in steps:
        found[progress.model] = progress
        rows = sum(one.rows for one in found.values())
        if not quiet and rows >= told + _TOLD_EACH:
            told = rows
            output.say(f"{rows} rows read, {sum(one.rotated for one in found.values())} rotated; now {progress.model}.")
    return list(found.values())


def _tell_rotation(done: list[Progress], rotated: int, left: int) -> None:
    output.table(("model", "rows with secrets", "left"), [(one.model, one.rows, one.left) for one in done], empty="")
    for one in done:
        if one.unreadable:
            rows = ", ".join(one.unreadable)
            output.say(
                f"None of the keys can decrypt these rows of {one.model}: {rows}. Add the key that encrypted them to "
                f"the end of DRYDOCK_ENCRYPTION_KEYS."
            )
    output.line(f"{rotated} rotated, {left} left." + ("" if left else " Only the first key is needed now."))
