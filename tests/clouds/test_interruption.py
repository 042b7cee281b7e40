"""The program that spot machines get: run against a metadata service of each cloud, as far as it asks one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from blueprints import registry
from blueprints.cloud import interruption
from drydock.core import clock

CLOUDS = ("ec2", "gce", "azure")
EVENT = {"EventId": "A1", "ResourceType": "VirtualMachine", "Resources": ["dd-x-1-r1"], "EventStatus": "Scheduled"}
TOLD = {
    "ec2": {"provider": "ec2", "action": "terminate", "time": "2027-01-01T08:22:00Z"},
    "gce": {"provider": "gce", "action": "preempt", "time": ""},
    "azure": {"provider": "azure", "action": "preempt", "time": "2027-01-01T08:22:00Z"},
}
HOOK = '#!/bin/sh\necho "$0 $DRYDOCK_PROVIDER $DRYDOCK_ACTION $DRYDOCK_TIME $DRYDOCK_NOTICE" >>{log}\n'


class Metadata:
    """The three services as they are documented: each refuses what lacks its header."""

    def __init__(self) -> None:
        self.taken, self.broken, self.asked = False, False, 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Status and body."""
        if self.broken:
            return 503, "<html>busy</html>"
        if (method, path) == ("PUT", "/latest/api/token"):
            return (200, "t0ken") if headers.get("x-aws-ec2-metadata-token-ttl-seconds") else (400, "")
        self.asked += 1
        match method, path:
            case "GET", "/latest/meta-data/spot/instance-action":
                if headers.get("x-aws-ec2-metadata-token") != "t0ken":
                    return 401, ""
                said = json.dumps({"action": "terminate", "time": "2027-01-01T08:22:00Z"})
                return (200, said) if self.taken else (404, "")
            case "GET", "/computeMetadata/v1/instance/preempted":
                known = headers.get("metadata-flavor") == "Google"
                return (200, "TRUE" if self.taken else "FALSE") if known else (403, "")
            case "GET", "/metadata/scheduledevents?api-version=2020-07-01":
                preempted = {**EVENT, "EventType": "Preempt", "NotBefore": "Fri, 01 Jan 2027 08:22:00 GMT"}
                events = [{**EVENT, "EventType": "Reboot", "NotBefore": ""}, *([preempted] if self.taken else [])]
                known = headers.get("metadata") == "true"
                return (200, json.dumps({"DocumentIncarnation": 2, "Events": events})) if known else (400, "")
        return 404, ""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, body = service.answer(self.command, self.path, headers)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            do_PUT = do_GET

            def log_message(self, *about: object) -> None:
                """Nothing."""

        return Handler


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    service = Metadata()
    thread = threading.Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield service
    service.server.shutdown()
    thread.join()
    service.server.server_close()


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """A guest's folders, with one hook that notes how it was called."""
    (tmp_path / "hooks").mkdir(mode=0o755)
    (tmp_path / "hooks").chmod(0o755)
    put(tmp_path, "50-note")
    return tmp_path


def put(guest: Path, name: str, text: str = "", mode: int = 0o755) -> Path:
    hook = guest / "hooks" / name
    hook.write_text(text or HOOK.format(log=guest / "log"))
    hook.chmod(mode)
    return hook


@contextmanager
def watching(kind: str, metadata: Metadata, guest: Path) -> Iterator[subprocess.Popen[str]]:
    """The program as the unit runs it, with questions that follow one another more quickly."""
    text = interruption.program(registry.kind(kind).Config.interruption)
    (guest / "program.py").write_text(text.replace("\n\n\ndef notice", "\nevery = 0.05\n\n\ndef notice", 1))
    arguments = [metadata.url, str(guest / "notice.json"), str(guest / "hooks")]
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
    popen = subprocess.Popen(
        [sys.executable, "-I", str(guest / "program.py"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    try:
        yield popen
    finally:
        popen.kill()
        popen.communicate()


def until_asked(metadata: Metadata, times: int) -> None:
    end = clock.monotonic() + 30
    while metadata.asked < times:
        assert clock.monotonic() < end
        clock.sleep(0.02)


def over(popen: subprocess.Popen[str]) -> str:
    said, _ = popen.communicate(timeout=60)
    assert popen.returncode == 0, said
    return said


def logged(guest: Path) -> list[str]:
    log = guest / "log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("kind", CLOUDS)
def test_a_guest_writes_the_notice_and_runs_the_hooks_once(kind, metadata, guest):
    told, notice = TOLD[kind], guest / "notice.json"
    metadata.broken = True
    with watching(kind, metadata, guest) as popen:
        assert "does not answer" in popen.stdout.readline()
        metadata.broken = False
        until_asked(metadata, 3)
        assert not notice.exists()
        assert popen.poll() is None
        metadata.taken = True
        over(popen)
    assert json.loads(notice.read_text()) == told
    assert notice.stat().st_mode & 0o777 == 0o644
    line = f"{guest}/hooks/50-note {told['provider']} {told['action']} {told['time']} {notice}"
    assert logged(guest) == [line]
    with watching(kind, metadata, guest) as again:
        over(again)
    assert logged(guest) == [line], "a program that is started anew runs no hook twice"


def test_hooks_that_others_can_change_are_not_run(metadata, guest):
    put(guest, "10-fails", "#!/bin/sh\nexit 3\n")
    put(guest, "20-no-program", "\x7fELF nonsense")
    put(guest, "30-plain", mode=0o644)
    put(guest, "40-writable", mode=0o777)
    (guest / "hooks" / "45-link").symlink_to(put(guest, "60-last"))
    if os.geteuid() == 0:
        os.chown(put(guest, "47-foreign"), 65534, 65534)
    metadata.taken = True
    with watching("gce", metadata, guest) as popen:
        said = over(popen)
    assert {line.split()[0].rpartition("/")[2] for line in logged(guest)} == {"50-note", "60-last"}
    refused = [name for name in ("30-plain", "40-writable", "45-link") if f"{name} is not run" in said]
    assert refused == ["30-plain", "40-writable", "45-link"], said


def test_a_folder_that_others_can_change_runs_nothing(metadata, guest):
    (guest / "hooks").chmod(0o777)
    metadata.taken = True
    with watching("ec2", metadata, guest) as popen:
        over(popen)
    assert (guest / "notice.json").exists()
    assert logged(guest) == []


def test_a_shutdown_is_asked_about_once_more_and_cuts_no_hook_short(metadata, guest):
    """Compute Engine may begin to switch a machine off in the second in which it first tells of it."""
    os.mkfifo(guest / "go")
    put(guest, "50-note", f"#!/bin/sh\necho begun >>{guest}/log\ncat {guest}/go >/dev/null\necho done >>{guest}/log\n")
    with watching("gce", metadata, guest) as popen:
        until_asked(metadata, 1)
        metadata.taken = True
        popen.send_signal(signal.SIGTERM)
        end = clock.monotonic() + 30
        while logged(guest) != ["begun"]:
            assert clock.monotonic() < end
            clock.sleep(0.02)
        popen.send_signal(signal.SIGTERM)
        with (guest / "go").open("w"):
            pass
        over(popen)
    assert logged(guest) == ["begun", "done"]


def test_a_shutdown_of_another_kind_ends_it_at_once(metadata, guest):
    with watching("azure", metadata, guest) as popen:
        until_asked(metadata, 1)
        popen.send_signal(signal.SIGTERM)
        over(popen)
    assert not (guest / "notice.json").exists()
    assert logged(guest) == []


def test_the_unit_is_one_that_systemd_takes(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    files = {Path(one["path"]).name: one["content"] for one in interruption.cloud_config("")["write_files"]}
    (tmp_path / interruption.UNIT).write_text(files[interruption.UNIT])
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / interruption.UNIT)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert interruption.UNIT not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_unit_s_command_line_runs_the_program(tmp_path):
    """As systemd reads it: one dollar sign for two, and quoted words as they stand."""
    unit = interruption.cloud_config("")["write_files"][1]["content"]
    (line,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart=")]
    shell, flag, script = line.split(" ", 2)
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    command = [shell, flag, script.strip("'").replace("$$", "$")]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=30)
    expected = [interruption.PROGRAM, interruption.METADATA, interruption.NOTICE, interruption.HOOKS]
    assert done.stdout.split() == ["-I", *expected], done.stderr
