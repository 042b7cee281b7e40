"""What holds a process of this machine to its bounds, from its first instruction on."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from interfaces.command import JobSpec, ShellCommand
from interfaces.endpoints import LocalEndpoint, endpoint_from_json
from interfaces.errors import NotStarted
from interfaces.transports import transport_to
from tests.interfaces.conftest import AS_ROOT, LEASE_UID, always

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root bounds another account")


def command(home: Path, **bounds: Any) -> ShellCommand:
    endpoint = LocalEndpoint(uid=LEASE_UID, gid=LEASE_UID, home=str(home), **bounds)
    assert endpoint_from_json(endpoint.to_json()) == endpoint
    return ShellCommand(transport_to(endpoint), still_mine=always)


def limits(said: str) -> dict[str, list[str]]:
    """Soft and hard limits by name, of what /proc/self/limits says."""
    return {line[:25].strip(): line[26:].split()[:2] for line in said.splitlines()}


def test_limits_hold_for_commands_and_jobs_and_cannot_be_raised(home: Path) -> None:
    home.chmod(0o777)
    bounded = command(home, processes=50, open_files=100)
    found = limits(bounded.check(["cat", "/proc/self/limits"]).text)
    assert found["Max processes"] == ["50", "50"]
    assert found["Max open files"] == ["100", "100"]
    assert not bounded.run("ulimit -n 101").ok
    bounded.jobs.start(JobSpec(id="one", words=["cat", "/proc/self/limits"]))
    bounded.jobs.wait("one", timeout=60, every=0.05)
    assert limits(bounded.jobs.output("one").content.decode())["Max processes"] == ["50", "50"]
    bounded.jobs.remove("one")


def test_what_was_less_already_is_not_made_more(home: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = limits(command(home, open_files=1 << 30).check(["cat", "/proc/self/limits"]).text)
    assert int(found["Max open files"][1]) == hard


def test_more_processes_than_allowed_are_refused_by_the_kernel(home: Path) -> None:
    bounded = command(home, processes=20)
    result = bounded.run("n=0; while [ $n -lt 40 ]; do sleep 60 & n=$((n + 1)); done; wait", timeout=60)
    assert not result.ok
    assert "fork" in result.error_text
    # Only 20 there are: an unbounded way of the same account is needed, and is there, to end them.
    unbounded = bounded.transport.unbounded()  # type: ignore[attr-defined]
    ShellCommand(unbounded, still_mine=always).run("kill -9 -1")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of this machine's."""
    for tree in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        made = tree / f"drydock-test-{psutil.Process().pid}"
        if (tree / "cgroup.controllers").exists():
            try:
                made.mkdir()
            except OSError:
                continue
            yield made
            made.rmdir()
            return
    pytest.skip("no cgroup v2 tree that may be written")


def test_processes_belong_to_the_group(home: Path, group: Path) -> None:
    assert f"0::/{group.name}" in command(home, cgroup=str(group)).check(["cat", "/proc/self/cgroup"]).text.split()


def test_without_its_group_nothing_is_started(home: Path) -> None:
    home.chmod(0o777)
    with pytest.raises(NotStarted, match="limits of the lease cannot be set"):
        command(home, cgroup=f"{home}/gone").run("touch hit")
    assert not list(home.iterdir())
