"""Variables of workloads: they reach the container, and neither podman nor another process of root has them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from blueprints.hostshell import HostShell
from blueprints.units import Identity, Unit, UnitJobs, removed, words
from blueprints.units.values import FOLDER
from interfaces.command import JobSpec, ShellCommand
from interfaces.endpoints import SshEndpoint
from interfaces.transport import Transport
from interfaces.transports import transport_to
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER
from tests.blueprints.units.host import UnitHost, unit_host

pytestmark = pytest.mark.timeout(300, func_only=True)
UNIT = Unit(key=f"dd-x-1-l{WORKER}", account=f"ddtest-variables-{WORKER}")
JOB = f"{UNIT.key}-j1"
VARIABLES = {"PIN": "4711", "KEY": "first 0815\n  second = 'x'\n", "EMPTY": "", "LINE": '  #"quoted" $PIN \\ '}
LINE = 'printf "%s|" "$PIN" "$KEY" "$EMPTY" "$LINE"; exec sleep '


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[UnitHost]:
    peers.needs_root()
    with peers.alone(), unit_host(f"127.9.1.{WORKER + 161}", monkeypatch, tmp_path) as found:
        yield found


@pytest.fixture
def control(host: UnitHost) -> Iterator[Transport]:
    """The way to the host as root."""
    server = host.server
    endpoint = SshEndpoint(host=server.address, port=server.port, user="root", host_keys=(server.host.public,))
    with closing(transport_to(endpoint, private_key=server.control.private)) as transport:
        yield transport
        assert removed(HostShell(transport, 60), UNIT.account)


def test_variables_are_given_to_the_container_and_never_to_podman(host, control) -> None:
    jobs = UnitJobs(ShellCommand(control, still_mine=lambda: None), UNIT)
    uid = 64_000 - WORKER
    given = words(UNIT, image="alpine", command=f"{LINE} 300", identity=Identity(uid=uid, gid=uid))
    spec = JobSpec(id=JOB, words=given, env=VARIABLES)
    jobs.start(spec)
    expected = "".join(f"{VARIABLES[name]}|" for name in ("PIN", "KEY", "EMPTY", "LINE")).encode()
    peers.eventually(lambda: jobs.output(JOB).content == expected, 60)
    jobs.start(spec)  # an answer that was lost is asked for again
    folder = Path(FOLDER, UNIT.account, "jobs", JOB)
    files = [folder / "environment", folder / "values"]
    assert [(stat.S_IMODE(one.stat().st_mode), one.stat().st_uid) for one in files] == [(0o600, 0), (0o600, 0)]
    units = Path(f"/proc/{host.server.popen.pid}/root/run/systemd/system").glob("*.service")
    there = "".join((host.environment, host.asked, *(one.read_text() for one in units)))
    assert f"drydock-lease-{UNIT.key}" in there
    assert not [secret for secret in ("4711", "0815", "quoted", "LINE=", "KEY=") if secret in there]
    jobs.cancel(JOB)
    peers.eventually(lambda: not any(one.exists() for one in files), 30)
    assert removed(HostShell(control, 60), UNIT.account)
    assert not Path(FOLDER, UNIT.account).exists()


def test_variables_do_not_stay_on_the_host_after_the_container(host, control) -> None:
    jobs = UnitJobs(ShellCommand(control, still_mine=lambda: None), UNIT)
    jobs.start(JobSpec(id=JOB, words=words(UNIT, image="alpine", command=f"{LINE} 0"), env=VARIABLES))
    ended = jobs.wait(JOB, timeout=60, every=0.2)
    assert ended.exit_code == 0
    folder = Path(FOLDER, UNIT.account, "jobs", JOB)
    peers.eventually(lambda: not {"environment", "values"} & {one.name for one in folder.iterdir()}, 30)
