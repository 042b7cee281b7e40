"""A process that has imported `drydock-agent` and forks for each command, because machines of tests run thousands.

`python -m tests.agent.forks SOCKET` serves. `python -IS tests/agent/forks.py SOCKET WORDS...` runs one command with its
own environment and standard streams. A request is the words and the environment as JSON, with three files for the
streams; the answer is the exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence

_HEADER = 16
"""Bytes of the length of a request, which come with the files."""


def program(place: str) -> list[str]:
    """Return the command that runs `drydock-agent` in a fork of the process that serves at this place."""
    return [sys.executable, "-IS", os.path.abspath(__file__), place]


@contextlib.contextmanager
def serving(place: str) -> Iterator[None]:
    """Serve at this place. What was started meanwhile goes on."""
    import subprocess
    from pathlib import Path

    command = [sys.executable, "-m", "tests.agent.forks", place]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            server.terminate()


def _ask(place: str, words: Sequence[str]) -> int:
    content = json.dumps([words, dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(place)
        socket.send_fds(link, [f"{len(content):<{_HEADER}}".encode()], [0, 1, 2])
        link.sendall(content)
        return int(link.recv(16) or 137)  # the process was killed


def _serve(place: str) -> None:
    from drydock_agent.program.main import main  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        server.settimeout(1)
        parent = os.getppid()
        print("ready", flush=True)
        while os.getppid() == parent:  # tests that were killed leave no server behind
            with contextlib.suppress(TimeoutError):
                link = server.accept()[0]
                if os.fork() == 0:
                    server.close()
                    _answer(link)
                link.close()


def _answer(link: socket.socket) -> None:
    """Run the command of a request, send its exit code, and end this process."""
    from drydock_agent.program.main import main

    code = 70
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        link.settimeout(None)
        header, files, _, _ = socket.recv_fds(link, _HEADER, 3)
        with link.makefile("rb") as request:
            words, environment = json.loads(request.read(int(header)))
        os.environ.clear()
        os.environ.update(environment)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        sys.argv = ["drydock-agent", *words]
        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1 if ended.code else 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        link.sendall(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    if __spec__ is None:
        sys.exit(_ask(sys.argv[1], sys.argv[2:]))
    _serve(sys.argv[1])
