"""What the tests of the engine share: owners, blueprints of the fake kind, requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User

from blueprints.cloud import operations
from blueprints.models import Blueprint
from drydock.core import clock
from leases.consoles import pump
from leases.engine.core import installation
from leases.engine.lifecycle import step_results
from leases.engine.scheduling import request as lease_request
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Lease, Run
from leases.validation.requests import read
from tests.peers import require

if TYPE_CHECKING:
    from tests.clouds.machines import Machines
    from tests.leases.emulated import Emulated


@pytest.fixture(autouse=True)
def _database(transactional_db: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path))
    installation.forget()
    with hints.collected():
        yield
    pump.stop_all(20)
    installation.forget()


@pytest.fixture
def swallowed() -> None:
    """For a test in which the sweep meets rows that it cannot act on."""


@pytest.fixture(autouse=True)
def _nothing_is_swallowed(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    if "swallowed" not in request.fixturenames:
        assert not [r for r in caplog.get_records("call") if r.funcName == "attempt"]


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def blueprint() -> Callable[..., Blueprint]:
    """Make a blueprint of the fake kind that everyone may use."""

    def make(
        name: str = "pool", *, kind: str = "fake", config: dict[str, Any] | None = None, **columns: Any
    ) -> Blueprint:
        columns = {"audience": "everyone", "resource_type": kind} | columns
        return Blueprint.objects.create(name=name, kind=kind, config=config or {}, **columns)

    return make


@pytest.fixture
def ask(owner: User) -> Callable[..., Lease]:
    """Ask for a lease as `owner`."""

    def make(type: str = "fake", *, by: User | None = None, **given: Any) -> Lease:
        asked = read({"type": type, **given})
        done = lease_request.request(asked, (by or owner).pk, actor=(by or owner).username)
        return Lease.objects.get(pk=done.id)

    return make


@pytest.fixture(autouse=True)
def _quick(settings: Any) -> None:
    """Retries follow at once, so that no test waits for a backoff."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(
        update={"step_backoff_seconds": 0.01, "step_backoff_limit_seconds": 0.02, "step_token_seconds": 5.0}
    )


@pytest.fixture
def unhurried(_quick: None, settings: Any) -> None:
    """Give each step the time it has in production, because a real host on a busy machine may need it."""
    usual = type(settings.DRYDOCK).model_fields["step_token_seconds"].default
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": usual})


_RUN = ("phase", "position", "step", "tries", "in_call", "step_since", "due_at", "token_until", "sentence")


@pytest.fixture
def until() -> Callable[..., Any]:
    """Sweep until something holds of a row; fails with what the row says when it does not in time."""

    def wait(row: Any, seconds: float = 60, **columns: Any) -> Any:
        end, pause = clock.monotonic() + seconds, 0.05
        while True:
            # A sweep takes more CPU than most of what is waited for.
            pause = 0.05 if settle() else min(pause * 1.5, 0.25)
            row.refresh_from_db()
            found = {name: getattr(row, name) for name in columns}
            if found == columns:
                return row
            if clock.monotonic() > end:
                runs = "; ".join(str(run) for run in Run.objects.values(*_RUN))
                pytest.fail(f"{row}: {found}, wanted {columns}; it says {row.reason}: {row.message}; runs: {runs}")
            clock.sleep(pause)

    return wait


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that waits is called again soon: what it waits for here takes no seconds, as a real machine does."""
    real = step_results.in_
    monkeypatch.setattr(step_results, "in_", lambda seconds: real(min(seconds, 0.1)))


@pytest.fixture
def machines(soon: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """The machines of emulated clouds. Their boot id never changes, so that a reboot is believed after a while."""
    monkeypatch.setattr(operations, "_SETTLE", 1.0)
    require("sshd")
    require("sudo")
    from tests.clouds.machines import Machines

    found = Machines()
    yield found
    found.close()


@pytest.fixture(params=["azure", "ec2", "gce"])
def cloud(request: pytest.FixtureRequest, machines: Machines) -> Iterator[Emulated]:
    """Each emulated cloud in turn. Only here are their doubles loaded, which takes seconds."""
    from tests.leases.emulated import CLOUDS

    with CLOUDS[request.param](machines) as found:
        yield found


@pytest.fixture
def amazon(machines: Machines) -> Iterator[Emulated]:
    """Amazon's alone."""
    from tests.leases.emulated import CLOUDS

    with CLOUDS["ec2"](machines) as found:
        yield found
