"""Relay standard input and output to a port of 127.0.0.1: QEMU starts this for each connection of a guest."""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as there:
        there.settimeout(None)

        def send() -> None:
            while content := os.read(0, 1 << 16):
                there.sendall(content)
            there.shutdown(socket.SHUT_WR)

        threading.Thread(target=send, daemon=True).start()
        while content := there.recv(1 << 16):
            while content:
                content = content[os.write(1, content) :]


if __name__ == "__main__":
    main()
