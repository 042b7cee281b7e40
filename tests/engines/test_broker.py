"""Sending a hint: done by a real worker, and bounded when the broker is gone, deaf or unreachable."""

from __future__ import annotations

import socket
import time

import pytest
from kombu.exceptions import OperationalError

from drydock.celery import DrydockCelery, app

BOUND = 0.2
"""Seconds that a hint may cost (DESIGN, concurrency rule 5). The quickest of a few tries is held against it: what the
program waits for is in every try, what a busy machine adds is not."""


def sender(url: str) -> DrydockCelery:
    """An app like ours that speaks to another address."""
    other = DrydockCelery("other", set_as_current=False)
    other.config_from_object("django.conf:settings", namespace="CELERY")
    other.conf.update(broker_url=url, broker_read_url=url, broker_write_url=url)
    return other


def seconds_to_fail(other: DrydockCelery) -> float:
    return min(_one_try(other) for _ in range(5))


def _one_try(other: DrydockCelery) -> float:
    began = time.monotonic()
    with pytest.raises(OperationalError):
        other.send_task("nothing", queue="claims")
    return time.monotonic() - began


@pytest.fixture
def deaf():
    """Takes connections, and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.fixture
def full():
    """Takes no further connection, as a network that drops packets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        for each in waiting:
            each.close()


@pytest.fixture(autouse=True)
def private_engines_aside(settings):
    """The bound is about the connection; starting a private engine has its own deadline."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"broker_url": "redis://elsewhere"})
    import kombu.transport.redis  # noqa: F401  (the first import takes longer than the bound)


def test_a_stopped_broker(tmp_path):
    assert seconds_to_fail(sender("redis://127.0.0.1:1/0")) < BOUND
    assert seconds_to_fail(sender(f"redis+socket://{tmp_path}/none")) < BOUND


def test_a_deaf_broker(deaf):
    assert seconds_to_fail(sender(deaf)) < BOUND


def test_an_unreachable_broker(full):
    assert seconds_to_fail(sender(full)) < BOUND


def test_a_hint_has_a_fifth_of_a_second_for_connecting_and_its_answer():
    assert 2 * app.connection_for_write().transport_options["socket_timeout"] <= 0.2
    assert app.connection_for_write().transport_options["max_retries"] == 0


def test_queues_and_safety():
    assert [queue.name for queue in app.conf.task_queues] == ["claims", "steps", "periodic"]
    assert app.conf.task_acks_late
    assert app.conf.task_reject_on_worker_lost
    assert app.conf.accept_content == ["json"]
    assert app.conf["CELERY_DB_REUSE_MAX"] == 100
