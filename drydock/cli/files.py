"""Commands on the files of a lease: cp, ls, rm."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.cli.signals import stoppable
from drydock.core.errors import InvalidRequest
from drydock_client.values import JobInfo

_PLACE = re.compile(r"([^/:]+):(.*)", re.DOTALL)
"""As with scp, a path of this machine with a colon in it is written with a slash before: `./a:b`."""
Place = Annotated[
    str, typer.Argument(metavar="LEASE:PATH", help="12: is the lease's own folder, mine:a/b a path in it.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, command in (("cp", copy), ("ls", list_), ("rm", remove)):
        app.command(name, rich_help_panel="Work")(command)


def _there(place: str) -> tuple[int, str]:
    found = _place(place)
    if found is None:
        raise InvalidRequest(f"{place!r} is not LEASE:PATH.", field="place", hint="Such as 12:logs, or 12: for all.")
    return _lease(found[1]), found[2]


def _place(given: str) -> re.Match[str] | None:
    """LEASE:PATH taken apart; None for a path of this machine, also one that has a colon in it and is there."""
    found = _PLACE.fullmatch(given)
    return None if found is None or (not found[1].isdigit() and Path(given).exists()) else found


def _lease(given: str) -> int:
    reference = o.lease_reference(given)
    return o.client().named(reference) if isinstance(reference, o.LeaseName) else reference


@guarded
def list_(place: Place, *, as_json: o.AsJson = False) -> None:
    """List a folder of a lease."""
    lease, path = _there(place)
    found = o.client().list_files(lease, path)
    if as_json:
        return output.emit(found)
    types = {"directory": stat.S_IFDIR, "link": stat.S_IFLNK, "file": stat.S_IFREG}
    rows = [(stat.filemode(types.get(f.kind, 0) | f.permissions), f.size, f.modified_at, f.name) for f in found]
    return output.table(("mode", "bytes", "changed", "name"), rows, empty="Nothing is there.")


@guarded
def remove(
    place: Place, *, recursive: Annotated[bool, typer.Option("--recursive", "-r", help="A full folder, too.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Remove a file or folder of a lease; what is not there is fine."""
    lease, path = _there(place)
    with stoppable():
        o.client().remove_path(lease, path, recursive=recursive, on_job=_telling())
    if as_json:
        output.emit({"removed": place})


def _telling() -> Callable[[JobInfo], None]:
    """Says once which job removes the folder."""
    told: list[int] = []

    def tell(job: JobInfo) -> None:
        if not told:
            output.say(f"a large folder: job {job.id} removes it on the host (drydock job show {job.id})")
        told.append(job.id)

    return tell


@guarded
def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="PATH, or LEASE:PATH.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="PATH, or LEASE:PATH.")], *,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Copy a file or a whole folder into a lease, or out of one: `drydock cp site 12:` or `drydock cp 12:out .`

    As with cp, a folder that is there already as DST receives SRC under its own name.
    """
    there, here = _place(source), _place(target)
    if bool(there) == bool(here):
        raise InvalidRequest("One of SRC and DST is LEASE:PATH, the other a path of this machine.", field="src")
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
    """Where it goes: a path that ends in `/`, or none, is a folder that receives it under its own name."""
    return f"{path}{name}" if path == "" or path.endswith("/") else path


def _readable(local: Path) -> None:
    if not local.exists():
        raise InvalidRequest(f"There is no {local}.", field="src")
