"""Commands that use a lease: run, watch, cp, ls, rm and `drydock httpd`."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from drydock.cli.toolkit import lease_run, output
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit.exits import guarded, stoppable
from drydock.cli.toolkit.lease_run import run_command as run_there
from drydock.cli.toolkit.lease_run import seconds
from drydock.core import clock
from drydock.core.errors import InvalidRequest
from drydock_client.values import JobInfo


def add_run(app: typer.Typer) -> None:
    """Add `drydock run` and `drydock watch`."""
    app.command("run", rich_help_panel="Work")(run)
    app.command("watch", rich_help_panel="Work")(watch)


@guarded
def run(
    lease: o.LeaseId, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...")], *,
    shell: Annotated[bool, typer.Option("--shell", help="COMMAND is one line for /bin/sh.")] = False,
    cwd: Annotated[str, typer.Option(help="Folder to run the command in, relative to the lease's home.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input to the command.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="SPAN", help="End the command after this time.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Run a command on a lease, printing its output as it comes, and exit with its exit code."""
    words = " ".join(command) if shell else command
    with stoppable():
        ended = run_there(
            o.client(), lease, words, env=o.variables(env), cwd=cwd,
            stdin=sys.stdin.buffer.read() if stdin else b"", quiet=as_json, timeout=seconds(timeout),
        )  # fmt: skip
    if as_json:
        output.emit(ended)
    raise typer.Exit(ended.exit_code)


@guarded
def watch(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Watch a lease's workload: print its output from the beginning, and exit with its exit code.

    Also works after the workload has ended. Ctrl-C ends only this program.
    """
    with stoppable():
        client = o.client()
        with client.attended() as attended:
            found = lease_run.follow_workload(client, lease, attended, quiet=as_json)
    if as_json:
        output.emit(found)
    elif found.message:
        output.say(found.message)
    raise typer.Exit(lease_run.workload_exit_code(found))


_PLACE = re.compile(r"([^/:]+):(.*)", re.DOTALL)

"""Matches LEASE:PATH. As with scp, a local path that contains a colon must be written with a leading directory:
`./a:b`."""

Place = Annotated[
    str,
    typer.Argument(
        metavar="LEASE:PATH",
        help="`12:` is the folder of lease 12; `mine:a/b` is a path in the folder of lease `mine`.",
    ),
]


def add_files(app: typer.Typer) -> None:
    """Add cp, ls and rm."""
    for name, command in (("cp", copy_files), ("ls", list_files), ("rm", remove_file)):
        app.command(name, rich_help_panel="Work")(command)


def _there(place: str) -> tuple[int, str]:
    found = _place(place)
    if found is None:
        raise InvalidRequest(
            f"{place!r} is not LEASE:PATH.",
            field="place",
            hint="For example 12:logs, or 12: for the lease's whole folder.",
        )
    return _lease(found[1]), found[2]


def _place(given: str) -> re.Match[str] | None:
    """Split LEASE:PATH. Return None for a local path, including an existing one with a colon."""
    found = _PLACE.fullmatch(given)
    return None if found is None or (not found[1].isdigit() and Path(given).exists()) else found


def _lease(given: str) -> int:
    reference = o.lease_reference(given)
    return o.client().named(reference) if isinstance(reference, o.LeaseName) else reference


@guarded
def list_files(place: Place, *, as_json: o.AsJson = False) -> None:
    """List a folder of a lease."""
    lease, path = _there(place)
    found = o.client().list_files(lease, path)
    if as_json:
        return output.emit(found)
    types = {"directory": stat.S_IFDIR, "link": stat.S_IFLNK, "file": stat.S_IFREG}
    rows = [(stat.filemode(types.get(f.kind, 0) | f.permissions), f.size, f.modified_at, f.name) for f in found]
    return output.table(("mode", "bytes", "changed", "name"), rows, empty="Empty.")


@guarded
def remove_file(
    place: Place, *,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also remove a non-empty folder.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Remove a file or folder of a lease. A missing path is not an error."""
    lease, path = _there(place)
    with stoppable():
        o.client().remove_path(lease, path, recursive=recursive, on_job=_telling())
    if as_json:
        output.emit({"removed": place})


def _telling() -> Callable[[JobInfo], None]:
    """Return a function for `on_job`, which prints once which job removes the folder."""
    told: list[int] = []

    def tell(job: JobInfo) -> None:
        if not told:
            output.say(f"The folder is large; job {job.id} removes it on the host (drydock job show {job.id})")
        told.append(job.id)

    return tell


@guarded
def copy_files(
    source: Annotated[str, typer.Argument(metavar="SRC", help="PATH, or LEASE:PATH.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="PATH, or LEASE:PATH.")], *,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Copy a file or folder into a lease, or out of one.

    For example `drydock cp site 12:` or `drydock cp 12:out .` As with cp, an existing folder DST receives SRC under its
    own name.
    """
    there, here = _place(source), _place(target)
    if bool(there) == bool(here):
        raise InvalidRequest("One of SRC and DST must be LEASE:PATH and the other a path on this machine.", field="src")
    with stoppable():
        client = o.client()
        if here is not None:
            path = _into(Path(source).name, here[2])
            _readable(Path(source))
            files, size = client.upload(_lease(here[1]), Path(source), path)
        else:
            assert there is not None
            local = Path(target)
            local = local / Path(there[2]).name if local.is_dir() and Path(there[2]).name else local
            files, size = client.download(_lease(there[1]), there[2], local)
    if as_json:
        output.emit({"files": files, "bytes": size})
    else:
        output.say(f"{files} {'file' if files == 1 else 'files'}, {size} bytes")


def _into(name: str, path: str) -> str:
    """Return the target path. A path that is empty or ends in `/` is a folder that receives the source."""
    return f"{path}{name}" if path == "" or path.endswith("/") else path


def _readable(local: Path) -> None:
    if not local.exists():
        raise InvalidRequest(f"{local} does not exist.", field="src")


_POLL_SECONDS = 0.5

_ACTS = {
    "status": "Show the current state of the web server.",
    "start": "Start the web server unless it is running.",
    "stop": "Stop it.",
    "restart": "Test the configuration, then stop and start the web server.",
    "reload": "Reload the configuration without dropping a request.",
    "test": "Test the configuration.",
}


def add_httpd(app: typer.Typer) -> None:
    """Add `drydock httpd`."""
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
    path: Annotated[
        str, typer.Argument(metavar="[PATH]", help="Path to publish under; for a file, its name by default.")
    ] = "",
    *, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Publish a page or a whole folder, and print its address."""
    local = Path(source).expanduser()
    if source == "-" and not path:
        raise InvalidRequest("Give the path to publish under.", field="path")
    if source != "-" and not local.exists():
        raise InvalidRequest(f"{local} does not exist.", field="src")
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
    """Remove a page or folder. A missing page is not an error."""
    o.client().unpublish(lease, path)
    if as_json:
        output.emit({"unpublished": path})


@guarded
def uri(
    lease: o.LeaseId, path: Annotated[str, typer.Argument(metavar="[PATH]")] = "", *, as_json: o.AsJson = False
) -> None:
    """Print the address of a page."""
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
    lease: o.LeaseId, *, error: Annotated[bool, typer.Option("--error", help="Print the error log.")] = False,
    offset: Annotated[int, typer.Option(help="Start at this byte.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new lines.")] = False,
    raw: o.Raw = False,
) -> None:  # fmt: skip
    """Print the access log, or the error log."""
    with stoppable():
        client, shown = o.client(), output.Stream(raw=raw)
        while True:
            part = client.server_log(lease, "error" if error else "access", offset=offset)
            shown.write(part.content)
            offset = part.next_offset
            if not part.content and not follow:
                return shown.end()
            if not part.content:
                clock.sleep(_POLL_SECONDS)
