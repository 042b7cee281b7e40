"""Options shared by several commands, and the parsing of their values."""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from drydock.core import clock
from drydock.core.errors import InvalidRequest
from drydock.core.units import duration

if TYPE_CHECKING:
    from drydock_client.protocol import Client


Raw = Annotated[bool, typer.Option("--raw", help="Print every byte unchanged, even on a terminal.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

Owner = Annotated[str | None, typer.Option("--owner", help="For operators: act for this user.")]


class LeaseName(str):
    """The name of a lease, given instead of its number; `guarded` resolves it before the command begins."""


def lease_reference(given: int | str) -> int | LeaseName:
    """Return the number of a lease, or its name if the given text is not a number."""
    text = str(given)
    return int(text) if text.isascii() and text.isdigit() else LeaseName(text)


LeaseId: TypeAlias = Annotated[
    int, typer.Argument(metavar="LEASE", parser=lease_reference, help="The lease's number or name.")
]

LeaseOption: TypeAlias = Annotated[
    int | None, typer.Option("--lease", metavar="LEASE", parser=lease_reference, help="Only for this lease.")
]


def with_numbers(given: dict[str, Any]) -> dict[str, Any]:
    """Replace names of leases in a command's arguments with their numbers. Raises NotFound, Conflict."""
    if not any(isinstance(one, LeaseName) for value in given.values() for one in _listed(value)):
        return given
    known = client()
    return {
        name: [_number(known, one) for one in value] if isinstance(value, list) else _number(known, value)
        for name, value in given.items()
    }


def _number(known: Client, value: Any) -> Any:
    return known.named(value) if isinstance(value, LeaseName) else value


User = Annotated[str, typer.Option("--user", help="Name of the user.")]

Group = Annotated[str, typer.Option("--group", help="Name of the group.")]

Command = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Command to run.")]

_SIZE, _TIME, _WHERE, _REST = "Size", "Time", "Which", "More"

Type = Annotated[str, typer.Argument(metavar="TYPE", help="Type to lease: host, storage, webroot, ...")]

Require = Annotated[
    list[str] | None,
    typer.Option("--require", "-r", metavar="KEY=VALUE", help="Requirement; repeatable.", rich_help_panel=_WHERE),
]

Vcpus = Annotated[float | None, typer.Option("--vcpus", help="Processors.", rich_help_panel=_SIZE)]

Ram = Annotated[
    str | None, typer.Option("--ram", metavar="SIZE", help='Memory, such as "4GiB".', rich_help_panel=_SIZE)
]

Disk = Annotated[str | None, typer.Option("--disk", metavar="SIZE", help="Disk.", rich_help_panel=_SIZE)]

Slots = Annotated[int | None, typer.Option("--slots", help="Number of slots on the resource.", rich_help_panel=_SIZE)]

Extra = Annotated[
    list[str] | None,
    typer.Option(
        "--extra", metavar="CLASS=N", help="Amount of an additional class of capacity.", rich_help_panel=_SIZE
    ),
]

Exclusive = Annotated[
    bool,
    typer.Option("--exclusive", help="Lease the whole resource, not shared with other leases.", rich_help_panel=_SIZE),
]

Trait = Annotated[list[str] | None, typer.Option("--trait", help="Required trait.", rich_help_panel=_WHERE)]

Forbid = Annotated[list[str] | None, typer.Option("--forbid-trait", help="Forbidden trait.", rich_help_panel=_WHERE)]

Prefer = Annotated[list[str] | None, typer.Option("--prefer-trait", help="Preferred trait.", rich_help_panel=_WHERE)]

Blueprints = Annotated[
    list[str] | None, typer.Option("--blueprint", help="Allowed blueprint; repeatable.", rich_help_panel=_WHERE)
]

Exclude = Annotated[
    list[str] | None, typer.Option("--exclude-blueprint", help="Excluded blueprint.", rich_help_panel=_WHERE)
]

Ttl = Annotated[
    str | None,
    typer.Option(
        "--ttl", metavar="SPAN", help="Duration after the lease has become active, such as 2h.", rich_help_panel=_TIME
    ),
]

Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Latest end of the lease (ISO 8601).", rich_help_panel=_TIME),
]

WaitLimit = Annotated[
    str | None,
    typer.Option(
        "--wait-limit", metavar="SPAN", help="Give up if not granted within this time.", rich_help_panel=_TIME
    ),
]

Heartbeat = Annotated[
    str | None,
    typer.Option(
        "--heartbeat-limit",
        metavar="SPAN|none",
        rich_help_panel=_TIME,
        help="End the lease if no heartbeat arrives for this long. Default: 60s; "
        "no limit if --keep, --run or --container is given.",
    ),
]

Priority = Annotated[
    int, typer.Option("--priority", help="Priority from -100 to 100; higher is earlier.", rich_help_panel=_REST)
]

Name = Annotated[
    str, typer.Option("--name", help="A name that can be used instead of the number.", rich_help_panel=_REST)
]

Label = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label.", rich_help_panel=_REST)
]

Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="Idempotency key: a repeated request with the same key returns the same lease.",
        rich_help_panel=_REST,
    ),
]

PublicKey = Annotated[
    list[Path] | None,
    typer.Option("--public-key", metavar="FILE", help="Your own SSH public key.", rich_help_panel=_REST),
]

ServeAgain = Annotated[
    bool, typer.Option("--serve-again", help="Request the lease again if its resource is lost.", rich_help_panel=_REST)
]

Choose = Annotated[
    str,
    typer.Option(
        "--choose", metavar="order|price|fastest",
        help=("How to choose among blueprints that could build: the first in the operators' order, the cheapest, or "
            "the one that is ready soonest."),
        rich_help_panel=_REST,
    ),
]  # fmt: skip

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="TYPE:KEY=VALUE,...",
        help="Another resource to lease in the same request. Either all are granted or none. "
        "Example: accelerator:class=gpu,count=2. Repeatable.",
        rich_help_panel=_REST,
    ),
]  # fmt: skip

Same = Annotated[
    str,
    typer.Option(
        "--same", metavar="resource|parent|host|whole",
        help="With --count or --with: what the leases share. With --with the default is host. `whole` also builds what "
        "is missing on devices of the host, such as a DPU, and grants all leases once it is built.",
        rich_help_panel=_REST,
    ),
]  # fmt: skip

Near = Annotated[
    str,
    typer.Option(
        "--near", metavar="prefer|require",
        help="With --count or --with: lease devices of one host that are near one another. `prefer` takes the nearest "
        "that are free; `require` waits for devices that share a PCIe switch, root port, root bus or NUMA node.",
        rich_help_panel=_REST,
    ),
]  # fmt: skip

Run = Annotated[
    str | None,
    typer.Option("--run", metavar="LINE", help="Workload of the lease: one line for its shell.", rich_help_panel=_REST),
]

Container = Annotated[
    str,
    typer.Option(
        "--container", metavar="IMAGE",
        help="Workload in a container that podman runs on the host; COMMAND is passed to its entry point.",
        rich_help_panel=_REST,
    ),
]  # fmt: skip

Ports = Annotated[
    list[str] | None,
    typer.Option(
        "--port", metavar="PORT[/udp]",
        help="With --container or --archive: port that the host's firewall opens to the container.",
        rich_help_panel=_REST,
    ),
]  # fmt: skip

Archive = Annotated[
    str,
    typer.Option(
        "--archive", metavar="SHA256",
        help="Workload in a container, like --container, from an image archive that the workers have.",
        rich_help_panel=_REST,
    ),
]  # fmt: skip

Metrics = Annotated[
    bool,
    typer.Option("--metrics", help="Measure resource usage; workloads are always measured.", rich_help_panel=_REST),
]

Charge = Annotated[
    str | None,
    typer.Option("--charge", metavar="GROUP", help="Your group whose quota is charged as well.", rich_help_panel=_REST),
]


def client(owner: str | None = None) -> Client:
    """Return a client for the caller."""
    from drydock.cli.toolkit.session import connect

    return connect(owner)


def group(by_itself: Callable[..., None], said: str) -> typer.Typer:
    """Return a command group that runs `by_itself`, usually a listing, if it is called without a command."""
    made = typer.Typer(help=said, invoke_without_command=True)

    def listed(context: typer.Context, *, as_json: AsJson = False) -> None:
        if context.invoked_subcommand is None:
            by_itself(as_json=as_json)
        elif as_json:
            raise typer.BadParameter(f"goes after `{context.invoked_subcommand}`", param_hint="--json")

    made.callback()(listed)
    return made


def request(kind: str, **given: Any) -> dict[str, Any]:
    """Return the fields of a request, leaving out those that were not given."""
    fields = {
        "type": kind,
        "requirements": values(given.pop("require"), "require"),
        "labels": {k: str(v) for k, v in words(given.pop("label"), "label").items()},
        "extra": values(given.pop("extra"), "extra"),
        "public_keys": [_line(path) for path in given.pop("public_key") or ()],
        "until": moment(given.pop("until")),
        "idempotency_key": given.pop("key"),
        "charged_group": given.pop("charge"),
        **given,
    }
    return {name: value for name, value in fields.items() if value not in (None, {}, [], "", False)}


def words(given: list[str] | None, field: str) -> dict[str, str]:
    """Parse KEY=VALUE pairs with values as text."""
    found = {}
    for one in given or ():
        key, equal, value = one.partition("=")
        if not (key and equal):
            raise InvalidRequest(f"{one!r} is not of the form KEY=VALUE.", field=field)
        found[key] = value
    return found


def variables(given: list[str] | None) -> dict[str, str]:
    """Parse KEY=VALUE pairs as environment variables. Raises InvalidRequest before anything is requested."""
    from interfaces.launch import exports

    found = words(given, "env")
    exports(list(found.items()))
    return found


def values(given: list[str] | None, field: str) -> dict[str, Any]:
    """Parse KEY=VALUE pairs with values as JSON where possible. A repeated key becomes a list."""
    found: dict[str, Any] = {}
    for one in given or ():
        ((key, value),) = words([one], field).items()
        read = _value(value, field)
        found[key] = read if key not in found else [*_listed(found[key]), read]
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidRequest("The JSON value is nested too deeply.", field=field) from None
    except ValueError:
        return text


def moment(text: str | None) -> dt.datetime | None:
    """Parse a time; without a time zone it is local. Raises InvalidRequest."""
    if text is None:
        return None
    try:
        return dt.datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{text!r} is not a valid time.", field="until", hint="Write it like 2030-01-31T18:00."
        ) from None


def past(text: str) -> str | dt.datetime | None:
    """Parse a time. A date begins in the local time zone; a duration counts back from now."""
    if not text:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return dt.datetime.fromisoformat(text).astimezone()
    if re.fullmatch(r"([0-9.]+[smhdw])+", text):
        return clock.now() - duration(text)
    return text


def _line(path: Path) -> str:
    try:
        return path.expanduser().read_text().strip()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="public_key") from None


def document(path: str) -> dict[str, Any]:
    """Read a JSON object from a file, or from standard input for `-`.

    Return {} for an empty path. Raises InvalidRequest.
    """
    if not path:
        return {}
    try:
        read = json.loads(sys.stdin.read() if path == "-" else Path(path).expanduser().read_text())
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="file") from None
    except RecursionError:
        raise InvalidRequest(f"{path} is nested too deeply.", field="file") from None
    except ValueError as error:
        raise InvalidRequest(f"{path} is not valid JSON: {error}.", field="file") from None
    if not isinstance(read, dict):
        raise InvalidRequest(f"{path} does not contain a JSON object.", field="file")
    return read


def public_keys(paths: list[Path] | None) -> list[str]:
    """Return the public keys in these files. Raises InvalidRequest if a file cannot be read."""
    return [_line(path) for path in paths or ()]
