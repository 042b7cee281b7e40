"""A small process that does file operations with the uid of a lease, asked over its input.

Started as root it gives up every privilege before it reads anything. Frames both ways: two lengths (four
bytes each), a JSON head, a body. It ends when its input ends. Only the standard library is used.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any, BinaryIO

from interfaces.local.beneath import Beneath

LENGTHS = struct.Struct(">II")


def frame(head: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def send(stream: BinaryIO, head: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame."""
    stream.write(frame(head, body))
    stream.flush()


def drop(uid: int, gid: int) -> None:
    """Become the account for good, with no other group. Ends the process when that fails."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if {*os.getresuid()} != {uid} or {*os.getresgid()} != {gid} or set(os.getgroups()) - {gid}:
        sys.exit("The account could not be taken.")
    os.umask(0o022)


def _answer(operations: Beneath, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    arguments = head["arguments"]
    if head["operation"] == "write":
        arguments["body"] = body
    try:
        value = getattr(operations, head["operation"])(**arguments)
    except OSError as error:
        return {"errno": error.errno, "text": error.strerror or str(error)}, b""
    return ({"value": None}, value) if isinstance(value, bytes) else ({"value": value}, b"")


def main() -> None:
    """Serve until the input ends."""
    drop(int(sys.argv[1]), int(sys.argv[2]))
    asked, answered = sys.stdin.buffer, sys.stdout.buffer
    operations = Beneath()
    while lengths := asked.read(LENGTHS.size):
        head_size, body_size = LENGTHS.unpack(lengths)
        head = json.loads(asked.read(head_size))
        send(answered, *_answer(operations, head, asked.read(body_size)))


if __name__ == "__main__":
    main()
