"""`drydock provider`: whether a cloud behaves as the provider contract says, tried on a real account."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import FAILURE, guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from blueprints.cloud.validation.checks import Check
    from blueprints.cloud.validation.choosing import Asking
    from blueprints.cloud.validation.values import Finding, Report, Wish
    from leases.operations.validating import Account

_COLOURS = {
    "passed": "green", "failed": "bold red", "not run": "red", "not supported": "dim", "skipped": "dim",
}  # fmt: skip

Image = Annotated[
    list[str] | None,
    typer.Option("--image", metavar="KEY=VALUE", help="Words of the image, as a blueprint has them; repeatable."),
]
Part = Annotated[
    list[str] | None, typer.Option("--only", metavar="CHECK", help="This check and what it needs; repeatable.")
]
Spared = Annotated[list[str] | None, typer.Option("--skip", metavar="CHECK", help="Not this check; repeatable.")]
Kept = Annotated[
    list[str] | None,
    typer.Option("--kept-type", metavar="REGION/TYPE", help="This type has to be there still; repeatable."),
]
From = Annotated[list[str] | None, typer.Option("--ssh-from", metavar="NETWORK", help="Who may reach SSH; repeatable.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Clouds: whether one behaves as the provider contract says.", no_args_is_help=True)
    group.command("validate")(validate)
    group.callback()(_group)
    app.add_typer(group, name="provider", rich_help_panel="Operators")


def _group() -> None:
    """Clouds: whether one behaves as the provider contract says."""


@guarded
def validate(
    credential: Annotated[str, typer.Argument(metavar="CREDENTIAL")],
    *,
    kind: Annotated[str, typer.Option("--kind", help="The kind of cloud, where the credential does not tell.")] = "",
    region: Annotated[str, typer.Option("--region", help="Where; the first that is available.")] = "",
    type_: Annotated[str, typer.Option("--type", help="Instance type; the cheapest that will do.")] = "",
    other_type: Annotated[str, typer.Option("--other-type", help="What change-type makes of it.")] = "",
    arch: Annotated[str, typer.Option("--arch", help="x86_64 or arm64.")] = "x86_64",
    image: Image = None,
    image_pattern: Annotated[str, typer.Option("--images", metavar="PATTERN", help="For the check of images.")] = "",
    disk: Annotated[int, typer.Option("--disk", metavar="GIB", min=0, help="Boot disk; as the image says.")] = 0,
    network: Annotated[str, typer.Option("--network", help="The cloud's subnet or network.")] = "",
    private: Annotated[bool, typer.Option("--private", help="Reach machines at their private addresses.")] = False,
    user: Annotated[str, typer.Option("--user", help="The account that is made on them.")] = "drydock",
    ssh_port: Annotated[int, typer.Option("--ssh-port", min=1, max=65535)] = 22,
    ssh_from: From = None,
    only: Part = None,
    skip: Spared = None,
    kept_type: Kept = None,
    max_price: Annotated[
        float | None, typer.Option("--max-price", metavar="DOLLARS", min=0.0, help="An hour, for each machine.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Spend without asking.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Only end what earlier validations have left.")] = False,
    as_json: o.AsJson = False,
) -> None:
    """Try everything that a cloud says it can on a real account, and end what that made.

    It says what it would make and what that costs an hour, and asks before it spends. Ends with 1 when a check fails
    or something is left.

    [dim]drydock provider validate aws --region eu-central-1 --max-price 0.05[/dim]
    """
    from blueprints.cloud.validation.choosing import Asking
    from blueprints.cloud.validation.suite import chosen
    from drydock.core.logging import hidden

    wanted = chosen(only or (), skip or ())
    who = _operator()
    # Only now: Django has to be set up first.
    from leases.operations import validating

    account = validating.open_account(who, credential, kind=kind)
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
    validating.tell(who, account, report)
    _show(report, as_json)
    raise typer.Exit(0 if report.ok else FAILURE)


def _operator() -> Any:
    """Whoever runs this. Raises as `connect_here`, NotAllowed too."""
    from drydock.cli.session import ready_database, set_up
    from drydock.cli.session import user as user_here

    set_up()
    ready_database()
    from leases.operations.callers import caller

    return caller(user_here())


def _run(account: Account, asked: Asking, wanted: Collection[str], yes: bool) -> Report:
    from blueprints.cloud.validation.choosing import choose
    from blueprints.cloud.validation.ground import Ground
    from blueprints.cloud.validation.suite import Suite
    from drydock.cli.signals import stoppable

    _tell_of_leftovers(account)
    wish = choose(account.client, asked)
    _agree(account, wish, wanted, yes)
    ground = Ground(account.client, wish, account.marks, account.journal)
    suite = Suite(ground, wanted=wanted, told=_progress)
    with ExitStack() as after:
        after.callback(lambda: _say_left(account, suite.left))
        with stoppable():
            return suite.run()


def _tell_of_leftovers(account: Account) -> None:
    if left := account.journal.unfinished():
        names = ", ".join(one.key for one in left)
        output.say(f"An earlier validation has left {names}. --clean ends it.")


def _agree(account: Account, wish: Wish, wanted: Collection[str], yes: bool) -> None:
    """Say what is spent, and ask. Raises InvalidRequest where nobody can be asked."""
    from blueprints.cloud.validation.choosing import cost, machines

    count = machines(wanted)
    output.say(f"{account.name} ({account.kind.name}): {account.client.identity()}")
    if not count:
        return output.say("These checks make nothing.")
    beside = f", once as {wish.other_type}" if wish.other_type and "change-type" in wanted else ""
    place = f"{wish.location}{' ' + wish.zone if wish.zone else ''}"
    output.say(f"It makes up to {count} machines, one after another: {wish.type}{beside} in {place}.")
    output.say(f"Image: {wish.image.id}. Disk: {wish.disk_gib} GiB each.")
    price = cost(wish, wanted)
    dollars = "not known" if price is None else f"${price:.4f} an hour at the most, disks and addresses not counted"
    output.say(f"Cost: {dollars}. All of it is ended afterwards.")
    if yes:
        return None
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "Nobody can be asked whether to spend that.", field="yes", hint="--yes says so beforehand."
        )
    typer.confirm("Go on?", abort=True, err=True)
    return None


def _progress(check: Check, finding: Finding | None) -> None:
    if finding is None:
        return output.say(f"{check.name} ... {check.asserts}")
    if finding.verdict not in ("skipped", "not supported"):
        output.say(f"{check.name}: {finding.verdict}. {finding.message} ({finding.seconds:.0f} s)")
    return None


def _say_left(account: Account, left: list[str]) -> None:
    """In the end, whatever ended it."""
    for sentence in left:
        output.say(f"LEFT: {sentence}")
    if left:
        output.say(f"drydock provider validate {account.name} --kind {account.kind.name} --clean ends it.")


def _show(report: Report, as_json: bool) -> None:
    if as_json:
        return output.emit(report.to_json())
    rows = [(one.check, one.verdict.value, f"{one.seconds:.1f}", one.message) for one in report.findings]
    if sys.stdout.isatty():
        return output.console().print(_table(rows))
    return output.table(("check", "verdict", "seconds", "what was seen"), rows)


def _table(rows: list[tuple[str, str, str, str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table("check", "verdict", "seconds", "what was seen", box=box.SIMPLE_HEAD, pad_edge=False)
    for check, verdict, seconds, message in rows:
        made.add_row(check, Text(verdict, style=_COLOURS.get(verdict, "")), seconds, Text(message))
    return made


def _cleaned(account: Account, as_json: bool) -> None:
    """End what is left of earlier runs, and say so."""
    from blueprints.cloud.validation.ending import clean

    gone, left = clean(account.client, account.marks, account.journal)
    if as_json:
        output.emit({"gone": gone, "left": left})
    else:
        output.line("\n".join(f"{name} is gone" for name in gone) or "Nothing was left.")
        for sentence in left:
            output.say(f"LEFT: {sentence}")
    raise typer.Exit(FAILURE if left else 0)
