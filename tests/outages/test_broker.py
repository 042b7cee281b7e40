"""The broker is stopped under load and comes back empty: workers and beat connect again, and the sweep finds what the
lost hints were about."""

from __future__ import annotations

import signal
import time

import pytest
import redis

from drydock.engines import BROKER
from tests.outages.servers import OwnServers
from tests.outages.site import OWNERS, problems

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGTERM, 1), (signal.SIGKILL, 15)], ids=["restart", "away"])
def test_workers_read_hints_again_when_the_broker_is_back(site, number, seconds):
    site.load()
    leased = {owner: len(site.leased(owner)) for owner in OWNERS}
    began = time.time()
    site.servers.stop(BROKER, number)
    time.sleep(seconds if isinstance(site.servers, OwnServers) else 1)
    meanwhile = {owner: len(site.leased(owner)) for owner in OWNERS}
    site.servers.start(BROKER)
    site.goes_on(time.time())
    with redis.Redis(unix_socket_path=str(site.servers.config.layout.broker_socket)) as broker:
        site.until(lambda: _reads(broker))
    lasted = time.time() - began
    heard = site.heard()
    site.settle()
    for name, text in heard.items():
        assert "Traceback" not in text, f"{name}: {text}"
        assert len(problems(text)) <= 3 * (lasted + 4), f"{name}: {text}"
    assert "does not receive messages" not in heard["worker"]
    if seconds > 5 and isinstance(site.servers, OwnServers):
        assert any(meanwhile[owner] > leased[owner] for owner in OWNERS), "the sweep in beat serves without a broker"


def _reads(broker: redis.Redis) -> bool:
    """Whether a worker waits for messages."""
    return any(client["cmd"] in ("brpop", "bzpopmin") for client in broker.client_list())
