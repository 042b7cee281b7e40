"""`drydock hosts validate`: the behaviour suite of one server, as an act that workers carry out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.resources import number, start_act
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import FAILURE, guarded
from drydock.core.errors import DrydockError, InvalidRequest

if TYPE_CHECKING:
    from drydock_client.values import ResourceInfo

_ACT = "validate"
FACT_NAME = "validation"
"""Name of the fact of a host with the record of its last validation. Owners of leases do not see it."""
_COLOURS = {"ok": "green", "FAILED": "bold red", "not possible": "dim"}

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CHECK", help="Run only this check and the checks that it requires; repeatable."),
]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="CHECK", help="Skip this check; repeatable.")]


@guarded
def validate(
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host's number or name, as a resource.")],
    *, only: Only = None, skip: Skip = None,
    erase: Annotated[
        bool | None,
        typer.Option("--erase/--no-erase", help="Also deploy an image, and erase all fixed disks. Default: ask."),
    ] = None,
    medium: Annotated[
        str, typer.Option("--medium", metavar="URL", help="Image for the check of virtual drives.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before the host is switched.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Test on an idle server whether its BMC, its ramdisk and its disks do what Drydock relies on.

    The host serves no lease meanwhile, and is switched several times. Disks are erased only with --erase, or if you
    confirm it. The exit code is 1 if a check fails.

    [dim]drydock hosts validate alpha --only boot-once --only media[/dim]
    """
    client, pk = o.client(), number(host)
    before = client.resource(pk)
    _agree(before, yes)
    given = {"only": only or [], "skip": skip or [], "medium": medium, "erase": _may_erase(before, erase, yes)}
    problem: DrydockError | None = None
    try:
        start_act(str(pk), _ACT, given, wait=True, yes=True)
    except KeyboardInterrupt:
        output.say(f"The validation goes on. `drydock resources acts {pk}` shows how far it is.")
        raise
    except DrydockError as error:
        problem = error
    after = client.resource(pk)
    record = after.facts.get(FACT_NAME, {})
    if problem is not None and record.get("began_at") == before.facts.get(FACT_NAME, {}).get("began_at"):
        raise problem
    told = report(after, record, problem.message if problem else "")
    _show(told, as_json=as_json)
    raise typer.Exit(0 if told["ok"] else FAILURE)


def _agree(host: ResourceInfo, yes: bool) -> None:
    """Ask before the host is switched. Raises InvalidRequest if there is no terminal."""
    if yes:
        return
    what = f"{host.name} is switched on and off several times"
    if not sys.stdin.isatty():
        raise InvalidRequest(
            f"No terminal is available to confirm that {what}.", field="yes", hint="Give --yes to confirm it."
        )
    typer.confirm(f"{what}, and serves no lease meanwhile. Continue?", abort=True, err=True)


def _may_erase(host: ResourceInfo, erase: bool | None, yes: bool) -> bool:
    """Return whether disks may be erased: only if an option or a person says so."""
    if erase is not None or yes or not sys.stdin.isatty():
        return bool(erase)
    if "erase" not in {one.name for one in o.client().acts(host.id)}:
        return False
    return typer.confirm(
        f"Also deploy an image on {host.name} and ERASE ALL ITS FIXED DISKS? Their content is lost.", err=True
    )


def report(host: ResourceInfo, record: dict[str, Any], problem: str) -> dict[str, Any]:
    """Return the result of a validation as a JSON object."""
    from blueprints.baremetal.validation import CHECKS

    proves = {one.name: one.proves for one in CHECKS}
    rows: dict[str, Any] = record.get("rows", {})
    # The database does not keep the order of the rows.
    order = sorted(rows, key=lambda name: list(proves).index(name) if name in proves else len(proves))
    verdicts = [rows[name]["verdict"] for name in order]
    failed = [name for name in order if rows[name]["verdict"] == "FAILED"]
    return {
        "host": host.name, "resource": host.id, "ok": not failed and not problem and "ok" in verdicts,
        "failed": failed, "problem": problem, "began_at": record.get("began_at", ""),
        "ended_at": record.get("ended_at", ""),
        "checks": [{"check": name, **rows[name], "proves": proves.get(name, "")} for name in order],
    }  # fmt: skip


def _show(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        return output.emit(told)
    if sys.stdout.isatty():
        output.COLOURS.update(_COLOURS)
    rows = [(one["check"], one["verdict"], one["message"], one["proves"]) for one in told["checks"]]
    output.table(("check", "verdict", "result", "what it proves"), rows)
    if told["failed"]:
        output.say(f"FAILED: {', '.join(told['failed'])}.")
    if told["problem"]:
        output.say(told["problem"])
    return None
