"""`drydock provider validate` and `drydock validate host`: test suites against a real account or a real host."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output, waiting
from drydock.cli.toolkit.exits import FAILURE, guarded
from drydock.cli.toolkit.lease_run import seconds
from drydock.core.errors import DrydockError, InvalidRequest, TimedOut

if TYPE_CHECKING:
    from blueprints.cloud.validation.choosing import Asking
    from blueprints.cloud.validation.suite import Check
    from blueprints.cloud.validation.values import Finding, Report, Wish
    from blueprints.leftovers import Report as HostReport
    from drydock_client.protocol import Attendance, Client
    from leases.operations.validation import Account


_CHECK_COLOURS = {
    "passed": "green", "failed": "bold red", "not run": "red", "not supported": "dim", "skipped": "dim",
}  # fmt: skip

Image = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="KEY=VALUE", help="Field of the image, as in a blueprint; repeatable."),
]

Part = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CHECK", help="Run only this check and the checks that it requires; repeatable."),
]

Spared = Annotated[list[str] | None, typer.Option("--skip", metavar="CHECK", help="Skip this check; repeatable.")]

Kept = Annotated[
    list[str] | None,
    typer.Option(
        "--kept-type", metavar="REGION/TYPE", help="Instance type that the cloud must still offer; repeatable."
    ),
]

From = Annotated[
    list[str] | None,
    typer.Option("--ssh-from", metavar="NETWORK", help="Network that may reach the SSH port; repeatable."),
]


def add_provider(app: typer.Typer) -> None:
    """Add `drydock provider`."""
    group = typer.Typer(help="Test whether a cloud fulfils the provider contract.", no_args_is_help=True)
    group.command("validate")(validate_account)
    group.callback()(_provider_group)
    app.add_typer(group, name="provider", rich_help_panel="Operators")


def _provider_group() -> None:
    """Test whether a cloud fulfils the provider contract."""


@guarded
def validate_account(
    credential: Annotated[str, typer.Argument(metavar="CREDENTIAL")],
    *,
    kind: Annotated[str, typer.Option("--kind", help="The kind of cloud, if several match the credential.")] = "",
    region: Annotated[str, typer.Option("--region", help="Region; by default the first that is available.")] = "",
    type_: Annotated[str, typer.Option("--type", help="Instance type; by default the cheapest that is suitable.")] = "",
    other_type: Annotated[str, typer.Option("--other-type", help="Instance type to change to.")] = "",
    arch: Annotated[str, typer.Option("--arch", help="x86_64 or arm64.")] = "x86_64",
    image: Image = None,
    image_pattern: Annotated[
        str, typer.Option("--images", metavar="PATTERN", help="Name pattern for the check of images.")
    ] = "",
    disk: Annotated[
        int, typer.Option("--disk", metavar="GIB", min=0, help="Size of the boot disk; by default that of the image.")
    ] = 0,
    network: Annotated[str, typer.Option("--network", help="The cloud's subnet or network.")] = "",
    private: Annotated[bool, typer.Option("--private", help="Reach machines at their private addresses.")] = False,
    user: Annotated[
        str, typer.Option("--user", help="Name of the account that is created on the machines.")
    ] = "drydock",
    ssh_port: Annotated[int, typer.Option("--ssh-port", min=1, max=65535)] = 22,
    ssh_from: From = None,
    only: Part = None,
    skip: Spared = None,
    kept_type: Kept = None,
    max_price: Annotated[
        float | None,
        typer.Option("--max-price", metavar="DOLLARS", min=0.0, help="Maximum price per hour of each machine."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending money.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Only remove objects that earlier validations left.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Test everything that a cloud's client supports on a real account, and remove everything that this creates.

    Prints what would be created and its hourly cost, and asks before it spends money. The exit code is 1 if a check
    fails or something is left.

    [dim]drydock provider validate aws --region eu-central-1 --max-price 0.05[/dim]
    """
    from blueprints.cloud.validation.choosing import Asking
    from blueprints.cloud.validation.suite import chosen
    from drydock.core.logging import hidden

    wanted = chosen(only or (), skip or ())
    who = _operator()
    # Only now: Django has to be set up first.
    from leases.operations import validation

    account = validation.open_account(who, credential, kind=kind)
    with hidden(account.secrets), account.journal.held():
        if clean:
            return _cleaned(account, as_json)
        asked = Asking(
            image=account.image_words(o.words(image, "image")), location=region, type=type_, other_type=other_type,
            arch=arch, max_price=max_price, disk_gib=disk, network=network, user=user, ssh_port=ssh_port,
            ssh_from=tuple(ssh_from or ("0.0.0.0/0",)), public_address=not private, image_pattern=image_pattern,
            kept_types=tuple(kept_type or ()),
        )  # fmt: skip
        report = _run(account, asked, wanted, yes)
    validation.tell(who, account, report)
    _show_account_report(report, as_json)
    raise typer.Exit(0 if report.ok else FAILURE)


def _operator() -> Any:
    """Return the caller. Raises NotAllowed, and what `connect_here` raises."""
    from drydock.cli.toolkit.session import ready_database, set_up
    from drydock.cli.toolkit.session import user as user_here

    set_up()
    ready_database()
    from leases.operations.callers import caller

    return caller(user_here())


def _run(account: Account, asked: Asking, wanted: Collection[str], yes: bool) -> Report:
    from blueprints.cloud.validation.choosing import choose
    from blueprints.cloud.validation.environment import Environment
    from blueprints.cloud.validation.suite import Suite
    from drydock.cli.toolkit.exits import stoppable

    _tell_of_leftovers(account)
    wish = choose(account.client, asked)
    _agree(account, wish, wanted, yes)
    environment = Environment(account.client, wish, account.run_tags, account.journal)
    suite = Suite(environment, wanted=wanted, told=_progress)
    with ExitStack() as after:
        after.callback(lambda: _say_left(account, suite.left))
        with stoppable():
            return suite.run()


def _tell_of_leftovers(account: Account) -> None:
    if left := account.journal.unfinished():
        names = ", ".join(one.key for one in left)
        output.say(f"An earlier validation left objects behind: {names}. Remove them with --clean.")


def _agree(account: Account, wish: Wish, wanted: Collection[str], yes: bool) -> None:
    """Print the cost of the run, and ask for confirmation. Raises InvalidRequest if there is no terminal."""
    from blueprints.cloud.validation.choosing import cost, machines

    count = machines(wanted)
    output.say(f"{account.name} ({account.kind.name}): {account.client.identity()}")
    if not count:
        return output.say("These checks create nothing.")
    beside = f", once as {wish.other_type}" if wish.other_type and "change-type" in wanted else ""
    place = f"{wish.location}{' ' + wish.zone if wish.zone else ''}"
    output.say(f"The validation creates up to {count} machines, one after another: {wish.type}{beside} in {place}.")
    output.say(f"Image: {wish.image.id}. Disk: {wish.disk_gib} GiB each.")
    price = cost(wish, wanted)
    dollars = "not known" if price is None else f"at most ${price:.4f} per hour, without disks and addresses"
    output.say(f"Cost: {dollars}. Everything is removed afterwards.")
    if yes:
        return None
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "No terminal is available to confirm the cost.", field="yes", hint="Give --yes to confirm the cost."
        )
    typer.confirm("Continue?", abort=True, err=True)
    return None


def _progress(check: Check, finding: Finding | None) -> None:
    if finding is None:
        return output.say(f"{check.name} ... {check.asserts}")
    if finding.verdict not in ("skipped", "not supported"):
        output.say(f"{check.name}: {finding.verdict}. {finding.message} ({finding.seconds:.0f} s)")
    return None


def _say_left(account: Account, left: list[str]) -> None:
    """Print the objects that could not be removed. Called however the suite ended."""
    for sentence in left:
        output.say(f"LEFT: {sentence}")
    if left:
        output.say(f"Remove them: drydock provider validate {account.name} --kind {account.kind.name} --clean")


def _show_account_report(report: Report, as_json: bool) -> None:
    if as_json:
        return output.emit(report.to_json())
    rows = [(one.check, one.verdict.value, f"{one.seconds:.1f}", one.message) for one in report.findings]
    if sys.stdout.isatty():
        return output.console().print(_table(rows))
    return output.table(("check", "verdict", "seconds", "result"), rows)


def _table(rows: list[tuple[str, str, str, str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table("check", "verdict", "seconds", "result", box=box.SIMPLE_HEAD, pad_edge=False)
    for check, verdict, took, message in rows:
        made.add_row(check, Text(verdict, style=_CHECK_COLOURS.get(verdict, "")), took, Text(message))
    return made


def _cleaned(account: Account, as_json: bool) -> None:
    """Remove the objects that earlier runs have left at the provider."""
    from blueprints.cloud.validation.journal import clean

    gone, left = clean(account.client, account.run_tags, account.journal)
    if as_json:
        output.emit({"gone": gone, "left": left})
    else:
        output.line("\n".join(f"{name} is gone" for name in gone) or "Nothing was left.")
        for sentence in left:
            output.say(f"LEFT: {sentence}")
    raise typer.Exit(FAILURE if left else 0)


_ROW_COLOURS = {"ok": "green", "SURVIVED": "bold red", "shared": "yellow", "not possible": "dim"}

Only = Annotated[list[str] | None, typer.Option("--only", metavar="ROW", help="Run only this check; repeatable.")]

Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="ROW", help="Skip this check; repeatable.")]


def add_validate(app: typer.Typer) -> None:
    """Add `drydock validate`."""
    group = typer.Typer(help="Check whether leases leave anything behind on a host.", no_args_is_help=True)
    group.command("host")(validate_host)
    group.callback()(_validate_group)
    app.add_typer(group, name="validate", rich_help_panel="Operators")


def _validate_group() -> None:
    """Check whether leases leave anything behind on a host."""


@guarded
def validate_host(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")],
    *,
    require: o.Require = None,
    disk: o.Disk = None,
    only: Only = None,
    skip: Skip = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="SPAN", help="Timeout for each lease to become active, and to end.")
    ] = "10m",
    as_json: o.AsJson = False,
) -> None:
    """Plant files and processes with one lease, and check with the next lease that none of them remains.

    For blueprints of hosts, and of resources on hosts: storage, webroot, working_copy. It takes two or three leases and
    removes everything that it has planted, as far as the host allows. The exit code is 1 if anything remains.

    [dim]drydock validate host lab -r hostname=lab-1[/dim]
    """
    from drydock.cli.toolkit.exits import stoppable
    from drydock.cli.toolkit.session import connect_here

    client = connect_here()
    # Only now: Django has to be set up first.
    from leases.operations import validation

    rows = validation.chosen(only or (), skip or ())
    given = o.request(
        validation.type_of(client.who, blueprint), require=require, label=None, extra=None, public_key=None, until=None,
        key=None, charge=None, disk=disk, allowed_blueprints=[blueprint], name="validate-host",
    )  # fmt: skip
    with stoppable(), client.attended() as attended:
        tenants = _Tenants(client, attended, given, seconds(wait) or 0.0)
        report = validation.validate_leftovers(tenants, rows=rows, told=output.say)
    _show_host_report(report, as_json)
    raise typer.Exit(0 if report.ok else FAILURE)


class _Tenants:
    """Leases taken through the command line's client, as `leases.operations.validation.Tenants` requires."""

    def __init__(self, client: Client, attended: Attendance, given: dict[str, Any], limit: float) -> None:
        self._client, self._attended, self._given, self._limit = client, attended, given, limit
        self._ended: set[int] = set()

    def take(self) -> int:
        """Request a lease and return it once it is active. Raises LeaseFailed, TimedOut, NoWorker."""
        lease: int = self._client.request(self._given).id
        try:
            waiting.until_active(self._client, [lease], self._attended, limit=self._limit)
        except BaseException:
            self.end(lease)
            raise
        return lease

    def take_beside(self) -> int | None:
        """Request another lease and return it if it is granted at once, or else None."""
        if self._client.explain(self._given).outcome != "granted":
            return None
        try:
            return self.take()
        except DrydockError:
            return None

    def end(self, lease: int) -> None:
        """Release a lease and wait for its cleanup. Raises TimedOut."""
        if lease in self._ended:
            return
        self._ended.add(lease)
        self._client.release(lease)
        if not waiting.until_over(self._client, [lease], self._attended, limit=self._limit, quiet=False):
            raise TimedOut(
                f"Lease {lease} takes longer than expected to end.",
                hint=f"`drydock show {lease}` shows the reason.",
            )


def _show_host_report(report: HostReport, as_json: bool) -> None:
    if as_json:
        return output.emit(report.to_json())
    rows = [(one.row, one.verdict.value, one.message, one.proves) for one in report.findings]
    headers = ("row", "verdict", "result", "what it proves")
    if sys.stdout.isatty():
        output.COLOURS.update(_ROW_COLOURS)
    output.table(headers, rows)
    if report.unanswered:
        output.say(f"The search is not complete: {report.unanswered}")
    if report.survived:
        output.say(f"SURVIVED: {', '.join(report.survived)}. Remaining processes end after five minutes; all else "
            f"has {report.token} in its name.")  # fmt: skip
    return None
