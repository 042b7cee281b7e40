"""`drydock machine`: operations on the machine of a lease. `drydock access`: the SSH connection to a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest, TimedOut

if TYPE_CHECKING:
    from drydock_client.values import FailureInfo, MachineInfo


Machine = Annotated[
    int,
    typer.Argument(
        metavar="LEASE",
        parser=o.lease_reference,
        help="The lease's number or name; with --resource, the number of the resource.",
    ),
]

Resource = Annotated[bool, typer.Option("--resource", help="Treat the number as that of a resource. For operators.")]

Wait = Annotated[bool, typer.Option(help="Wait until the operation is done.")]

LONGEST, PAUSE = 3600.0, 0.5


def add_machines(app: typer.Typer) -> None:
    """Add `drydock machine` and `drydock access`."""
    group = typer.Typer(
        help="The machine of a lease: show, stop, start, reboot, resize, change-type, tag, console.",
        no_args_is_help=True,
    )
    for name, command in (
        ("show", show), ("stop", stop), ("start", start), ("reboot", reboot), ("resize", resize),
        ("change-type", change_type), ("tag", tag), ("console", console),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="machine", rich_help_panel="Leases")
    app.command("access", rich_help_panel="Leases")(access)


@guarded
def show(machine: Machine, *, resource: Resource = False, as_json: o.AsJson = False) -> None:
    """Show the machine of a lease, the operations it supports, and the result of the last one."""
    info = o.client().machine(machine, resource=resource)
    if as_json:
        return output.emit(info)
    return output.pairs(f"{info.name} {info.state}", _facts(info))


def _facts(info: MachineInfo) -> list[tuple[str, object]]:
    now = info.progress
    return [
        ("kind", info.kind), ("type", info.instance_type), ("price", info.price), ("power", info.power),
        ("power wanted", info.power_wanted), ("vcpus", info.cpu_millicores / 1000 or None),
        ("ram MiB", info.ram_mib or None), ("disk GiB", info.disk_gib or None), ("tags", dict(info.tags)),
        ("supports", list(info.capabilities)),
        ("now", "" if now is None else f"{now.phase} {now.step} {now.sentence}".strip()),
        ("last", f"{info.act} {info.outcome}: {info.message}" if info.act else ""),
        ("last failure", failure_text(info.failure)),
    ]  # fmt: skip


def failure_text(info: FailureInfo | None) -> str:
    """Return the last failed operation in the provider's words."""
    if info is None:
        return ""
    code = f" [{info.code}]" if info.code else ""
    times = "1 attempt" if info.attempts == 1 else f"{info.attempts} attempts"
    return f"{info.act}, {times} since {output.text(info.since)}: {info.message}{code}"


def _act(machine: int, act: str, *, resource: bool, wait: bool, as_json: bool, **given: Any) -> None:
    client = o.client()
    info = client.change_machine(machine, act, resource=resource, **given)
    if wait:
        with client.attended() as attended:
            info = _until_done(lambda: client.machine(machine, resource=resource), act, attended.look)
    if as_json:
        return output.emit(info)
    output.line(_sentence(info, act))
    return None


def _until_done(look: Callable[[], MachineInfo], act: str, alive: Callable[[], bool]) -> MachineInfo:
    """Wait until the operation is done, and return the machine.

    Raises DrydockError if the operation failed, TimedOut.
    """
    until, told = clock.monotonic() + LONGEST, ""
    while True:
        info = look()
        if info.progress is None and not _is_open(info, act):
            break
        works = alive()
        said = "no worker is running" if not works else info.progress.sentence if info.progress else ""
        if said and said != told:
            told = said
            output.say(f"{info.name}: {said}")
        if clock.monotonic() > until:
            raise TimedOut(
                f"The action {act} on {info.name} has not finished yet.",
                hint="`drydock machine show` shows its progress.",
            )
        clock.sleep(PAUSE)
    if act not in ("stop", "start") and info.outcome == "failed":
        raise DrydockError(info.message)
    if act == "stop" and info.power_wanted != "off":
        said = info.failure.message if info.failure and info.failure.act == "stop" else ""
        raise DrydockError(f"{info.name} could not be stopped. {said}".strip())
    return info


def _is_open(info: MachineInfo, act: str) -> bool:
    if act in ("stop", "start"):
        return bool(info.power_wanted) and info.power != info.power_wanted
    return info.outcome == "asked"


def _sentence(info: MachineInfo, act: str) -> str:
    if info.progress is not None:
        return f"{info.name}: {act} is under way"
    if act in ("stop", "start"):
        return (
            f"{info.name} is {info.power}" if info.power == info.power_wanted else f"{info.name}: {act} was requested"
        )
    return f"{info.name}: {info.message}"


@guarded
def stop(machine: Machine, *, resource: Resource = False, wait: Wait = True, as_json: o.AsJson = False) -> None:
    """Stop the machine, and keep it stopped. Its disk is kept."""
    _act(machine, "stop", resource=resource, wait=wait, as_json=as_json)


@guarded
def start(machine: Machine, *, resource: Resource = False, wait: Wait = True, as_json: o.AsJson = False) -> None:
    """Start the machine. Its address may change: `drydock access`."""
    _act(machine, "start", resource=resource, wait=wait, as_json=as_json)


@guarded
def reboot(machine: Machine, *, resource: Resource = False, wait: Wait = True, as_json: o.AsJson = False) -> None:
    """Reboot the machine."""
    _act(machine, "reboot", resource=resource, wait=wait, as_json=as_json)


@guarded
def resize(
    machine: Machine, disk_gib: Annotated[int, typer.Argument(metavar="GIB", help="New size of the disk.")], *,
    resource: Resource = False, wait: Wait = True, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Enlarge the boot disk, which cannot shrink. The guest's file system grows at its next boot."""
    _act(machine, "resize", resource=resource, wait=wait, as_json=as_json, disk_gib=disk_gib)


@guarded
def change_type(
    machine: Machine, type_name: Annotated[str, typer.Argument(metavar="TYPE", help="For example m6i.large.")], *,
    resource: Resource = False, wait: Wait = True, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Change the instance type within the zone: the machine is stopped, and started again if it was on."""
    _act(machine, "change-type", resource=resource, wait=wait, as_json=as_json, type_name=type_name)


@guarded
def tag(
    machine: Machine, tags: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="Tags to set.")], *,
    resource: Resource = False, wait: Wait = True, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Set tags at the provider; other tags stay."""
    _act(machine, "tags", resource=resource, wait=wait, as_json=as_json, tags=o.words(tags, "tags"))


@guarded
def console(machine: Machine, *, resource: Resource = False, as_json: o.AsJson = False) -> None:
    """Print the newest 64 KiB of the machine's console output. Every call is recorded."""
    info = o.client().console(machine, resource=resource)
    if as_json:
        return output.emit(info)
    return output.line(info.text.replace("\r\n", "\n"), end="")


@guarded
def access(
    lease: o.LeaseId, *,
    known_hosts: Annotated[bool, typer.Option("--known-hosts", help="Print lines for ~/.ssh/known_hosts only.")]
    = False,
    ssh_config: Annotated[bool, typer.Option("--ssh-config", help="Print an entry for ~/.ssh/config only.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show how to reach a lease by SSH: host, port, user, host keys, end of the lease. Contains no secret."""
    if known_hosts + ssh_config + as_json > 1:
        raise InvalidRequest("Give one of --json, --known-hosts and --ssh-config.", field="access")
    info = o.client().access(lease)
    if as_json:
        return output.emit(info)
    if known_hosts or ssh_config:
        output.line(info.known_hosts if known_hosts else info.ssh_config, end="")
        return None
    return output.pairs(
        info.command,
        [
            ("host", info.host), ("port", info.port), ("user", info.user), ("home", info.home),
            ("host keys", [one.fingerprint for one in info.host_keys]), ("valid until", info.valid_until),
            ("key", "your own" if info.own_keys else f"drydock key {lease}"),
        ],
    )  # fmt: skip
