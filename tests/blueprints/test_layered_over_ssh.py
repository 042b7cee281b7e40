"""The kinds that stand on others keep the contract on a host that is reached over SSH."""

from __future__ import annotations

import pytest

from interfaces.errors import QuotaExceeded
from tests.blueprints.layered_peers import account, server
from tests.blueprints.layered_peers import machine_over_ssh as machine
from tests.blueprints.test_storage import StorageBench
from tests.blueprints.test_webroot import WebrootBench
from tests.blueprints.test_working_copy import WorkingCopyBench

__all__ = ["account", "machine", "server"]


class TestStorageOverSsh(StorageBench):
    """With root as the control account where the tests are root, else with a size that is looked at."""

    def test_what_is_too_much_is_refused(self) -> None:
        lease = self.activated(self.lease(self.built()))
        assert lease.facts["limit"] == ("loop" if self.machine.own_account else "checked")
        _, files = self.opened(lease)
        files.write_bytes("most", bytes(7 << 20))
        with pytest.raises(QuotaExceeded):
            files.write_bytes("more", bytes(6 << 20))
        self._end(lease)


class TestWebrootOverSsh(WebrootBench):
    """A page is fetched."""


class TestWorkingCopyOverSsh(WorkingCopyBench):
    """From a repository on the host."""
