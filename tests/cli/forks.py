"""A process that has imported everything and forks for every command: a second saved each time.

`python -m tests.cli.forks SOCKET` serves; `Forks` asks. A request is the words as JSON with three file
descriptors; the answer is the number of the process, and then its exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


class Forks:
    """The asking side."""

    def __init__(self, environment: dict[str, str], root: Path, place: Path) -> None:
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forks", str(place)], env=environment, cwd=root, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def run(self, words: Sequence[str], stdin: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        new = tempfile.TemporaryFile
        with new("w+") as given, new("w+") as out, new("w+") as err, socket.socket(socket.AF_UNIX) as link:
            given.write(stdin)
            given.seek(0)
            link.settimeout(seconds)
            link.connect(str(self.place))
            files = [file.fileno() for file in (given, out, err)]
            socket.send_fds(link, [json.dumps(list(words)).encode()], files)
            child = int(link.recv(16))
            try:
                code = int(link.recv(16))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                err.seek(0)
                raise AssertionError(f"{words} did not end within {seconds} s; it said {err.read()!r}") from None
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, code, out.read(), err.read())

    def close(self) -> None:
        """End the server."""
        self.process.terminate()
        self.process.communicate()


def _serve(place: str) -> None:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "drydock.settings"
    django.setup()
    import leases.local  # noqa: F401

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        server.settimeout(1)
        parent = os.getppid()
        print("ready", flush=True)
        while os.getppid() == parent:  # tests that were killed leave no server behind
            with contextlib.suppress(TimeoutError):
                _answer(server.accept()[0])


def _answer(link: socket.socket) -> None:
    with link:
        words, files, _, _ = socket.recv_fds(link, 1 << 20, 3)
        child = os.fork()
        if child == 0:
            _become(json.loads(words), files)
        for file in files:
            os.close(file)
        link.sendall(f"{child:<16}".encode())
        link.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(words: list[str], files: list[int]) -> None:
    from drydock.cli import main

    code = 70
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.argv = ["drydock", *words]
        main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
