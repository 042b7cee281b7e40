"""`drydock credentials`: secrets that blueprints name, read from a file, standard input or a prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.values import CredentialInfo


Name = Annotated[str, typer.Argument(metavar="CREDENTIAL")]

Secrets = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIELD[=@FILE|=-]...", help="FIELD=@FILE: a file; FIELD=-: stdin; FIELD: prompted for."),
]  # fmt: skip

File = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE", help="All fields as a JSON object; - is standard input.")
]

Note = Annotated[str | None, typer.Option("--note", help="Purpose of the credential.")]


def add_credentials(app: typer.Typer) -> None:
    """Add `drydock credentials`."""
    group = o.group(list_, "Secrets that blueprints name: list, show (without them), add, replace, read, remove.")
    for name, command in (
        ("list", list_), ("show", show), ("add", add), ("replace", replace), ("read", read), ("remove", remove)
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="credentials", rich_help_panel="Operators")


@guarded
def list_(*, as_json: o.AsJson = False) -> None:
    """List credentials, without their secrets."""
    found = o.client().credentials()
    if as_json:
        return output.emit(found)
    rows = [(c.name, list(c.fields), list(c.used_by), output.ago(c.created_at), _health(c), c.note) for c in found]
    return output.table(("name", "fields", "used by", "added", "read", "note"), rows, empty="No credentials.")


def _health(info: CredentialInfo) -> str:
    """Summarize the polls that use a credential."""
    failed = [one for one in info.readings if one.message]
    if failed:
        return f"{len(failed)} of {len(info.readings)} fail"
    seen = sorted(one.seen_at for one in info.readings if one.seen_at is not None)
    return output.ago(seen[0]) if seen else "not yet" if info.readers else ""


@guarded
def show(credential: Name, *, as_json: o.AsJson = False) -> None:
    """Show a credential without its secrets: the capabilities of its clouds, and the state of its polls and watches."""
    _tell(o.client().credential(credential), as_json)


def _tell(info: CredentialInfo, as_json: bool) -> None:
    if as_json:
        return output.emit(info)
    facts = [
        ("fields", list(info.fields)), ("used by", list(info.used_by)), ("added", info.created_at), ("note", info.note)
    ]  # fmt: skip
    abilities = [(f"{one.kind} can", list(one.capabilities or ()) or one.problem) for one in info.readers]
    output.pairs(info.name, [*facts, *abilities])
    if info.readings:
        rows = [
            (r.what, r.place, output.ago(r.seen_at) or "never", r.found, output.ago(r.due_at), r.message)
            for r in info.readings
        ]
        output.line()
        output.table(("read", "place", "last", "found", "next", "last error"), rows)
    if info.watches:
        watched = [
            (w.place, w.worker, *(output.ago(at) or "never" for at in (w.since, w.event_at, w.listed_at)), w.message)
            for w in info.watches
        ]
        output.line()
        output.table(("watched", "by worker", "since", "last change", "last listing", "error"), watched)
    return None


@guarded
def add(
    credential: Name, secrets: Secrets = None, *, file: File = "", note: Note = None, as_json: o.AsJson = False
) -> None:
    """Store secrets under a name, encrypted.

    Secrets are never given on the command line itself, where other users of the machine could read them.

    [dim]drydock credentials add lab private_key=@$HOME/.ssh/lab[/dim]
    """
    _tell(o.client().add_credential(credential, read_secrets(secrets, file), note=note or ""), as_json)


@guarded
def replace(
    credential: Name, secrets: Secrets = None, *, file: File = "", note: Note = None, as_json: o.AsJson = False
) -> None:
    """Replace all stored secrets; blueprints that name the credential use the new ones from their next step on."""
    given = read_secrets(secrets, file) if secrets or file else None
    if given is None and note is None:
        raise InvalidRequest(
            "Give secret fields as FIELD=@FILE (a file), FIELD=- (standard input) or FIELD (a prompt), or a --note.",
            field="secrets",
        )
    _tell(o.client().change_credential(credential, secrets=given, note=note), as_json)


@guarded
def read(credential: Name, *, as_json: o.AsJson = False) -> None:
    """Poll everything that is read with a credential: locations, offers and status. A worker runs the polls now."""
    info = o.client().read_credential(credential)
    if as_json:
        return output.emit(info)
    output.line(f"{len(info.readings)} polls of {info.name} are due now")
    return output.say("Workers run them. If none is running: drydock sweep")


@guarded
def remove(credential: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a credential that no blueprint names."""
    o.client().remove_credential(credential)
    output.emit({"removed": credential}) if as_json else output.line(f"{credential} is removed")


def read_secrets(given: list[str] | None, file: str) -> dict[str, object]:
    """Read the given secrets. Raises InvalidRequest, which never quotes a secret."""
    found: dict[str, object] = dict(o.document(file))
    if file == "-" and any(one.endswith("=-") for one in given or ()):
        raise InvalidRequest("Standard input can be read only once.", field="secrets")
    for one in given or ():
        name, equal, place = one.partition("=")
        found[name] = _one(name, place) if equal else _asked(name)
    if not found:
        raise InvalidRequest(
            "Give secret fields as FIELD=@FILE (a file), FIELD=- (standard input) or FIELD (a prompt).", field="secrets"
        )
    return found


def _one(name: str, place: str) -> str:
    if place == "-":
        return _ended(sys.stdin.read())
    if not place.startswith("@"):
        raise InvalidRequest(
            "Do not give a secret on the command line, where other users of this machine can read it.",
            field=f"secrets.{name}",
            hint=f"{name}=@FILE reads a file, {name}=- reads standard input, and {name} alone prompts.",
        )  # fmt: skip
    try:
        return _ended(Path(place[1:]).expanduser().read_text())
    except OSError as error:
        raise InvalidRequest(f"{place[1:]} cannot be read: {error.strerror}.", field=f"secrets.{name}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{place[1:]} does not contain text.", field=f"secrets.{name}") from None


def _ended(text: str) -> str:
    """Strip the end of a single line; end a text of several lines with exactly one newline, as keys require."""
    text = text.strip("\r\n")
    return text + "\n" if "\n" in text else text


def _asked(name: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "There is no terminal to prompt for the secret.",
            field=f"secrets.{name}",
            hint=f"Write {name}=@FILE or {name}=-.",
        )
    return str(typer.prompt(name, hide_input=True, err=True))
