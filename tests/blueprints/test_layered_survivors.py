"""What still runs with the account of a layered kind's lease, or was left in its copy, gains nothing by it."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from blueprints.answers import Failed
from blueprints.specs import LeaseView, ResourceView
from interfaces.command import Command
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server
from tests.blueprints.layered_peers import Machine, any_machine, machine
from tests.blueprints.test_storage import StorageBench
from tests.blueprints.test_working_copy import WorkingCopyBench
from tests.blueprints.test_working_copy_ssh import Bench
from tests.peers import require

__all__ = ["any_machine", "machine"]


@pytest.fixture(autouse=True)
def _as_root() -> None:
    peers.needs_root()


@contextmanager
def running_as(uid: int, script: str, *arguments: str) -> Iterator[None]:
    """A process of the account beside the lease's own, until the end of the test at the latest."""
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/bin/sh", "-c", script, "sh", *arguments]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


RACE = r"""
while :; do
  for name in "$1.img.new" "$1.img"; do ln -s -- "$2" "$name" || { rm -f -- "$name"; ln -s -- "$2" "$name"; }; done
done
"""


def test_a_link_in_the_way_of_roots_image_leads_root_nowhere(machine: Machine) -> None:
    bench = StorageBench()
    bench.machine, bench.limit = machine, "loop"
    bench.leased = {"host": machine.lease()}
    victim, home = machine.folder / "victim", machine.homes[0]
    victim.write_text("of somebody else")
    resource = bench.resource()
    with running_as(machine.uid, RACE, f"{home}/{resource.key}", str(victim)):
        peers.eventually(lambda: os.path.lexists(f"{home}/{resource.key}.img.new"))
        built = bench.ready("build", resource).spec.resource
        assert not peers.alive(machine.uid)
    assert victim.read_text() == "of somebody else"
    lease = bench.activated(bench.lease(built))
    os.chown(home, machine.uid, machine.uid)  # as it was before the home was root's
    with running_as(machine.uid, RACE, f"{home}/{resource.key}", str(victim)):
        for phase in ("deactivate", "clean"):
            bench.ready(phase, built, lease)
    assert victim.read_text() == "of somebody else"
    bench.destroyed(built)


class Searching(threading.Thread):
    """Looks all the time for some bytes in everything that an account can see: its processes, what all may know of the
    others, and the files that it may read."""

    def __init__(self, uid: int, home: Path, sought: Sequence[bytes]) -> None:
        super().__init__(daemon=True)
        self.uid, self.home, self.sought = uid, home, sought
        self.found: list[str] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            for process in psutil.process_iter():
                self._look(Path(f"/proc/{process.pid}/cmdline"))
                if self._is_theirs(process):
                    self._look(Path(f"/proc/{process.pid}/environ"))
            for folder, _, names in os.walk(self.home):
                for path in (Path(folder, name) for name in names):
                    if self._readable(path):
                        self._look(path)
            time.sleep(0.01)

    def _is_theirs(self, process: psutil.Process) -> bool:
        try:
            return self.uid in process.uids()
        except psutil.Error:
            return False

    def _readable(self, path: Path) -> bool:
        """By the modes alone: root's answer would be yes to everything."""
        try:
            steps = [path, *(each for each in path.parents if each.is_relative_to(self.home))]
            found = [each.lstat() for each in steps]
        except OSError:
            return False
        bits = [(one.st_mode >> 6 if one.st_uid == self.uid else one.st_mode) & 7 for one in found]
        return stat.S_ISREG(found[0].st_mode) and bool(bits[0] & 4) and all(each & 1 for each in bits[1:])

    def _look(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError:
            return
        self.found += [str(path) for each in self.sought if each in content]


@pytest.fixture(scope="module")
def remote() -> Iterator[Server]:
    require("ssh")
    with peers.server(f"127.9.2.{WORKER + 26}") as running:
        yield running


@pytest.mark.slow
def test_an_account_that_a_lease_has_used_never_sees_the_credential(machine: Machine, remote: Server) -> None:
    bench = Bench(machine, remote)
    bench.asks = {"ref": "v1"}
    resource = bench.built()
    sought = [line.encode() for line in bench.key.splitlines() if len(line) > 40]
    for _ in range(2):
        searching = Searching(machine.uid, machine.homes[0], sought)
        searching.start()
        lease = bench.activated(bench.lease(resource))
        searching.over.set()
        searching.join()
        assert not searching.found
        hostile(bench.command(lease), lease)
        for phase in ("deactivate", "clean"):
            bench.ready(phase, resource, lease)
    left = subprocess.run(["grep", "-rlF", sought[0].decode(), str(machine.folder)], capture_output=True, text=True)
    assert not left.stdout, "it is removed with the run that needed it"
    bench.destroyed(resource)


def hostile(command: Command, lease: LeaseView) -> None:
    """Settings of the copy that would have the next git tell somebody else what it is given."""
    for setting in (
        "core.sshCommand 'cp ${GIT_SSH_KEY:-/dev/null} ~/stolen; ssh'", "credential.helper '!tee ~/stolen'",
        "core.askPass 'tee ~/stolen'", "core.fsmonitor 'env >~/stolen'", "url.https://127.0.0.1:1/.insteadOf ssh://",
        "core.hooksPath .git/hooks",
    ):  # fmt: skip
        command.check(f"git config {setting}")
    command.check("mkdir -p .git/hooks; printf '#!/bin/sh\nenv >~/stolen\n' >.git/hooks/reference-transaction")
    command.check("chmod 755 .git/hooks/reference-transaction; printf '*\n' >.git/objects/info/alternates")


@pytest.mark.parametrize("any_machine", ["self"], indirect=True)
def test_where_leases_share_an_account_it_gets_no_credential_and_is_not_reused(
    any_machine: Machine, remote: Server
) -> None:
    bench = Bench(any_machine, remote)
    outcome = bench.run("build", bench.resource())
    assert isinstance(outcome.answer, Failed)
    assert outcome.answer.code == "no_outside"
    assert "not given to this host" in outcome.answer.message
    bench.destroyed(outcome.spec.resource)
    plain = WorkingCopyBench()
    plain.machine, plain.leased, plain.upstream = any_machine, bench.leased, bench.upstream
    resource: ResourceView = plain.built()
    assert not plain.kind.reusable_after(plain.lease(resource))
    plain.destroyed(resource)
