"""What follows a commit: told even when it fails."""

from __future__ import annotations

import logging

import pytest
from django.db import transaction

from leases.messaging import hints


@pytest.mark.django_db(transaction=True)
def test_what_follows_a_commit_may_fail_and_is_logged(caplog):
    done = []

    def fails(what: str) -> None:
        raise ConnectionError(f"no {what}")

    with caplog.at_level(logging.ERROR), transaction.atomic():
        hints.once_committed(fails, "database")
        hints.once_committed(done.append, 1)
        assert done == []
    assert done == [1]
    assert "no database" in caplog.text
