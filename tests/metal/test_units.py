"""Units on a real Debian in QEMU: systemd, podman, and the firewalls that a host can have (`make test-metal`)."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueprints.hostshell import HostShell
from blueprints.units import Identity, Port, Unit, UnitJobs, firewall, removed, removed_all, words
from interfaces.command.jobs import JobSpec, JobState
from interfaces.command.shell import ShellCommand
from interfaces.endpoints import SshEndpoint
from interfaces.errors import InterfaceError
from interfaces.transports import transport_to
from tests.blueprints.host_peers import AS_ROOT
from tests.metal import debian_guest
from tests.metal.debian_guest import DebianGuest

pytestmark = [pytest.mark.metal, pytest.mark.timeout(1700, func_only=True)]
OPEN, SHUT = 18_080, 18_081
IDENTITY = Identity(uid=1003, gid=1003)
REFUSING = """table inet f {
    chain input {
        type filter hook input priority 0; policy drop;
        tcp dport 22 accept
        ct state established accept
    }
}
"""
OF_PODMAN = r"""
for each in /proc/[0-9]*; do
  case $(cat $each/comm) in podman|conmon) tr '\0' '\n' <$each/environ;; esac
done 2>/dev/null | grep -cE '^(PIN|KEY)='
"""
SERVE = "while :; do echo served | nc -l -p {port}; done"


class Real:
    """The guest, with ways to use it that have patience with an emulated processor."""

    def __init__(self, guest: DebianGuest, folder: Path) -> None:
        self.guest, self.archive = guest, folder / "image.tar"
        self.sha256 = debian_guest.image_archive(self.archive, folder / "busybox")
        endpoint = SshEndpoint(
            host="127.0.0.1", port=guest.ssh, user="root", host_keys=(guest.host.public,), connect_timeout=60
        )
        self.transport = transport_to(endpoint, private_key=guest.control.private)
        self.command = ShellCommand(self.transport, still_mine=lambda: None)

    @property
    def shell(self) -> HostShell:
        return HostShell(self.transport, 300)

    def told(self, line: str) -> str:
        """What a line prints, as root. A connection that an emulated processor has kept waiting is made anew."""
        for _ in range(5):
            try:
                return self.command.run(line, timeout=300).text.strip()
            except InterfaceError as error:
                last = error
        raise last

    def unit(self, key: str, **given) -> Unit:
        return Unit(key=f"dd-x-1-{key}", account=f"ddtest-{key}", **given)

    def jobs(self, unit: Unit) -> UnitJobs:
        """As a worker finds them that has never seen the unit."""
        return UnitJobs(self.command, unit)

    def started(self, unit: Unit, line: str, *, image: str = "", variables=None) -> str:
        """Begin a workload; its job."""
        jobs, name = self.jobs(unit), f"{unit.key}-j1"
        if not image:
            assert jobs.send(self.archive, 300)
        given = words(unit, image=image, archive="" if image else self.sha256, command=line, identity=IDENTITY)
        jobs.start(JobSpec(id=name, words=given, env=variables or {}))
        return name

    def over(self, unit: Unit, name: str):
        """Its end."""
        return self.jobs(unit).wait(name, timeout=900, every=2)

    def said(self, unit: Unit, name: str, mark: bytes) -> bytes:
        """Its output, once the mark is in it."""
        end = time.monotonic() + 900
        while mark not in (output := self.jobs(unit).output(name).content):
            assert time.monotonic() < end, output
            assert not self.jobs(unit).status(name).state.over, output
            time.sleep(2)
        return output

    def nothing_is_left(self, unit: Unit) -> None:
        assert self.told(f"systemctl show --property=LoadState --value {unit.name}") == "not-found"
        assert self.told(f"ls -d {unit.folder} /run/drydock-units /run/systemd/system/drydock* 2>/dev/null") == ""
        assert self.told("grep -c drydock /proc/self/mountinfo") == "0"
        assert self.told("nft list ruleset | grep -c drydock") == "0"
        assert self.told("ls -ln /dev/null").split()[:4] == ["crw-rw-rw-", "1", "0", "0"]


@pytest.fixture(scope="module")
def real() -> Iterator[Real]:
    if missing := debian_guest.missing():
        pytest.skip(f"missing: {' '.join(missing)}")
    if not AS_ROOT:
        pytest.skip("only root owns the files of a guest")
    folder = Path(tempfile.mkdtemp(prefix="drydock-units-", dir="/var/tmp"))
    try:
        host, control = debian_guest.new_keys()
        debian_guest.build(folder, host, control)
        with debian_guest.booted(folder, host, control, (OPEN, SHUT)) as guest:
            found = Real(guest, folder)
            found.told("useradd -u 1003 -M tenant")
            yield found
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def refusing(real) -> Iterator[None]:
    """A firewall of nftables that lets in nothing but SSH."""
    real.command.check(["nft", "-f", "-"], stdin=REFUSING.encode(), timeout=120)
    yield
    real.told("nft delete table inet f")


def test_a_unit_from_its_archive_to_its_end(real, refusing) -> None:
    unit = real.unit("l1", cpu_millicores=500, ram_mib=256, cpus="0", ports=(Port(number=OPEN),))
    line = f'id; echo in $PIN; echo "$KEY"; cat /proc/self/uid_map; {SERVE.format(port=OPEN)}'
    variables = {"PIN": "4711", "KEY": "first 0815\nsecond\n"}
    name = real.started(unit, f"({SERVE.format(port=SHUT)}) & {line}", variables=variables)
    output = real.said(unit, name, b"65536").decode()
    assert "uid=0" in output
    assert "in 4711\nfirst 0815\nsecond\n\n" in output
    assert f"0 {IDENTITY.first_of_range} 65536" in " ".join(output.split())
    assert real.guest.answers(OPEN) == b"served\n"
    assert real.guest.answers(SHUT) == b""
    wanted = {
        "CPUQuotaPerSecUSec": "500ms", "MemoryMax": str(256 << 20), "AllowedCPUs": "0", "DevicePolicy": "closed",
        "Delegate": "yes", "ActiveState": "active",
    }  # fmt: skip
    shown = real.told(f"systemctl show {unit.name} " + " ".join(f"--property={one}" for one in wanted))
    assert dict(line.split("=", 1) for line in shown.splitlines()) == wanted
    assert "4711" not in real.told(f"systemctl cat {unit.name}; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert real.told(OF_PODMAN) == "0", "podman has variables of the container in its own environment"
    alive = real.jobs(unit).sample()
    assert alive.seconds > 0.1
    assert alive.memory > 0
    assert alive.peak >= alive.memory
    assert alive.network[0] > 0
    cancelled = real.jobs(unit).cancel(name)
    assert cancelled.state is JobState.CANCELLED
    assert real.jobs(unit).sample().seconds >= alive.seconds
    assert real.guest.answers(OPEN) == b""
    assert removed(real.shell, unit.account)
    assert removed(real.shell, unit.account), "it may be repeated"
    real.nothing_is_left(unit)


def test_an_exit_code_the_limit_of_memory_and_an_image_of_the_host(real) -> None:
    real.command.check(["podman", "load", "--quiet"], stdin=real.archive.read_bytes(), timeout=600)
    first, second = real.unit("l2", memory_nodes="0"), real.unit("l3", ram_mib=64)
    name = real.started(first, "echo made; exit 3", image="localhost/busybox:1")
    placed = real.told(f"grep ^Allowed /run/systemd/system/{first.name}").splitlines()
    assert placed == ["AllowedCPUs=0-1", "AllowedMemoryNodes=0"]
    greedy = real.started(second, "head -c 300000000 /dev/zero | tail -c 290000000 | cat >/dev/null; echo $?",
                          image="localhost/busybox:1")  # fmt: skip
    assert real.over(first, name).exit_code == 3
    assert real.jobs(first).output(name).content == b"made\n"
    over = real.over(second, greedy)
    assert over.state is JobState.EXITED
    assert real.jobs(second).sample().peak <= 64 << 20
    assert real.told("podman images --quiet | wc -l") == "1"
    assert removed_all(real.shell, "ddtest-")
    real.nothing_is_left(first)
    real.nothing_is_left(second)
    assert real.told("podman images --quiet | wc -l") == "1", "it is the host's"


def test_another_archive_than_the_requested_one_is_not_loaded(real) -> None:
    unit = real.unit("l4")
    real.jobs(unit).send(real.archive, 300)
    real.told(f"echo more >>{unit.folder}/archive")
    given = words(unit, image="", archive=real.sha256, command="true", identity=IDENTITY)
    real.jobs(unit).start(JobSpec(id="dd-x-1-l4-j1", words=given))
    assert real.over(unit, "dd-x-1-l4-j1").exit_code == 125
    assert real.jobs(unit).remains("dd-x-1-l4-j1", 1000, 1000).cause == "archive"
    assert removed(real.shell, unit.account)
    real.nothing_is_left(unit)


def test_ufw_opens_and_closes_a_port(real) -> None:
    real.told("ufw allow 22/tcp; ufw allow 2222/tcp; ufw --force enable")
    try:
        unit = real.unit("l5", ports=(Port(number=OPEN), Port(number=2222)))
        real.told(f"mkdir -p {unit.folder}")
        real.shell.as_root(firewall.OPEN, *firewall.opening(unit))
        assert f"{OPEN}/tcp" in real.told("ufw status | grep 'drydock dd-x-1-l5'")
        assert real.shell.as_root(firewall.CLOSE, unit.folder, unit.comment) == ""
        rules = real.told("ufw status")
        assert "drydock" not in rules
        assert str(OPEN) not in rules
        assert "2222/tcp" in rules, "it is the operator's"
    finally:
        real.told(f"ufw --force disable; rm -rf {unit.folder}")


def test_firewalld_opens_and_closes_a_port(real) -> None:
    real.told("mkdir -p /run/systemd/system/firewalld.service.d && printf '[Service]\\nTimeoutStartSec=900\\n' "
              ">/run/systemd/system/firewalld.service.d/slow.conf; systemctl daemon-reload; "
              "firewall-offline-cmd --add-port=2222/tcp; systemctl start firewalld")  # fmt: skip
    try:
        unit = real.unit("l6", ports=(Port(number=OPEN, protocol="udp"), Port(number=2222)))
        real.told(f"mkdir -p {unit.folder}")
        real.shell.as_root(firewall.OPEN, *firewall.opening(unit))
        assert real.told(f"cat {unit.folder}/ports") == f"firewalld udp {OPEN}"
        assert real.told("firewall-cmd --list-ports").split() == ["2222/tcp", f"{OPEN}/udp"]
        assert real.shell.as_root(firewall.CLOSE, unit.folder, unit.comment) == ""
        assert real.told("firewall-cmd --list-ports") == "2222/tcp", "it is the operator's"
    finally:
        real.told(f"systemctl stop firewalld; rm -rf {unit.folder}")
