"""working_copy from a git remote over SSH, with an account that has a number and no name: real sshd, real git."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueprints.answers import Failed, Json
from blueprints.specs import ResourceView
from interfaces.keys import new_key_pair
from interfaces.launch import CLEAN_PATH
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server
from tests.blueprints.layered_peers import Machine, machine
from tests.blueprints.test_working_copy import Upstream, WorkingCopyBench
from tests.peers import require

__all__ = ["machine"]


@pytest.fixture(scope="module")
def remote() -> Iterator[Server]:
    require("ssh")
    with peers.server(f"127.9.1.{WORKER + 26}") as running:
        yield running


class Bench(WorkingCopyBench):
    """The repository is fetched over SSH with the credential's key."""

    def __init__(self, machine: Machine, remote: Server) -> None:
        self.machine, self.remote, self.leased = machine, remote, {}
        self.key, self.known = remote.control.private, remote.host.public
        self.upstream = Upstream(machine.folder)

    def config(self) -> Json:
        known = f"[{self.remote.address}]:{self.remote.port} {self.known}"
        where = [f"ssh://*@{self.remote.address}:{self.remote.port}/*"]
        return super().config() | {"credential": "deploy", "known_hosts": [known], "repositories": where}

    def credentials(self) -> dict[str, dict[str, str]]:
        return {"deploy": {"private_key": self.key}}

    def requirements(self) -> Json:
        at = f"{getpass.getuser()}@{self.remote.address}:{self.remote.port}"
        return {"repository": f"ssh://{at}{self.upstream.folder}", **self.asks}

    def failure(self) -> Failed:
        outcome = self.run("build", self.resource())
        assert isinstance(outcome.answer, Failed)
        self.destroyed(outcome.spec.resource)
        return outcome.answer


@pytest.fixture
def bench(machine: Machine, remote: Server) -> Bench:
    peers.needs_root()
    return Bench(machine, remote)


def test_what_is_there_is_what_the_remote_has(bench: Bench) -> None:
    bench.asks = {"ref": "v1"}
    resource = bench.built()
    lease = bench.activated(bench.lease(resource))
    assert bench.command(lease).check("git rev-parse HEAD; id -u").text.split() == [
        bench.upstream.first,
        str(bench.machine.uid),
    ]
    for phase in ("deactivate", "clean"):
        bench.ready(phase, resource, lease)
    bench.asks = {}
    after = bench.activated(bench.lease(resource))
    assert after.facts["commit"] == bench.upstream.second
    bench._end(after)


def test_a_remote_with_another_host_key_is_not_spoken_to(bench: Bench) -> None:
    bench.known = new_key_pair().public
    assert "Host key verification failed" in bench.failure().message


def test_a_key_that_the_remote_refuses_is_said(bench: Bench) -> None:
    bench.key = new_key_pair().private
    assert "Permission denied" in bench.failure().message


def test_where_ssh_cannot_work_without_a_name_git_runs_as_root(bench: Bench) -> None:
    shut = bench.machine.folder / "bin"
    shut.mkdir()
    (shut / "unshare").write_text("#!/bin/sh\nexit 1\n")
    (shut / "unshare").chmod(0o755)
    bench.machine.environment = (("PATH", f"{shut}:{CLEAN_PATH}"),)
    bench.asks = {"ref": "v1"}
    resource = bench.built()
    lease = bench.activated(bench.lease(resource))
    assert lease.facts["commit"] == bench.upstream.first
    assert {each.owner() for each in resource_folder(resource).glob("git/mirror")} == {"root"}
    bench._end(lease)


def resource_folder(resource: ResourceView) -> Path:
    """What the control side has of a working copy."""
    return Path(f"{resource.facts['folder']}.control")
