"""Commands about the installation itself: doctor, up, demo, worker, migrate."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import FAILURE, guarded

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, command in (("demo", demo), ("up", up), ("worker", worker), ("doctor", doctor), ("migrate", migrate)):
        app.command(name, rich_help_panel="Installation")(command)


@guarded
def demo() -> None:
    """Lease a host, a directory and a web site on this machine, use them, give all back. Touches no other data."""
    from drydock.demo import main

    raise typer.Exit(main())


@guarded
def up() -> None:
    """Engines, web, workers and beat in the foreground, until Ctrl-C."""
    from drydock.up import main

    raise typer.Exit(main())


@guarded
def worker(
    *, concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", min=1, help="Processes.")] = None,
    queues: Annotated[str, typer.Option("--queues", "-Q", help="Comma separated.")] = "claims,steps,periodic",
    beat: Annotated[bool, typer.Option(help="Also send the sweep; one worker of an installation is enough.")] = True,
) -> None:  # fmt: skip
    """A worker in the foreground, for servers of your own. Ctrl-C finishes what is in hand."""
    from drydock.cli.session import ready_database, set_up

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
    """Look at engines, migrations, workers, clock and keys, and say how to mend what is wrong."""
    from drydock.cli.session import set_up

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
    """Bring the database to this version. On servers of your own its operator runs this; private ones do it alone."""
    from drydock.cli import session

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
