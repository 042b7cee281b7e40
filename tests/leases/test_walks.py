"""The modules of the engine that a claim, a build and a release enter, so that one can read them from end to end.

A module counts when one of its functions is called. Those of `core` are counted apart: everything stands on them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import leases.engine
from leases.engine.lifecycle import release
from leases.messaging import hints
from leases.messaging.handlers import HANDLERS
from leases.messaging.inline import settle

_ENGINE = f"{Path(leases.engine.__file__).parent}/"


@contextmanager
def entered() -> Iterator[dict[str, set[str]]]:
    """Fill the modules that are entered, by package of the engine."""
    found: dict[str, set[str]] = {}

    def called(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_ENGINE):
            package, module = name.removeprefix(_ENGINE).split("/")
            found.setdefault(package, set()).add(module.removesuffix(".py"))

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(before)


def test_a_warm_claim(blueprint, ask):
    blueprint()
    lease = ask()
    settle()
    release.release(lease.pk, actor="ada")
    with entered() as found:
        assert ask().state == "active"
    assert found == {
        "core": {"database", "installation", "transitions"},
        "scheduling": {"request", "place"},
        "placement": {"pending", "claims", "constraints"},
    }


def test_a_release_that_lets_the_next_lease_in(blueprint, ask):
    blueprint(max_resources=1)
    lease, following = ask(), None
    settle()
    following = ask()
    with entered() as found:
        release.release(lease.pk, actor="ada")
    following.refresh_from_db()
    assert following.state == "active"
    assert found == {
        "core": {"database", "transitions"},
        "lifecycle": {"release"},
        "scheduling": {"place"},
        "placement": {"pending", "claims", "constraints"},
    }


def test_a_build(blueprint, ask):
    blueprint()
    with hints.collected() as messages, entered() as found:
        lease = ask()
        while messages:
            hint, arguments = messages.popleft()
            HANDLERS[hint](*arguments)
    lease.refresh_from_db()
    assert lease.state == "active"
    assert found == {
        "core": {"database", "installation", "transitions", "runs", "specs"},
        "queue": {"serve"},
        "scheduling": {"request", "place", "allocate", "candidates", "decision"},
        "placement": {"pending", "claims", "constraints", "budgets", "budget_check"},
        "catalogue": {"drafts"},
        "resources": {"provision", "remembered_errors"},
        "actions": {"grants", "needs"},
        "lifecycle": {"runner", "step_results", "phases", "resource_phases", "lease_phases"},
    }
