"""`drydock httpd`: the web server of a lease."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.cli.signals import stoppable
from drydock.core import clock
from drydock.core.errors import InvalidRequest

_EVERY = 0.5
_ACTS = {
    "status": "How it stands, looked at now.",
    "start": "Start it; one that runs is left alone.",
    "stop": "Stop it.",
    "restart": "Test the configuration, stop, start.",
    "reload": "Take up the configuration without dropping a request.",
    "test": "Test the configuration.",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="The web server of a lease: publish, uri, start, stop, restart, reload, status, logs.",
        no_args_is_help=True,
    )
    for name, command in (("publish", publish), ("unpublish", unpublish), ("uri", uri), ("logs", logs)):
        group.command(name)(command)
    for act, said in _ACTS.items():
        group.command(act, help=said)(_act(act))
    app.add_typer(group, name="httpd", rich_help_panel="Work")


@guarded
def publish(
    lease: o.LeaseId,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A file or folder; - is standard input.")],
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Under which path; SRC's own name for a file.")] = "",
    *, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Put a page or a whole folder in place, and say its address."""
    local = Path(source).expanduser()
    if source == "-" and not path:
        raise InvalidRequest("Under which path?", field="path")
    if source != "-" and not local.exists():
        raise InvalidRequest(f"There is no {local}.", field="src")
    with stoppable():
        client = o.client()
        if source != "-" and local.is_dir():
            files, size = client.publish_tree(lease, local, path)
            address = client.uri(lease, path)
        else:
            content = sys.stdin.buffer.read() if source == "-" else local.read_bytes()
            files, size = 1, len(content)
            address = client.publish(lease, path or local.name, content)
    output.emit({"uri": address, "files": files, "bytes": size}) if as_json else output.line(address)


@guarded
def unpublish(
    lease: o.LeaseId, path: Annotated[str, typer.Argument(metavar="PATH")], *, as_json: o.AsJson = False
) -> None:
    """Take a page or folder away; one that is not there is fine."""
    o.client().unpublish(lease, path)
    if as_json:
        output.emit({"unpublished": path})


@guarded
def uri(
    lease: o.LeaseId, path: Annotated[str, typer.Argument(metavar="[PATH]")] = "", *, as_json: o.AsJson = False
) -> None:
    """The address of a page."""
    address = o.client().uri(lease, path)
    output.emit({"uri": address}) if as_json else output.line(address)


def _act(name: str) -> Callable[..., None]:
    @guarded
    def act(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
        info = o.client().server(lease, name)
        if as_json:
            return output.emit(info)
        output.line(" ".join([info.state, info.uri, f"(process {info.pid})" if info.pid else ""]).strip())
        if info.detail:
            output.say(info.detail)
        return None

    return act


@guarded
def logs(
    lease: o.LeaseId, *, error: Annotated[bool, typer.Option("--error", help="The error log.")] = False,
    offset: Annotated[int, typer.Option(help="From this byte on.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    raw: o.Raw = False,
) -> None:  # fmt: skip
    """Write its access log, or its error log."""
    with stoppable():
        client, shown = o.client(), output.Stream(raw=raw)
        while True:
            part = client.server_log(lease, "error" if error else "access", offset=offset)
            shown.write(part.content)
            offset = part.next_offset
            if not part.content and not follow:
                return shown.end()
            if not part.content:
                clock.sleep(_EVERY)
