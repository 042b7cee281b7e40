"""Start a process on any POSIX host, local or remote, that has /bin/sh.

The host's shell is given a constant line (`BOOTSTRAP`), which reads one line of script from its input. Therefore the
login shell never interprets the arguments, paths and variables, process listings do not show them before the process
runs, and the length limit for a single argument does not apply. The script marks where the process's own output
begins, so that greetings of a login shell can be cut off.
"""

from __future__ import annotations

import re
import secrets
import shlex
from dataclasses import dataclass, field

from drydock.core.errors import InvalidRequest
from interfaces.errors import NotStarted
from interfaces.passing import unpassable
from interfaces.transport import Launch

TOKEN_NAME = "DRYDOCK_RUN"  # noqa: S105 - a variable's name
CLEAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOTSTRAP = 'IFS= read -r s; eval "$(printf %b "$s")"'
CLEAN_BOOTSTRAP = (
    f'exec env -i HOME="$HOME" USER="$USER" LOGNAME="$LOGNAME" LANG=C.UTF-8 PATH={CLEAN_PATH} '
    f"/bin/sh -c '{BOOTSTRAP}'"
)
# The start time and the boot tell a process from a later one of the same number.
IDENTIFY = (
    "drydock_identity() { [ -r /proc/$1/stat ] || return 1; read -r l 2>/dev/null </proc/$1/stat || return 1;"
    " b=-; [ -r /proc/sys/kernel/random/boot_id ] && read -r b </proc/sys/kernel/random/boot_id;"
    ' l=${l##*) }; set -- "$1" $l; case $2 in [ZX]) return 1;; esac;'
    ' n=$1; shift 20; printf %s "$n.$1.$b"; }'
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_GREETING = 1 << 20


def quoted(text: str) -> str:
    """Quote a text as one word for a POSIX shell. Raises InvalidRequest if it cannot be passed to a process."""
    if said := unpassable(text):
        raise InvalidRequest(f"{said} cannot be passed to a process.")
    return shlex.quote(text)


def exports(variables: list[tuple[str, str]]) -> str:
    """Return shell lines that set the variables. Raises InvalidRequest for an invalid name or value."""
    for name, value in variables:
        if not _VARIABLE.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a valid name of a variable.", field="env")
        if not isinstance(value, str):
            raise InvalidRequest(f"The value of the variable {name} is not a string.", field="env")
    return "".join(f"export {name}={quoted(value)}\n" for name, value in variables)


def one_line(script: str) -> bytes:
    """Return the script as one line of plain ASCII, which `printf %b` decodes."""
    raw = script.encode("utf-8", "surrogateescape")
    plain = bytearray()
    for byte in raw:
        if byte == 0x5C or byte < 0x20 or byte > 0x7E:
            plain += b"\\0%03o" % byte
        else:
            plain.append(byte)
    return bytes(plain) + b"\n"


def script_of(launch: Launch, variables: tuple[tuple[str, str], ...], home: str, mark: str) -> bytes:
    """Return the script for the bootstrap: environment, folder, mark, and the command with its exact arguments."""
    if not launch.argv or not launch.argv[0] or launch.argv[0].startswith("-"):
        raise InvalidRequest("A command must name a program.", field="argv")
    pairs = [("HOME", home)] if home else []
    pairs += [*variables, *launch.env.items()]
    if launch.token:
        pairs.append((TOKEN_NAME, launch.token))
    go = 'cd -- "$HOME" 2>/dev/null'
    if launch.cwd:
        folder = launch.cwd if launch.cwd.startswith("/") else f"./{launch.cwd}"
        go = (
            f"cd -- {quoted(folder)} 2>/dev/null" if folder[0] == "/" else f"{go} && cd -- {quoted(folder)} 2>/dev/null"
        )
    words = " ".join(quoted(word) for word in launch.argv)
    return one_line(
        f"{exports(pairs)}{IDENTIFY}\n"
        f"if {go}; then s=ok; else s=folder; fi\n"
        "me=$(drydock_identity $$) || me=$$..\n"
        f'printf "%s %s %s\\n" {mark} "$me" $s\nprintf "%s\\n" {mark} >&2\n'
        "[ $s = ok ] || exit 126\n"
        # A shell stays as the leader, so that signals become exit codes that every transport can carry.
        "trap : TERM INT\n"
        f"( exec {words} )\nexit $?\n"
    )


def new_mark() -> str:
    """Return a random word that marks the beginning of the output."""
    return f"drydock-{secrets.token_hex(12)}"


@dataclass
class Greeting:
    """Removes everything that a login shell prints before our mark, on both streams."""

    mark: str
    leader: str = ""
    _out: bytes = b""
    _err: bytes = b""
    _open: set[str] = field(default_factory=lambda: {"out", "err"})

    def out(self, part: bytes) -> bytes:
        """Return the bytes in a chunk of stdout that the process wrote. Raises NotStarted if its folder is missing."""
        if "out" not in self._open:
            return part
        self._out += part
        _, found, rest = self._out.partition(self.mark.encode() + b" ")
        if not found or b"\n" not in rest:
            self._bound(self._out)
            return b""
        line, _, rest = rest.partition(b"\n")
        self.leader, state = line.decode("ascii", "replace").rsplit(" ", 1)
        self._open.discard("out")
        if state == "folder":
            raise NotStarted("The working folder does not exist, or this account cannot enter it.")
        return rest

    def err(self, part: bytes) -> bytes:
        """Return the bytes in a chunk of stderr that the process wrote."""
        if "err" not in self._open:
            return part
        self._err += part
        _, found, rest = self._err.partition(self.mark.encode() + b"\n")
        if not found:
            self._bound(self._err)
            return b""
        self._open.discard("err")
        return rest

    def never_came(self) -> NotStarted | None:
        """Return the error to raise after both streams have ended without our mark; None if the mark was received."""
        if "out" not in self._open:
            return None
        said = (self._err or self._out)[-500:].decode("utf-8", "replace").strip()
        return NotStarted(f"The host did not start a shell: {said or 'there was no output'}.")

    def _bound(self, kept: bytes) -> None:
        if len(kept) > _LONGEST_GREETING:
            raise NotStarted("The host's shell printed too much before it ran the command.")
