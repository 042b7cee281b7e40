"""Register the hosts of a file, each independently of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blueprints.identities import real
from drydock.cli.hosts import ironic, maas, spreadsheet
from drydock.cli.hosts.rows import Row, mapping, objects_of, read_json, read_text, wrong
from drydock.cli.toolkit.exits import is_a
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotSupported

if TYPE_CHECKING:
    from drydock_client.protocol import Client

FORMATS = ("auto", "csv", "ironic", "maas")
_PORTS = {"redfish": 443, "ipmi": 623}


@dataclass(frozen=True, kw_only=True)
class Source:
    """The files of an import, and how they are read."""

    file: str
    format: str = "auto"
    ports: str = ""
    """A file with Ironic's ports."""
    power: str = ""
    """A file with MAAS's power parameters."""
    fields: str = ""
    """A CSV file with further fields, by the column `name`."""
    in_use: bool = False


def schema_of(client: Client, blueprint: str) -> Mapping[str, Any]:
    """Return the JSON Schema of registrations with a blueprint. Raises NotFound, NotSupported."""
    kind = client.blueprint(blueprint).kind
    found = client.kind(kind).registration
    if not found:
        raise NotSupported(f"Resources of kind {kind!r} cannot be registered by hand.", field="blueprint")
    return found


def read(source: Source, schema: Mapping[str, Any], common: Mapping[str, Any]) -> list[Row]:
    """Return the hosts of a file, with the fields of the second file and those that all have in common.

    A host whose data cannot be used has a problem instead. Raises InvalidRequest if a file as a whole is unusable.
    """
    if source.format not in FORMATS:
        raise InvalidRequest(f"{source.format!r} is not a format. Choose one of: {', '.join(FORMATS)}.", field="format")
    rows = _of_format(source, schema)
    further = _further(source.fields, schema)
    known = {row.name for row in rows}
    if missing := [name for name in further if name not in known]:
        wrong(source.fields, f"{source.file} has no host {missing[0]!r}")
    for row in rows:
        row.registration = merged(row.registration, further.get(row.name, {}), common)
        if "ports" not in spreadsheet.mapping_of(schema) or not row.registration.get("ports"):
            row.registration.pop("ports", None)
    _refuse_twins(rows)
    return rows


def _of_format(source: Source, schema: Mapping[str, Any]) -> list[Row]:
    text = read_text(source.file)
    if source.format == "csv" or (source.format == "auto" and text.lstrip()[:1] not in ("[", "{")):
        _refuse_more(source, "ports", "power")
        return spreadsheet.read(text, source.file, schema)
    content = read_json(text, source.file)
    found = objects_of(content, source.file, f"{ironic.NODES}` or `{maas.MACHINES}")
    if source.format == "maas" or (source.format == "auto" and maas.is_machine(found[0])):
        _refuse_more(source, "ports")
        return maas.read(found, _power(source.power), in_use=source.in_use)
    if source.format == "auto" and not ironic.is_node(found[0]):
        wrong(source.file, f"it is neither the output of `{ironic.NODES}` nor that of `{maas.MACHINES}`")
    _refuse_more(source, "power")
    ports = read_json(read_text(source.ports), source.ports) if source.ports else []
    return ironic.read(found, objects_of(ports, source.ports, ironic.PORTS) if ports else [], in_use=source.in_use)


def _refuse_more(source: Source, *names: str) -> None:
    """Raise InvalidRequest for files that this format does not use."""
    for name in names:
        if getattr(source, name):
            raise InvalidRequest(f"--{name} does not apply to the format of {source.file}.", field=name)


def _power(path: str) -> Mapping[str, Any] | None:
    if not path:
        return None
    found = read_json(read_text(path), path)
    if not isinstance(found, Mapping):
        wrong(path, f"it is not the object that `{maas.POWER}` prints")
    return found


def _further(path: str, schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of the second file by the name of their host."""
    if not path:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for row in spreadsheet.read(read_text(path), path, schema):
        name = str(row.registration.get("name") or "")
        if row.problem:
            wrong(path, f"{row.where}: {row.problem}")
        if not name or name in found:
            wrong(path, f"{row.where}: {'the host occurs twice' if name else 'the column name is empty'}")
        found[name] = row.registration
    return found


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of several registrations; later ones take precedence, also within nested fields."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            below = found.get(name)
            both = isinstance(below, Mapping) and isinstance(value, Mapping)
            found[name] = merged(mapping(below), value) if both else value
    return found


def _refuse_twins(rows: Sequence[Row]) -> None:
    """Refuse each host that has the BMC, the serial number, the UUID or a MAC address of an earlier one."""
    seen: dict[tuple[str, str], Row] = {}
    for row in rows:
        for what, value in _names(row):
            if (other := seen.setdefault((what, value), row)) is not row:
                row.refuse(f"{other.where} ({other.name}) has the same {what} {value}")


def _names(row: Row) -> Iterator[tuple[str, str]]:
    bmc = mapping(row.registration.get("bmc"))
    if address := str(bmc.get("address") or bmc.get("mac") or ""):
        port = bmc.get("port") or _PORTS.get(str(bmc.get("driver")), "")
        parts = (bmc.get("driver"), bmc.get("program"), address.lower(), port, bmc.get("system"))
        yield "BMC", " ".join(str(one) for one in parts if one)
    for what in ("serial", "uuid"):
        if value := str(row.registration.get(what) or "").lower():
            yield what, value
    for mac in row.macs:
        named = real({"mac": mac})
        if named:
            yield "MAC address", named[0].value
        else:
            row.notes.append(f"the MAC address {mac[:40]!r} is none, or a placeholder")


def carry_out(
    client: Client, blueprint: str, rows: Sequence[Row], *, check_only: bool, done: Callable[[Row], None]
) -> None:
    """Register each host, or only check its registration. Calls `done` after each.

    A host that the server refuses gets a problem, and the others go on. Raises any error that concerns all hosts.
    """
    for row in rows:
        if not row.problem:
            try:
                _carry_out(client, blueprint, row, check_only)
            except DrydockError as error:
                if not is_a(error, InvalidRequest, Conflict):
                    raise
                row.refuse(_said(error))
        done(row)


def _carry_out(client: Client, blueprint: str, row: Row, check_only: bool) -> None:
    if check_only:
        row.name = client.check_registration(blueprint, row.registration).name
        return
    info = client.register(blueprint, row.registration)
    row.name, row.resource = info.name, info.id


def _said(error: DrydockError) -> str:
    field = getattr(error, "field", "")
    return f"{field}: {error}" if field and field not in str(error) else str(error)


def shown(registration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a registration without its secrets."""
    found: dict[str, Any] = json.loads(json.dumps(registration))
    if "credential" in found:
        found["credential"] = sorted(mapping(found["credential"]))
    return found
