"""A process that has imported everything and forks for every command: a second saved each time.

`python -m tests.cli.forks SOCKET` serves; `Forks` asks. A request is the words and the environment as JSON in a file,
followed by three files for the streams; the answer is the number of the process, and then its exit code.
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

WHILE_RUNNING = {
    "HOME", "TMPDIR", "SSH_AUTH_SOCK", "DRYDOCK_USER", "DRYDOCK_FAKE_CLOUD", "DRYDOCK_SERVER", "DRYDOCK_TOKEN",
    "DRYDOCK_TOKENS",
}  # fmt: skip
"""Variables that commands read while they run. The others are read once, with the settings."""


class Forks:
    """The asking side. The server starts with the first command."""

    def __init__(self, environment: dict[str, str], root: Path, place: Path) -> None:
        self.environment, self.root, self.place = environment, root, place
        self.process: subprocess.Popen[bytes] | None = None

    def suits(self, environment: dict[str, str]) -> bool:
        """Return whether a process with another environment would have the same settings."""
        return {name for name, _ in environment.items() ^ self.environment.items()} <= WHILE_RUNNING

    def start(self) -> None:
        """Start the server and wait until it has imported everything."""
        command = [sys.executable, "-m", "tests.cli.forks", str(self.place)]
        self.process = subprocess.Popen(command, env=self.environment, cwd=self.root, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def run(
        self, words: Sequence[str], stdin: str, seconds: float, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        if self.process is None:
            self.start()
        new, asked = tempfile.TemporaryFile, [list(words), environment or self.environment]
        with (
            new("w+") as request, new("w+") as given, new("w+") as out, new("w+") as err,
            socket.socket(socket.AF_UNIX) as link,
        ):  # fmt: skip
            json.dump(asked, request)
            request.seek(0)
            given.write(stdin)
            given.seek(0)
            link.settimeout(seconds)
            link.connect(str(self.place))
            socket.send_fds(link, [b"x"], [file.fileno() for file in (request, given, out, err)])
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
        if self.process is not None:
            self.process.terminate()
            self.process.communicate()


def _serve(place: str) -> None:
    import django
    import typer.main

    os.environ["DJANGO_SETTINGS_MODULE"] = "drydock.settings"
    django.setup()
    # Whatever commands import once they run.
    import redis.asyncio  # noqa: F401

    import leases.local
    import leases.messaging.inline_worker
    import leases.messaging.private_worker  # noqa: F401
    from blueprints import registry
    from drydock.cli.program import app

    registry.resource_types()

    commands = typer.main.get_command(app)
    typer.main.get_command = lambda _: commands  # made from a hundred signatures, which takes 0.2 s

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
        _, files, _, _ = socket.recv_fds(link, 1, 4)
        child = os.fork()
        if child == 0:
            _become(*files)
        for file in files:
            os.close(file)
        link.sendall(f"{child:<16}".encode())
        link.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(request: int, *files: int) -> None:
    from drydock.cli import main

    code = 70
    try:
        with open(request) as asked:
            words, environment = json.load(asked)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # TMPDIR may be another
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
