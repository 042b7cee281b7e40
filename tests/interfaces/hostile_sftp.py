"""An SFTP server that lies in one way, run by a test's sshd. `MODE` is read from the file given as its argument."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

INIT, CLOSE, LSTAT, OPENDIR, READDIR, REALPATH = 1, 4, 7, 11, 12, 16
VERSION, STATUS, HANDLE, NAME, ATTRS = 2, 101, 102, 104, 105
FOLDER = struct.pack(">II", 4, 0o040755)


def text(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def send(kind: int, content: bytes, size: int | None = None) -> None:
    sys.stdout.buffer.write(struct.pack(">IB", (len(content) if size is None else size) + 1, kind) + content)
    sys.stdout.buffer.flush()


def listing(mode: str, number: bytes) -> None:
    """Answer READDIR, in the way that `mode` names."""
    if mode == "count":
        send(NAME, number + struct.pack(">I", 2_000_000))
    elif mode == "count-with-one":
        send(NAME, number + struct.pack(">I", 2_000_000) + text(b"one") + text(b"") + FOLDER)
    elif mode == "extended-in-list":
        send(NAME, number + struct.pack(">I", 1) + text(b"one") + text(b"") + struct.pack(">II", 1 << 31, 1 << 30))
    elif mode == "name-length":
        send(NAME, number + struct.pack(">II", 1, 1 << 31))
    elif mode == "long-names":
        send(NAME, number + struct.pack(">I", 8) + (text(b"n" * 20_000) + text(b"") + FOLDER) * 8)
    elif mode == "no-entries":
        send(NAME, number + struct.pack(">I", 0))
    elif mode == "long-answer":
        send(NAME, b"", size=0xFFFFFF)
        while True:
            sys.stdout.buffer.write(bytes(1 << 16))
    elif mode == "strays":
        while True:
            send(STATUS, struct.pack(">II", 0xFFFF, 0))
    elif mode == "empty-answer":
        sys.stdout.buffer.write(bytes(4))
        sys.stdout.buffer.flush()
    elif mode == "hangs-up":
        sys.exit(0)


def main() -> None:
    mode = Path(sys.argv[1]).read_text()
    stream = sys.stdin.buffer
    while size := stream.read(4):
        packet = stream.read(struct.unpack(">I", size)[0])
        kind, number = packet[0], packet[1:5]
        if kind == INIT:
            send(VERSION, struct.pack(">I", 3))
        elif kind == REALPATH:
            send(NAME, number + struct.pack(">I", 1) + text(b"/somewhere") + text(b"") + bytes(4))
        elif kind == LSTAT:
            promised = struct.pack(">II", 1 << 31, 0x7FFFFFFF) if mode == "extended" else FOLDER
            send(ATTRS, number + promised)
        elif kind == OPENDIR:
            send(HANDLE, number + (struct.pack(">I", 0xFFFFF0) if mode == "handle" else text(b"h")))
        elif kind == READDIR:
            listing(mode, number)
        elif kind == CLOSE:
            send(STATUS, number + bytes(4))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)
