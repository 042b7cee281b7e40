"""The commands of the units run: nginx before the web process, a worker, beat; a lease is asked for and served."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery import current_app
from django.db import connection
from typer.testing import CliRunner

from drydock.cli import installation
from drydock.cli.program import app
from drydock.core import clock
from leases.models import Installation, Lease, Worker
from tests.operation import deployment
from tests.operation.deployment import PROGRAMS
from tests.operation.proxy import NAME, adapt, free_port
from tests.settings import DATABASE

ROOT = deployment.DEPLOY.parent


@pytest.fixture
def starts(tmp_path):
    """Start a program; it is ended, and its log shown when the test fails."""
    with contextlib.ExitStack() as stack:

        def start(name: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
            whole = os.environ | {DATABASE: str(connection.settings_dict["NAME"])} | environment
            output = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                command, cwd=ROOT, env=whole | {"DJANGO_SETTINGS_MODULE": "tests.settings"}, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
            return process

        yield start


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def words(name: str, **changed: str) -> list[str]:
    """The command of a unit, with the programs of this environment."""
    own = f"{Path(sys.executable).parent}/"
    command = [word.replace(PROGRAMS, own) for word in deployment.systemd()[name]]
    return [changed.get(word, word) for word in command]


def until(what, logs: Path, seconds: float = 40):
    end = clock.monotonic() + seconds
    while not (found := what()):
        if clock.monotonic() > end:
            pytest.fail("\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in logs.glob("*.log")))
        clock.sleep(0.05)
    return found


def ask_nginx(port: int, path: str, folder: Path | None, **headers: str):
    """Status, headers and text of one answer; over TLS where there is a folder with its certificate."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        if folder:
            trust = ssl.create_default_context(cafile=str(folder / "fullchain.pem"))
            link.sock = trust.wrap_socket(socket.create_connection(("127.0.0.1", port), 10), server_hostname=NAME)
        link.request("GET", path, headers={"Host": NAME, **headers})
        answer = link.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        link.close()


def creeping(port: int, folder: Path) -> socket.socket:
    """A stranger's form, of which the most never comes."""
    trust = ssl.create_default_context(cafile=str(folder / "fullchain.pem"))
    link = trust.wrap_socket(socket.create_connection(("127.0.0.1", port), 10), server_hostname=NAME)
    word = "a" * 32
    link.sendall(
        f"POST /admin/ HTTP/1.1\r\nHost: {NAME}\r\nReferer: https://{NAME}/\r\nCookie: csrftoken={word}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\na".encode()
    )
    return link


def test_behind_the_proxy_pages_come_over_tls_and_figures_do_not_come_at_all(starts, tmp_path, peer):
    web, plain, tls = free_port(), free_port(), free_port()
    settings = {"HTTPS": "1", "BEHIND_PROXY": "1", "ALLOWED_HOSTS": NAME, "TRUSTED_ORIGINS": f"https://{NAME}",
                "METRICS_TOKEN": "for tests"}  # fmt: skip
    environment = {f"DRYDOCK_{name}": value for name, value in settings.items()}
    starts("web", words("web", **{"127.0.0.1:8000": f"127.0.0.1:{web}"}), **environment)
    conf = adapt(tmp_path, web, plain, tls)
    starts("nginx", [peer("nginx"), "-c", str(conf), "-g", "daemon off;"])

    def answers() -> bool:
        try:
            return ask_nginx(tls, "/healthz", tmp_path)[0] == 200
        except OSError:
            return False

    until(answers, tmp_path)
    status, headers, _ = ask_nginx(plain, "/admin/", None)
    assert (status, headers["Location"]) == (308, f"https://{NAME}/admin/")
    status, headers, text = ask_nginx(tls, "/admin/login/", tmp_path)
    assert (status, "csrfmiddlewaretoken" in text) == (200, True), "no circle of redirects"
    assert "max-age" in headers["Strict-Transport-Security"]
    assert len(headers["X-Request-ID"]) == 32
    assert "Secure" in headers["Set-Cookie"]
    assert ask_nginx(tls, "/metrics", tmp_path)[0] == 404
    assert ask_nginx(tls, "/api/v1/leases", tmp_path)[0] == 401
    with contextlib.ExitStack() as strangers:
        for _ in range(40):
            strangers.enter_context(creeping(tls, tmp_path))
        for _ in range(4):
            assert ask_nginx(tls, "/healthz", tmp_path)[0] == 200, "who sends slowly waits alone"
    guesses = (ask_nginx(tls, "/admin/login/", tmp_path)[0] for _ in range(60))
    assert 429 in guesses, "nobody guesses at passwords without end"
    for path in ("/metrics/", "/metrics?x", "//metrics", "/%6detrics"):
        assert ask_nginx(tls, path, tmp_path)[0] in (403, 404), path
    assert ask_nginx(web, "/metrics", None)[0] == 403, "on the machine itself, too"
    assert ask_nginx(web, "/metrics", None, Authorization="Bearer for tests")[0] == 200
    assert ask_nginx(web, "/admin/login/", None)[0] == 301, "without the proxy's word it is no HTTPS"


@pytest.mark.slow
def test_a_body_that_creeps_is_given_up_without_a_proxy_too(starts, tmp_path):
    """Every thread waits for a stranger's form: in a moment they are free again."""
    web = free_port()
    command = [sys.executable, "-m", "gunicorn", "drydock.wsgi", "--bind", f"127.0.0.1:{web}", "--no-control-socket"]
    starts("web", [*command, "--worker-class", "gthread", "--threads", "2"], DRYDOCK_BODY_SECONDS="1")

    def answers() -> bool:
        try:
            return ask_nginx(web, "/healthz", None, Host="localhost")[0] == 200
        except OSError:
            return False

    until(answers, tmp_path)
    form = "Cookie: csrftoken=" + "a" * 32 + "\r\nContent-Type: application/x-www-form-urlencoded"
    with contextlib.ExitStack() as stack:
        strangers = []
        for path, more in (("/admin/", form), ("/api/v1/leases", ""), ("/admin/", form), ("/admin/", form)):
            strangers.append(stack.enter_context(socket.create_connection(("127.0.0.1", web), 20)))
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n{more}".rstrip()
            strangers[-1].sendall(f"{head}\r\n\r\na".encode())
        assert [one.recv(12)[-3:] for one in strangers] == [b"403", b"401", b"403", b"403"]
        assert answers()


@pytest.mark.slow
def test_worker_and_beat_serve_a_lease(starts, tmp_path, blueprint, ask):
    blueprint()
    worker = starts("worker", [*words("worker"), "--concurrency", "1"])
    starts("beat", words("beat"))
    until(Worker.objects.exists, tmp_path)
    until(lambda: Installation.objects.exclude(swept_at=None).exists(), tmp_path)
    with current_app.connection_for_write() as broker:
        until(lambda: broker.default_channel.client.llen("periodic") == 0, tmp_path)
    lease = ask()
    until(lambda: Lease.objects.filter(pk=lease.pk, state="active").exists(), tmp_path)
    worker.terminate()
    assert worker.wait(40) == 0
    assert not Worker.objects.exists(), "it has said that it leaves"


def test_the_commands_are_those_of_a_wheel():
    """What the units call is installed with the package, and nothing of the checkout is needed."""
    for name in ("web", "worker", "beat", "migrate"):
        program = words(name)[0]
        assert shutil.which(program), program
        assert not [word for word in words(name)[1:] if word.endswith((".py", "manage"))]


def test_a_worker_with_beat_of_its_own_sweeps_without_the_broker_too(monkeypatch):
    """`drydock worker` brings our beat along, which does not need the broker."""
    called: list[list[str]] = []
    monkeypatch.setattr(installation, "os", SimpleNamespace(environ={}, execve=lambda *given: called.append(given[1])))
    monkeypatch.setattr("drydock.cli.toolkit.session.ready_database", lambda: None)
    CliRunner().invoke(app, ["worker", "--concurrency", "1"], catch_exceptions=False)
    (command,) = called
    scheduler = command[command.index("--scheduler") + 1]
    assert scheduler == words("beat")[words("beat").index("--scheduler") + 1]
