"""`drydock dpu services`: the services on a leased DPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from drydock.cli.dpu.chains import add_chains
from drydock.cli.dpu.credentials import add_credentials
from drydock.cli.dpu.networks import add_networks
from drydock.cli.dpu.volumes import add_volumes
from drydock.cli.dpu.vpcs import add_vpcs
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest
from drydock_client.values import DpuChart, DpuPort, DpuServiceInfo

Name = Annotated[str, typer.Argument(metavar="NAME", help="The service's name.")]

_LARGEST_FILE = 256 << 10


def add_dpu(app: typer.Typer) -> None:
    """Add `drydock dpu`."""
    group = typer.Typer(help="What runs on a leased DPU.", no_args_is_help=True)
    services = typer.Typer(help="Services on a leased DPU: apply, list, show, remove.", no_args_is_help=True)
    for name, command in (("apply", apply), ("list", list_), ("show", show), ("remove", remove)):
        services.command(name)(command)
    group.add_typer(services, name="services")
    add_chains(group)
    add_networks(group)
    add_volumes(group)
    add_vpcs(group)
    add_credentials(group)
    app.add_typer(group, name="dpu", rich_help_panel="Work")


@guarded
def apply(
    lease: o.LeaseId, name: Name, *,
    repository: Annotated[str, typer.Option(metavar="URL", help="Repository of the chart: oci:// or https://.")],
    chart: Annotated[str, typer.Option(help="Name of the chart.")],
    version: Annotated[str, typer.Option(help="Version of the chart.")],
    values: Annotated[
        str, typer.Option(metavar="FILE", help="Helm values as YAML or JSON; - is standard input.")
    ] = "",
    port: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PORT[/UDP]", help="Port of the service; repeatable.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Label of its pods; repeatable.")] = None,
    interface: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Network interface of its pods, for a chain to connect; repeatable."),
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Create a service, or change the one of this name. The same service again changes nothing.

    Does not wait until its pods run: `drydock dpu services show` prints the state.
    """
    there = DpuChart(repository=repository, name=chart, version=version)
    found = o.client().apply_dpu_service(
        lease,
        name,
        chart=there,
        values=_values(values),
        ports=_ports(port),
        labels=o.words(label, "label") or None,
        interfaces=interface or (),
    )
    output.emit(found) if as_json else output.line(_line(found))


@guarded
def list_(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """List the services of a lease."""
    found = o.client().dpu_services(lease)
    if as_json:
        return output.emit(found)
    rows: list[tuple[str, ...]] = [
        (s.name, s.state, f"{s.pods_ready}/{s.pods}", s.chart.name, s.chart.version, next(iter(s.messages), ""))
        for s in found
    ]
    columns: tuple[str, ...] = ("name", "state", "pods", "chart", "version", "message")
    if any(s.of_blueprint for s in found):
        owners = ["blueprint" if s.of_blueprint else "lease" for s in found]
        rows = [(row[0], of, *row[1:]) for row, of in zip(rows, owners, strict=True)]
        columns = ("name", "belongs to", *columns[1:])
    output.table(columns, rows, empty="No services.")
    return None


@guarded
def show(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Show a service: its state, why it is not ready, and its Helm values."""
    found = o.client().dpu_service(lease, name)
    if as_json:
        return output.emit(found)
    output.pairs(
        _line(found),
        [
            *((("belongs to", "the blueprint"),) if found.of_blueprint else ()),
            ("chart", f"{found.chart.repository}/{found.chart.name} {found.chart.version}"),
            ("ports", " ".join(f"{one.name}={one.port}/{one.protocol}" for one in found.ports)),
            ("labels", dict(found.labels)),
            ("interfaces", " ".join(found.interfaces)),
            *(("message", one) for one in found.messages),
            ("values", json.dumps(found.values, ensure_ascii=False) if found.values else ""),
        ],
    )
    return None


@guarded
def remove(lease: o.LeaseId, name: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a service. A missing service is not an error."""
    o.client().remove_dpu_service(lease, name)
    if as_json:
        output.emit({"removed": name})


def _line(found: DpuServiceInfo) -> str:
    return f"{found.name} {found.state} ({found.pods_ready} of {found.pods} pods)"


def _values(file: str) -> dict[str, Any] | None:
    """Read Helm values from a file. They are checked here as well, so that mistakes are shown without a request."""
    if not file:
        return None
    from blueprints.kube.yamltext import YamlRefused, documents
    from interfaces.dpu_services.helm import checked_values

    if file != "-" and not Path(file).is_file():
        raise InvalidRequest(f"{file} is not a file.", field="values")
    try:
        text = sys.stdin.read(_LARGEST_FILE + 1) if file == "-" else Path(file).read_text("utf-8")
        found = documents(text, most_bytes=_LARGEST_FILE)
    except (YamlRefused, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The values cannot be read. {error}", field="values") from None
    if len(found) > 1:
        raise InvalidRequest("The values are more than one document.", field="values")
    return checked_values(found[0] if found else {})


def _ports(given: list[str] | None) -> list[DpuPort]:
    found = []
    for name, text in o.words(given, "port").items():
        number, _, protocol = text.partition("/")
        if not (number.isascii() and number.isdigit() and len(number) < 6):
            raise InvalidRequest(f"{name}={text} is not of the form NAME=PORT or NAME=PORT/UDP.", field="port")
        found.append(DpuPort(name=name, port=int(number), protocol=protocol.upper() or "TCP"))
    return found
