"""Clients that send or read slowly, at the web process itself: nobody else waits for them."""

from __future__ import annotations

import contextlib
import socket
import sys

import pytest

from drydock.webworker import LARGEST_HEAD
from tests.operation.proxy import free_port
from tests.operation.test_deployed import ask_nginx, starts, until, words  # noqa: F401

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.slow
def test_slow_heads_hold_no_thread(starts, tmp_path) -> None:  # noqa: F811
    web = free_port()
    starts("web", words("web", **{"127.0.0.1:8000": f"127.0.0.1:{web}", "16": "2", "2": "1"}))

    def answers() -> bool:
        try:
            return ask_nginx(web, "/healthz", None, Host="localhost")[0] == 200
        except OSError:
            return False

    until(answers, tmp_path)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", web), 20)) for _ in range(14)]
        for link in slow[2:]:
            link.sendall(HEAD)
        for number in range(20):
            assert answers(), "twelve slow heads and two that never begin"
            slow[2].sendall(b"X-%d: a\r\n" % number)
        slow[3].sendall(b"\r\n" + HEAD + b"\r\n" + HEAD)
        got = b""
        while got.count(b"HTTP/1.1 200") < 2:
            got += slow[3].recv(4096)
        slow[3].sendall(b"Connection: close\r\n\r\n")
        while part := slow[3].recv(4096):
            got += part
        assert got.count(b"HTTP/1.1 200") == 3, "what comes late, and what comes together, is answered"
        slow[4].sendall(b"X-Long: " + b"a" * LARGEST_HEAD)
        assert slow[4].recv(100).startswith(b"HTTP/1.1 431 ")
        for link in slow[5:]:
            link.close()
        assert answers()


def test_heads_that_do_not_come_are_given_up(starts, tmp_path) -> None:  # noqa: F811
    web = free_port()
    (tmp_path / "impatient.py").write_text(
        "from drydock import webworker\nwebworker.HEAD_SECONDS = 0.2\nfrom drydock.webworker import Worker\n"
    )
    command = [sys.executable, "-m", "gunicorn", "drydock.wsgi", "--bind", f"127.0.0.1:{web}", "--no-control-socket"]
    command += ["--worker-class", "impatient.Worker", "--pythonpath", str(tmp_path)]
    starts("web", [*command, "--threads", "2", "--worker-connections", "8"])

    def connects() -> socket.socket | None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", web), 20)
        return None

    with until(connects, tmp_path) as link:
        link.sendall(HEAD)
        assert link.recv(1) == b"", "it is closed"
    with contextlib.ExitStack() as stack:
        for _ in range(20):  # more than there may be connections
            stack.enter_context(socket.create_connection(("127.0.0.1", web), 20)).sendall(HEAD)
        assert ask_nginx(web, "/healthz", None, Host="localhost")[0] == 200
