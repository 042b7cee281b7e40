"""The `drydock` program, with its commands in the order of `drydock --help`."""

from __future__ import annotations

import typer

from drydock.cli import (
    agents,
    attestation,
    blueprints,
    clouds,
    console,
    costs,
    credentials,
    dpu,
    events,
    fleet,
    hardware,
    hosts,
    installation,
    interfaces,
    jobs,
    kube,
    leases,
    machines,
    permissions,
    resources,
    ssh,
    users,
    validation,
)
from drydock.cli.toolkit import session
from drydock.cli.toolkit.exits import PlainGroup

app = typer.Typer(
    name="drydock",
    cls=PlainGroup,
    help="Lease machines, and the accounts, folders, sites and repositories on them.\n\n"
    "Start with `drydock demo`, then `drydock lease --help`.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failure, 2 bad request, 3 not found, 4 conflict, 5 timed out, "
    "6 refused or broken, 7 not allowed, 8 no worker; "
    "`lease`, `run` and `ssh` end with the exit code of the command they ran.",
)
# The order is that of `drydock --help`.
for add in (
    leases.add_requests, clouds.add_instances, clouds.add_offers, clouds.add_locations, leases.add_leases,
    interfaces.add_run, interfaces.add_files, interfaces.add_httpd, dpu.add_dpu, jobs.add_jobs,
    resources.add_resources, hosts.add_hosts, blueprints.add_blueprints, fleet.add_fleet,
    credentials.add_credentials, agents.add_agents,
    validation.add_provider, validation.add_validate, users.add_users, permissions.add_authorizations,
    permissions.add_quotas, costs.add_budgets, costs.add_usage, events.add_events, events.add_upkeep,
    users.add_tokens, users.add_login, installation.add_installation, installation.add_operating,
    installation.add_ramdisk, installation.add_secrets, fleet.add_orphans, hardware.add_hardware,
    machines.add_machines, console.add_console, attestation.add_attest, kube.add_kube, ssh.add_ssh, ssh.add_ssh_config,
):  # fmt: skip
    add(app)


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    server: str = typer.Option(
        "",
        "--server",
        metavar="URL",
        envvar=session.SERVER,
        help="Use this server instead of the engine on this machine.",
    ),
    ca: str = typer.Option(
        "",
        "--ca",
        metavar="FILE",
        envvar=session.CA,
        help="With --server: trust these certificates instead of the system's.",
    ),
    insecure: bool = typer.Option(
        False, "--insecure", help="With --server: send the token over plain HTTP, where others can read it."
    ),
) -> None:
    session.choose(server, ca, insecure)
    if version:
        from importlib.metadata import version as installed

        from drydock import DISTRIBUTION

        typer.echo(f"drydock {installed(DISTRIBUTION)}")
        raise typer.Exit
