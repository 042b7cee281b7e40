"""Behind PgBouncer in transaction mode all works, and goes on when it drops its connections or is restarted."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from drydock.engines import BROKER, POSTGRESQL
from tests.outages.conftest import state
from tests.outages.pooler import Pooled
from tests.outages.servers import FAST
from tests.outages.site import Site, problems
from tests.peers import require

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pooled() -> Iterator[Site]:
    require("pgbouncer")
    with state() as folder:
        servers = Pooled(folder)
        try:
            for name in (POSTGRESQL, BROKER, "pooler"):
                servers.start(name)
            with Site(servers) as made:
                yield made
        finally:
            servers.close()


@pytest.mark.parametrize("stopped", ["pooler", POSTGRESQL])
def test_all_go_on_when_a_pooler_drops_its_connections(pooled, stopped):
    pooled.load()
    pooled.servers.stop(stopped, signal.SIGTERM if stopped == "pooler" else FAST)
    time.sleep(3)
    pooled.servers.start(stopped)
    pooled.goes_on(time.time())
    heard = pooled.heard()
    pooled.settle()
    for name, text in heard.items():
        assert "Traceback" not in text, f"{name}: {text}"
        assert len(problems(text)) <= 3 * 6, f"{name}: {text}"
    assert "prepared statement" not in "".join(heard.values())
