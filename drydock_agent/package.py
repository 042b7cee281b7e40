"""The agent as one file that Python runs (a zipapp), made from the installed package.

Equal packages give equal bytes, so the SHA-256 of the file identifies a version wherever it was made.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.resources
import io
import zipfile
import zipimport
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path

import drydock_agent
from drydock_agent.driver import GROUP

DISTRIBUTIONS = ("drydock-leases", "drydock-leases-agent")
"""The distributions that contain this package."""
MOST_BYTES = 16 << 20
"""The maximum size of the file. Both sides refuse larger ones."""
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import sys

if sys.version_info < (3, 11):
    sys.exit("drydock-agent needs Python 3.11 or later; this is %d.%d." % sys.version_info[:2])

from drydock_agent.program import main

sys.exit(main())
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """The file of a version of the agent."""

    version: str
    content: bytes

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()


def build() -> Package:
    """Build the file from this package. Drivers of other packages are not part of it."""
    files = dict(_sources(importlib.resources.files("drydock_agent"), "drydock_agent"))
    said = version()
    metadata = f"drydock_leases_agent-{said}.dist-info"
    files |= {
        "__main__.py": _MAIN.encode(),
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {DISTRIBUTIONS[1]}\nVersion: {said}\n".encode(),
        f"{metadata}/entry_points.txt": _entry_points().encode(),
    }
    written = io.BytesIO()
    # Not compressed: what zlib makes differs between its versions.
    with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as opened:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            opened.writestr(entry, content)
    return Package(version=said, content=_SHEBANG + written.getvalue())


def version() -> str:
    """Return the version of this package, even if another one is installed beside the file from which it runs."""
    if (archive := running_from()) is not None:
        return next(iter(importlib.metadata.distributions(path=[str(archive)]))).version
    for name in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "0"


def running_from() -> Path | None:
    """Return the file from which this program runs, or None if it is installed in another way."""
    loader = getattr(drydock_agent.__spec__, "loader", None)
    return Path(loader.archive).absolute() if isinstance(loader, zipimport.zipimporter) else None


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for one in folder.iterdir():
        path = f"{name}/{one.name}"
        if one.is_dir():
            yield from _sources(one, path)
        elif one.name.endswith(".py") or one.name == "py.typed":
            yield path, one.read_bytes()


def _entry_points() -> str:
    """Return the entry points of this package's own drivers, in the format of `entry_points.txt`."""
    found = {
        (one.name, one.value) for one in importlib.metadata.entry_points(group=GROUP)
        if one.value.startswith("drydock_agent.")
    }  # fmt: skip
    return f"[{GROUP}]\n" + "".join(f"{name} = {value}\n" for name, value in sorted(found))
