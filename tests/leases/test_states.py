"""The state tables, and the page made from them."""

from __future__ import annotations

from pathlib import Path

from drydock.reference.states import meanings, page
from leases.states import HOLDING, LEASE, RESOURCE, LeaseState, ResourceState


def test_the_page_is_current():
    assert (Path(__file__).parents[2] / "docs" / "states.md").read_text() == page(), "run make docs"


def test_every_state_says_what_it_means_and_is_in_its_table():
    for table, states in ((LEASE, LeaseState), (RESOURCE, ResourceState)):
        assert set(meanings(states)) == set(states) == set(table.transitions)


def test_what_is_over_stays_over():
    assert LEASE.terminal == {LeaseState.DESTROYED, LeaseState.BROKEN}
    assert RESOURCE.terminal == {ResourceState.DESTROYED, ResourceState.BROKEN}
    assert not LEASE.terminal & set(HOLDING)
