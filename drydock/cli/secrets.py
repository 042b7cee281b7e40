"""`drydock secrets`: rotation of the key under which secrets are stored.

It works on the database of this machine's installation, also with `--server` set for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import FAILURE, guarded

if TYPE_CHECKING:
    from drydock.core.rotation import Progress

_TOLD_EACH = 10_000

Batch = Annotated[int, typer.Option("--batch", min=1, max=10_000, help="Rows read at a time.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what is left to do.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(no_args_is_help=True, help="The key under which secrets are stored: rotate.")
    group.command("rotate")(rotate)
    app.add_typer(group, name="secrets", rich_help_panel="Installation")


@guarded
def rotate(*, batch: Batch = 200, dry_run: DryRun = False, as_json: o.AsJson = False) -> None:
    """Rewrite every stored secret under the first of DRYDOCK_ENCRYPTION_KEYS; may be interrupted and started again.

    Exit code 1 while a secret is left under an older key; at 0 the older keys can be removed.
    """
    from drydock.cli.session import ready_database, set_up, user

    set_up()
    ready_database()
    from drydock.core.rotation import rotate_all
    from leases.operations.callers import caller, operator_only

    operator_only(caller(user()), "rotate the encryption key")
    done = _followed(rotate_all(batch=batch, dry_run=dry_run), quiet=as_json)
    rotated = sum(one.rotated for one in done)
    if rotated:
        # Processes that do not have the new key yet may have stored secrets meanwhile.
        done = _followed(rotate_all(batch=batch, dry_run=True), quiet=True)
    left = sum(one.left for one in done)
    if as_json:
        kept = ("model", "rows", "left", "unreadable")
        models = [{name: getattr(one, name) for name in kept} for one in done]
        output.emit({"rotated": rotated, "left": left, "models": models})
    else:
        _tell(done, rotated, left)
    if left:
        raise typer.Exit(FAILURE)


def _followed(steps: Iterator[Progress], *, quiet: bool) -> list[Progress]:
    """The last progress of every model; those before are told as they come."""
    found: dict[str, Progress] = {}
    told = 0
    for progress in steps:
        found[progress.model] = progress
        rows = sum(one.rows for one in found.values())
        if not quiet and rows >= told + _TOLD_EACH:
            told = rows
            output.say(f"{rows} rows read, {sum(one.rotated for one in found.values())} rotated; now {progress.model}.")
    return list(found.values())


def _tell(done: list[Progress], rotated: int, left: int) -> None:
    output.table(("model", "rows with secrets", "left"), [(one.model, one.rows, one.left) for one in done], empty="")
    for one in done:
        if one.unreadable:
            rows = ", ".join(one.unreadable)
            output.say(
                f"No key given decrypts these rows of {one.model}: {rows}. Add their key to the end of the list."
            )
    output.line(f"{rotated} rotated, {left} left." + ("" if left else " Only the first key is needed now."))
