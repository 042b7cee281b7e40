"""A small process that performs file operations under a lease's uid, taking requests on stdin.

If started as root, it drops all privileges before reading anything. Frames in both directions consist of two four-byte
lengths, a JSON head and a body. The process exits when stdin closes. It uses only the standard library.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any, BinaryIO

from interfaces.local.confined_fs import ConfinedFolder

LENGTHS = struct.Struct(">II")


def frame(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Read one frame and return it."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def send(stream: BinaryIO, head: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame."""
    stream.write(frame(head, body))
    stream.flush()


def drop(uid: int, gid: int) -> None:
    """Switch to the account permanently, without supplementary groups. Exits if that fails."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if {*os.getresuid()} != {uid} or {*os.getresgid()} != {gid} or set(os.getgroups()) - {gid}:
        sys.exit("The process could not switch to the account.")
    os.umask(0o022)


def _answer(operations: ConfinedFolder, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    arguments = head["arguments"]
    if head["operation"] == "write":
        arguments["body"] = body
    try:
        value = getattr(operations, head["operation"])(**arguments)
    except OSError as error:
        return {"errno": error.errno, "text": error.strerror or str(error)}, b""
    return ({"value": None}, value) if isinstance(value, bytes) else ({"value": value}, b"")


def main() -> None:
    """Answer requests until stdin closes."""
    drop(int(sys.argv[1]), int(sys.argv[2]))
    asked, answered = sys.stdin.buffer, sys.stdout.buffer
    operations = ConfinedFolder()
    while lengths := asked.read(LENGTHS.size):
        head_size, body_size = LENGTHS.unpack(lengths)
        head = json.loads(asked.read(head_size))
        send(answered, *_answer(operations, head, asked.read(body_size)))


if __name__ == "__main__":
    main()
