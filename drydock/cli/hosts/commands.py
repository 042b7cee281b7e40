"""The commands of `drydock hosts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.credentials import read_secrets
from drydock.cli.hosts import imports, validation
from drydock.cli.hosts.imports import Source
from drydock.cli.hosts.sensors import Host, Since, moment, sensors
from drydock.cli.resources import number, start_act
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import DrydockError, InvalidRequest, NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drydock.cli.hosts.rows import Row
    from drydock_client.values import ActInfo, ErasureInfo, ResourceInfo

Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE...", help="Its fields; nested ones as in bmc.address=10.0.1.7."),
]
Wait = Annotated[bool, typer.Option(help="Wait until it is done.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
_PAGE = 1000


def add_hosts(app: typer.Typer) -> None:
    """Add `drydock hosts`."""
    group = o.group(list_, "Bare-metal hosts: list, register, import, inspect, switch, rescue, erase, validate.")
    for name, command in (
        ("list", list_), ("register", register), ("import", import_), ("inspect", inspect),
        ("sensors", sensors), ("power", power),
        ("rescue", rescue), ("erase", erase), ("validate", validation.validate), ("records", records),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="hosts", rich_help_panel="Operators")


@guarded
def list_(
    *, blueprint: Annotated[str, typer.Option("--blueprint", help="Only hosts of this blueprint.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List hosts with their status: enrolling, available, deploying, in use, rescue, cleaning, quarantined, ..."""
    found = o.client().resources(type="host", blueprint=blueprint)
    if as_json:
        return output.emit(found)
    rows = [
        (
            one.id, one.name, one.blueprint, _place(one), _status(one), one.power, one.health, list(one.leases),
            " ".join((*one.problems, one.message)).strip(),
        )
        for one in found
    ]  # fmt: skip
    return output.table(
        ("id", "name", "blueprint", "place", "status", "power", "health", "leases", "message"), rows, empty="No hosts."
    )


def _place(one: ResourceInfo) -> str:
    return " ".join(str(one.attributes[name]) for name in ("rack", "position") if one.attributes.get(name))


def _status(one: ResourceInfo) -> str:
    percent = one.cleaning.percent if one.cleaning is not None else one.progress.percent if one.progress else None
    return one.status if percent is None else f"{one.status} {percent} %"


@guarded
def register(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")], fields: Fields = None,
    *, file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="JSON file; - is standard input.")] = "",
    secret: Annotated[
        list[str] | None,
        typer.Option("--credential", metavar="FIELD[=@FILE|=-]", help="A secret of its BMC; repeat for more."),
    ] = None,
    check_only: Annotated[bool, typer.Option("--dry-run", help="Only check the fields, and store nothing.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Register one host. `drydock blueprints schema KIND` shows the fields.

    [dim]drydock hosts register rack bmc.driver=ipmi bmc.address=10.0.1.7 --credential username[/dim]
    """
    given = imports.merged(o.document(file), nested(fields))
    if not given:
        raise InvalidRequest("Give the fields of the host as KEY=VALUE or as a file.", field="fields")
    if secret:
        given["credential"] = read_secrets(secret, "")
    if check_only:
        found = o.client().check_registration(blueprint, given)
        return output.emit(found) if as_json else output.line(f"{found.name} can be registered as {found.identity}")
    info = o.client().register(blueprint, given)
    return output.emit(info) if as_json else output.line(f"resource {info.id} {info.name} is {info.state}")


def nested(fields: list[str] | None) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; a key such as `bmc.address` sets a nested field, and a repeated one a list.

    A value is text unless it is a JSON object or list, because a serial number may look like a number.
    """
    found: dict[str, Any] = {}
    for name, value in _values(fields).items():
        *above, last = name.split(".")
        if (above or [last])[0] == "credential":
            raise InvalidRequest(
                "Do not give a secret on the command line, where other users of this machine can read it.", field=name,
                hint="hosts register: --credential password=@FILE. hosts import: a column of the file.",
            )  # fmt: skip
        layer: dict[str, Any] = {last: value}
        for part in reversed(above):
            layer = {part: layer}
        found = imports.merged(found, layer)
    return found


def _values(fields: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in fields or ():
        as_json = one.partition("=")[2][:1] in ("{", "[")
        ((name, value),) = (o.values if as_json else o.words)([one], "fields").items()
        before = found.get(name)
        found[name] = value if before is None else [*(before if isinstance(before, list) else [before]), value]
    return found


@guarded
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV, or JSON from Ironic or MAAS.")],
    common: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Fields that all of the hosts have.")
    ] = None,
    *, blueprint: Annotated[str, typer.Option("--blueprint", help="The blueprint to register the hosts with.")],
    format_: Annotated[
        str, typer.Option("--format", metavar="|".join(imports.FORMATS), help="Format of FILE.")
    ] = "auto",
    ports: Annotated[str, typer.Option("--ports", metavar="FILE", help="Ironic's ports, as JSON.")] = "",
    power_: Annotated[str, typer.Option("--power", metavar="FILE", help="MAAS's power parameters, as JSON.")] = "",
    fields: Annotated[
        str, typer.Option("--fields", metavar="FILE", help="CSV with further fields of hosts, by the column `name`.")
    ] = "",
    in_use: Annotated[
        bool, typer.Option("--in-use", help="Import hosts that Ironic or MAAS uses. Dangerous: they may be erased.")
    ] = False,
    check_only: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be registered, and store nothing.")
    ] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Register the hosts of a file, each independently of the others.

    Hosts that cannot be registered are named with their line and the reason, and the others are registered. The exit
    code is then 1. A repeated import registers only hosts that are not registered yet.

    [dim]drydock hosts import nodes.json --blueprint rack --ports ports.json --dry-run[/dim]
    """
    client = o.client()
    source = Source(file=file, format=format_, ports=ports, power=power_, fields=fields, in_use=in_use)
    rows = imports.read(source, imports.schema_of(client, blueprint), nested(common))
    done: list[Row] = []
    try:
        imports.carry_out(client, blueprint, rows, check_only=check_only, done=done.append)
    finally:
        _show(done, check_only=check_only, as_json=as_json)
    if refused := sum(bool(row.problem) for row in rows):
        outcome = "cannot be" if check_only else "were not"
        raise DrydockError(
            f"{refused} of {len(rows)} hosts {outcome} registered.", hint="Correct them and import again."
        )


def _show(rows: list[Row], *, check_only: bool, as_json: bool) -> None:
    if as_json:
        return output.emit([
            {
                "where": row.where, "name": row.name, "resource": row.resource, "problem": row.problem,
                "notes": row.notes, "registration": imports.shown(row.registration),
            }
            for row in rows
        ])  # fmt: skip
    table = [
        (row.where, row.name, _bmc_of(row), row.registration.get("serial", ""), _outcome(row, check_only), _says(row))
        for row in rows
    ]
    return output.table(("where", "name", "BMC", "serial", "outcome", "message"), table, empty="No hosts.")


def _bmc_of(row: Row) -> str:
    bmc = row.registration.get("bmc")
    if not isinstance(bmc, dict):
        return ""
    return " ".join(str(bmc[name]) for name in ("driver", "address", "system") if bmc.get(name))


def _outcome(row: Row, check_only: bool) -> str:
    if row.problem:
        return "refused"
    return "would be registered" if check_only else f"resource {row.resource}"


def _says(row: Row) -> str:
    return "; ".join(filter(None, (row.problem, *row.notes)))


@guarded
def inspect(host: Host, *, wait: Wait = True, as_json: o.AsJson = False) -> None:
    """Read the hardware of a host again, and record what has changed."""
    _act(host, "inspect", wait=wait, yes=True, as_json=as_json)


@guarded
def erase(host: Host, *, wait: Wait = True, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Erase all disks of a host that no lease holds, and prove it. `drydock hosts records` shows the proof."""
    _act(host, "erase", wait=wait, yes=yes, as_json=as_json)


@guarded
def rescue(
    host: Host,
    *, end: Annotated[bool, typer.Option("--end", help="End the rescue: boot the host from its disk again.")] = False,
    wait: Wait = True, yes: Yes = False, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Boot a host into the ramdisk, with the SSH keys of the owner of its lease."""
    _act(host, "unrescue" if end else "rescue", wait=wait, yes=yes, as_json=as_json)


def _act(host: str, name: str, *, wait: bool, yes: bool, as_json: bool) -> None:
    """Start an act of the host's kind. Raises NotSupported if the host does not offer the act."""
    client, pk = o.client(), number(host)
    offered: list[ActInfo] = client.acts(pk)
    if name not in {one.name for one in offered}:
        info = client.resource(pk)
        there = f"It offers: {', '.join(one.name for one in offered)}." if offered else "It offers no acts."
        raise NotSupported(
            f"{info.name or host} of kind {info.kind!r} does not offer the act {name!r}. {there}", capability="acts",
            field="host", hint="On bare metal, erase and rescue need a ramdisk in the config of the blueprint.",
        )  # fmt: skip
    found = start_act(str(pk), name, {}, wait=wait, yes=yes)
    output.emit(found) if as_json else output.line(f"{name}: {found.message}")


@guarded
def power(
    host: Host, wanted: Annotated[str, typer.Argument(metavar="on|off|cycle")], *, as_json: o.AsJson = False
) -> None:
    """Switch a host on or off, or cycle its power."""
    info = o.client().change_resource(number(host), "power", wanted=wanted)
    output.emit(info) if as_json else output.line(
        f"{info.name}: power {wanted} was requested; it is {info.power or 'unknown'}"
    )


@guarded
def records(
    *, host: Annotated[str, typer.Option("--host", metavar="HOST", help="Only disks of this host.")] = "",
    lease: o.LeaseOption = None,
    serial: Annotated[str, typer.Option("--serial", help="Only the disk with this serial number or WWN.")] = "",
    since: Since = "",
    unproven: Annotated[bool, typer.Option("--unproven", help="Only disks that are not proven to be erased.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print one JSON document in each line.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show the records of erased disks, oldest first. Owners see those of their own leases.

    The records of a host that was removed are found by its name or number.

    [dim]drydock hosts records --since 2026-01-01 --csv > erasures.csv[/dim]
    """
    if as_csv + as_lines + as_json > 1:
        raise InvalidRequest("Choose one of --csv, --jsonl and --json.", field="csv")
    by_number = host.isdecimal() and host.isascii()
    given: dict[str, Any] = {
        "resource": int(host) if by_number else None, "name": "" if by_number else host, "lease": lease,
        "serial": serial, "since": moment(since), "verified": False if unproven else None,
    }  # fmt: skip
    found = _all_records(given)
    if as_csv:
        return _csv(found)
    if as_lines:
        for one in found:
            output.emit_line(one)
        return None
    return output.emit(list(found)) if as_json else _tell(list(found))


def _all_records(given: dict[str, Any]) -> Iterator[ErasureInfo]:
    """Yield all records that match, reading them in pages."""
    client, after = o.client(), 0
    while page := client.erasures(**given, after=after, limit=_PAGE):
        yield from page
        after = page[-1].id


def _csv(found: Iterator[ErasureInfo]) -> None:
    from dataclasses import fields

    from drydock_client.values import ErasureInfo
    from leases.tables import lines

    names = [field.name for field in fields(ErasureInfo)]
    cells = ([_cell(getattr(one, name)) for name in names] for one in found)
    for line in lines(names, cells):
        output.line(line.removesuffix("\r\n"), end="\r\n")


def _cell(value: Any) -> Any:
    return "; ".join(value) if isinstance(value, tuple) else value


def _tell(found: list[ErasureInfo]) -> None:
    rows = [
        (
            one.id, one.ended_at, f"{one.resource_name or one.resource}", one.disk, one.serial or one.wwn, one.model,
            _size(one.size_bytes), one.method, "yes" if one.verified else "NO", one.lease or "", one.owner,
            one.requested_by, one.problem,
        )
        for one in found
    ]  # fmt: skip
    headers = (
        "id",
        "ended",
        "host",
        "disk",
        "serial",
        "model",
        "size",
        "method",
        "proven",
        "lease",
        "owner",
        "by",
        "problem",
    )
    output.table(headers, rows, empty="No disk was erased.")


def _size(size: int) -> str:
    return f"{size / 1e9:.0f} GB" if size >= 1e9 else f"{size} B" if size else ""
