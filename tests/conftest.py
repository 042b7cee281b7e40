"""The test run: its own engines in a folder of its own, no connection off this machine, nothing left behind."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from hypothesis import settings

from tests import database, migrated, reporting, slow
from tests.guards import allow_only_this_machine, leftovers
from tests.peers import require
from tests.settings import DATABASE, STATE
from tests.workers import Worker, clear_broker

MIGRATING = pytest.StashKey[subprocess.Popen[bytes] | None]()

allow_only_this_machine()
database.install()
# No example has a time limit, because the machine may be busy.
settings.register_profile("drydock", deadline=None)
settings.load_profile("drydock")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the time that a run may have."""
    slow.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Report failures at once, and what the tests cost. The run's time counts from here."""
    reporting.register(config)
    gc.set_threshold(50_000, 20, 20)  # what is imported and collected stays: a fifth of the CPU found nothing in it
    if not hasattr(config, "workerinput"):
        slow.set_end(config.getoption("minutes"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """If there will be workers that run tests, begin to make the database that they copy."""
    first, options = not hasattr(session.config, "workerinput"), session.config.option
    if first and getattr(options, "numprocesses", None) and not options.collectonly:
        session.config.stash[MIGRATING] = migrated.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set up nothing for a test that comes too late."""
    slow.skip_if_late(item)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves to `make test-slow`, and leave out what another test shows."""
    items[:] = [item for item in items if not slow.is_shown_elsewhere(item)]
    for item in items:
        if slow.is_slow(item):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Compile the tests together with the other workers, if all of them are to be collected."""
    ours, everything = getattr(session.config, "workerinput", None), Path(__file__).parent
    if ours and [session.config.invocation_params.dir / one for one in session.config.args] == [everything]:
        from tests.scheduling import import_share

        import_share(int(ours["workerid"].removeprefix("gw")), ours["workercount"])


def pytest_collection_finish() -> None:
    """Keep modules and tests out of garbage collection, which took a tenth of the CPU to find nothing in them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files and groups go to the workers whole, unless `--dist` says otherwise."""
    if config.getoption("dist") != "load":
        return None
    from tests.scheduling import ByFile

    return ByFile(config, log)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """Copy the database that one process has migrated."""
    migrated.copy()


@pytest.fixture(scope="session", autouse=True)
def _devices_of_this_machine() -> Iterator[None]:
    """Let the end of a host leave the devices alone that another process tests."""
    from tests.blueprints.device_peers import hand_back_undisturbed

    with pytest.MonkeyPatch.context() as patched:
        for user in ("accounts", "local"):
            patched.setattr(f"blueprints.{user}.actions.hand_back_all", hand_back_undisturbed)
        yield


@pytest.fixture
def worker(transactional_db: None) -> Iterator[Worker]:
    """A real Celery worker on the test database, with queues of its own; for tests with transaction=True."""
    worker = Worker({DATABASE: connection.settings_dict["NAME"]})
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.stop()


@pytest.fixture
def peer() -> Callable[[str], str]:
    """`peer("sshd")`: the program's path; skips without it, or fails in CI."""
    return require


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """The first process of the run clears up, and fails the run if something had been left."""
    from drydock.engines import Config, leave, wait_until_stopped

    state = Path(os.environ[STATE])
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput[reporting.PEAK] = reporting.peak_mib()  # type: ignore[attr-defined]
        leave(state)
        return
    if maker := session.config.stash.get(MIGRATING, None):
        migrated.end(maker)
    if any(state.glob("kube-*")):
        from tests.kube.servers import stop_all

        stop_all(state)
    clear_broker(state.name)
    leave(state)
    stopped = wait_until_stopped(Config(state=state), 30)
    problems = leftovers(state) if stopped else ["the private engines did not stop"]
    shutil.rmtree(state, ignore_errors=True)
    if state.exists():
        problems.append(f"{state} could not be removed")
    if problems:
        print("\nLeft behind by the tests:\n  " + "\n  ".join(problems), file=sys.stderr)
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
