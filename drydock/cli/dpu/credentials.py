"""`drydock dpu credentials`: credentials of a leased DPU for its DPU cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded

Name = Annotated[str, typer.Argument(metavar="NAME", help="The credential's name.")]


def add_credentials(group: typer.Typer) -> None:
    """Add `drydock dpu credentials`."""
    commands = typer.Typer(help="Credentials for the DPU cluster: request, list, show, remove.", no_args_is_help=True)
    for name, command in (("request", request), ("list", list_), ("show", show), ("remove", remove)):
        commands.command(name)(command)
    group.add_typer(commands, name="credentials")


@guarded
def request(
    lease: o.LeaseId, name: Name, *,
    ttl: Annotated[str, typer.Option(metavar="TIME", help="How long it is valid, from 10m to the config's limit.")] = (
        "1h"
    ),
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Request a credential. It is issued some seconds later: `drydock dpu credentials show` then prints it, once."""
    found = o.client().request_dpu_credential(lease, name, ttl=ttl)
    output.emit(found) if as_json else output.line(f"{found.name} {found.state} until {output.text(found.expires_at)}")


@guarded
def list_(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """List the credentials of a lease, without their secrets."""
    found = o.client().dpu_credentials(lease)
    if as_json:
        return output.emit(found)
    rows = [(one.name, one.state, output.text(one.expires_at), next(iter(one.messages), "")) for one in found]
    output.table(("name", "state", "until", "message"), rows, empty="No credentials.")
    return None


@guarded
def show(lease: o.LeaseId, name: Name) -> None:
    """Print the kubeconfig of a credential. Only the owner of the lease may do this, once, and it is recorded."""
    output.line(o.client().read_dpu_credential(lease, name), end="")


@guarded
def remove(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a credential. A missing credential is not an error."""
    o.client().remove_dpu_credential(lease, name)
    if as_json:
        output.emit({"removed": name})
