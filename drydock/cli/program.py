"""The commands put together."""

from __future__ import annotations

import typer

from drydock.cli import (
    access,
    blueprints,
    budgets,
    credentials,
    events,
    files,
    fleet,
    holding,
    httpd,
    installation,
    instances,
    jobs,
    leasing,
    machine,
    offers,
    operating,
    orphans,
    places,
    provider,
    quotas,
    remote,
    resources,
    secrets,
    ssh,
    sshconfig,
    tokens,
    upkeep,
    usage,
    users,
    validating,
    work,
)
from drydock.cli import server as remote_server
from drydock.cli.exits import PlainGroup

app = typer.Typer(
    name="drydock",
    cls=PlainGroup,
    help="Leases on machines and on what stands on machines.\n\n"
    "Begin with `drydock demo`, then `drydock lease --help`.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failure, 2 bad request, 3 not found, 4 conflict, 5 timed out, "
    "6 refused or broken, 7 not allowed, 8 no worker; "
    "`lease`, `run` and `ssh` end with the exit code of the command they ran.",
)
for module in (
    leasing, instances, offers, places, holding, work, files, httpd, jobs, resources, blueprints, fleet, credentials,
    provider, validating, users, access, quotas, budgets, usage, events, upkeep, tokens, remote, installation,
    operating, secrets, orphans, machine, ssh, sshconfig,
):  # fmt: skip
    module.add_to(app)


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", help="Print the version and end.", is_eager=True),
    server: str = typer.Option(
        "",
        "--server",
        metavar="URL",
        envvar=remote_server.SERVER,
        help="Ask this server instead of this machine's engine.",
    ),
    ca: str = typer.Option(
        "",
        "--ca",
        metavar="FILE",
        envvar=remote_server.CA,
        help="With --server: trust these certificates, not the system's.",
    ),
    insecure: bool = typer.Option(
        False, "--insecure", help="With --server: send the token over plain HTTP, where others can read it."
    ),
) -> None:
    remote_server.choose(server, ca, insecure)
    if version:
        from importlib.metadata import version as installed

        from drydock import DISTRIBUTION

        typer.echo(f"drydock {installed(DISTRIBUTION)}")
        raise typer.Exit
