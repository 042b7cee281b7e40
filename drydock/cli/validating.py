"""`drydock validate`: whether anything that a lease leaves on a host is there for the next one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output, waiting
from drydock.cli.errand import seconds
from drydock.cli.exits import FAILURE, guarded
from drydock.core.errors import DrydockError, TimedOut

if TYPE_CHECKING:
    from blueprints.leftovers import Report
    from leases.client import Client
    from leases.client.protocol import Attendance

_COLOURS = {"ok": "green", "SURVIVED": "bold red", "shared": "yellow", "not possible": "dim"}

Only = Annotated[list[str] | None, typer.Option("--only", metavar="ROW", help="Only this row; repeatable.")]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="ROW", help="Not this row; repeatable.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Hosts: whether anything outlives a lease there.", no_args_is_help=True)
    group.command("host")(host)
    group.callback()(_group)
    app.add_typer(group, name="validate", rich_help_panel="Operators")


def _group() -> None:
    """Hosts: whether anything outlives a lease there."""


@guarded
def host(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")],
    *,
    require: o.Require = None,
    disk: o.Disk = None,
    only: Only = None,
    skip: Skip = None,
    wait: Annotated[str, typer.Option("--wait", metavar="SPAN", help="For each lease to begin, and to end.")] = "10m",
    as_json: o.AsJson = False,
) -> None:
    """Plant what could survive a lease by one lease, and look for it by the next.

    For blueprints of hosts, and of what stands on hosts: storage, webroot, working_copy. It takes two or three leases
    and removes what it has planted, as far as the host lets it. Ends with 1 when something survived.

    [dim]drydock validate host lab -r hostname=lab-1[/dim]
    """
    from drydock.cli.session import connect_here
    from drydock.cli.signals import stoppable

    client = connect_here()
    # Only now: Django has to be set up first.
    from leases.operations import leftovers

    rows = leftovers.chosen(only or (), skip or ())
    given = o.request(
        leftovers.type_of(client.who, blueprint), require=require, label=None, extra=None, public_key=None, until=None,
        key=None, charge=None, disk=disk, allowed_blueprints=[blueprint], name="validate-host",
    )  # fmt: skip
    with stoppable(), client.attended() as attended:
        tenants = _Tenants(client, attended, given, seconds(wait) or 0.0)
        report = leftovers.validate(tenants, rows=rows, told=output.say)
    _show(report, as_json)
    raise typer.Exit(0 if report.ok else FAILURE)


class _Tenants:
    """Leases as the command line takes them (`leases.operations.leftovers.Tenants`)."""

    def __init__(self, client: Client, attended: Attendance, given: dict[str, Any], limit: float) -> None:
        self._client, self._attended, self._given, self._limit = client, attended, given, limit
        self._ended: set[int] = set()

    def take(self) -> int:
        """A lease, once it is active. Raises LeaseFailed, TimedOut, NoWorker."""
        lease: int = self._client.request(self._given).id
        try:
            waiting.until_active(self._client, [lease], self._attended, limit=self._limit)
        except BaseException:
            self.end(lease)
            raise
        return lease

    def take_beside(self) -> int | None:
        """One more, where it is granted at once."""
        if self._client.explain(self._given).outcome != "granted":
            return None
        try:
            return self.take()
        except DrydockError:
            return None

    def end(self, lease: int) -> None:
        """Release it, and wait for its cleaning. Raises TimedOut."""
        if lease in self._ended:
            return
        self._ended.add(lease)
        self._client.release(lease)
        if not waiting.until_over(self._client, [lease], self._attended, limit=self._limit, quiet=False):
            raise TimedOut(f"The end of lease {lease} takes longer.", hint=f"`drydock show {lease}` says why.")


def _show(report: Report, as_json: bool) -> None:
    if as_json:
        return output.emit(report.to_json())
    rows = [(one.row, one.verdict.value, one.message, one.proves) for one in report.findings]
    headers = ("row", "verdict", "what was seen", "what it proves")
    if sys.stdout.isatty():
        output.COLOURS.update(_COLOURS)
    output.table(headers, rows)
    if report.unanswered:
        output.say(f"The look is not complete: {report.unanswered}")
    if report.survived:
        output.say(f"SURVIVED: {', '.join(report.survived)}. Processes of it end after five minutes; "
                   f"the rest has {report.token} in its name.")  # fmt: skip
    return None
