"""Whoever can write to the broker ends no worker and has nothing done that is not due."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from inspect import signature
from types import SimpleNamespace
from typing import get_type_hints

import psutil
import pytest
from django.db import connection
from kombu.transport import virtual
from kombu.transport.redis import Channel as KombuChannel

from drydock.celery import app
from drydock.up import Foreground, Program
from leases.engine.core import installation
from leases.messaging import hints, messages
from leases.messaging.handlers import HANDLERS
from leases.models import Installation
from leases.operations.attention import needed
from leases.operations.callers import Caller
from tests.engines.users import eventually
from tests.leases.hostile_messages import DROPPED, HARMLESS, message
from tests.leases.test_workers import _hints_are_sent, life  # noqa: F401


@pytest.fixture
def raw(transactional_db):
    """The broker as whoever writes to it has it."""
    with app.connection_for_write() as broker:
        channel = broker.default_channel
        yield channel.client


def swept() -> str:
    return str(Installation.objects.values_list("swept_at").first())


def lives_on(process: psutil.Process, began: float) -> None:
    """It is the same process still, and reads its queues."""
    before = swept()
    eventually(lambda: hints.send("sweep") and swept() != before, 30)
    assert process.is_running()
    assert process.create_time() == began


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_hints_are_sent")
@pytest.mark.slow
def test_hostile_messages_end_no_worker_and_are_counted(worker, raw):
    client = raw
    process = psutil.Process(worker.process.pid)
    began = process.create_time()
    installation.current()
    for n, content in enumerate([*HARMLESS.values(), *DROPPED.values()]):
        queue = ("claims", "steps", "periodic")[n % 3]
        client.execute_command("LPUSH", queue, content)
    eventually(lambda: not any(client.llen(queue) for queue in ("claims", "steps", "periodic")))
    lives_on(process, began)
    # Keys of another type than Celery's, and garbage among what is not acknowledged.
    client.execute_command("SET", "steps", "x")
    client.execute_command("DEL", "unacked")
    client.execute_command("SET", "unacked", "x")
    time.sleep(1.5)
    lives_on(process, began)
    client.execute_command("HSET", "unacked", "tag", "no JSON")
    client.execute_command("ZADD", "unacked_index", 1, "tag")
    lives_on(process, began)
    eventually(lambda: Installation.objects.get().dropped_messages >= len(DROPPED), 30)
    worker.stop()
    log = worker.text()
    assert "Traceback" not in log, log
    said = [line for line in log.splitlines() if "Dropped" in line and "not Drydock's own" in line]
    assert 1 <= len(said) < 10, "one line in some seconds, however many there are"


@pytest.mark.parametrize("name", DROPPED)
def test_what_is_no_hint_is_refused_before_celery_sees_it(name):
    with pytest.raises((messages.Unreadable, ValueError, RecursionError)):
        messages.readable(json.loads(DROPPED[name]), "periodic")


@pytest.mark.parametrize("name", HARMLESS)
def test_of_a_hint_only_its_name_and_arguments_are_kept(name):
    made = messages.readable(json.loads(HARMLESS[name]), "periodic")
    plain = messages.readable(json.loads(message()), "periodic")
    own = {"id", "root_id"}
    assert {k: v for k, v in made["headers"].items() if k not in own} == {
        k: v for k, v in plain["headers"].items() if k not in own
    }
    assert made["body"] == plain["body"]
    assert made["properties"]["delivery_tag"] != json.loads(HARMLESS[name])["properties"]["delivery_tag"]


def test_our_own_messages_are_readable():
    sent = {"serve": ("host",), "sweep": (), "discover": (1 << 40, "rack-7")}
    assert {*messages.ARGUMENTS} <= {*hints.QUEUES}
    for hint in hints.QUEUES:
        arguments = sent.get(hint, (1 << 40,))
        made = messages.readable(json.loads(message({"task": f"leases.{hint}"}, body=[arguments, {}, {}])), "steps")
        assert made["headers"]["task"] == f"leases.{hint}"


@pytest.mark.parametrize("hint", sorted(HANDLERS))
def test_a_hint_has_the_arguments_that_its_handler_takes(hint):
    types = get_type_hints(HANDLERS[hint])
    takes = [types[one.name] for one in signature(HANDLERS[hint]).parameters.values() if one.kind != one.KEYWORD_ONLY]
    assert list(messages.ARGUMENTS.get(hint, (int,))) == takes


def test_many_at_once_are_one_line_and_a_number(db, caplog):
    installation.current()
    dropped = messages.Dropped()
    with caplog.at_level(logging.ERROR, "leases.messaging.messages"):
        for _ in range(1000):
            dropped.count("its task is 'x'")
    dropped.report()
    dropped.report()
    assert len(caplog.records) == 1
    assert Installation.objects.get().dropped_messages == 1000
    told = [one for one in needed(Caller(id=1, name="root", operator=True)) if one.what == "dropped_messages"]
    assert len(told) == 1
    assert "its task is 'x'" in told[0].message


@pytest.mark.django_db(transaction=True)
def test_workers_use_the_reader_and_kombu_still_has_its_places():
    with app.connection_for_read() as broker:
        assert isinstance(broker.default_channel, messages.Channel)
        with broker.clone() as again:
            assert isinstance(again.default_channel, messages.Channel)
    assert issubclass(messages.Channel, KombuChannel)


@pytest.mark.slow
def test_beat_serves_where_no_worker_lives(life, monkeypatch, tmp_path):  # noqa: F811
    """The broker is there and takes every hint; nobody reads them."""
    import os

    from tests.leases.clients import ROOT
    from tests.settings import DATABASE

    environment = os.environ | {
        DATABASE: str(connection.settings_dict["NAME"]), "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DRYDOCK_SWEEP_INTERVAL_SECONDS": "0.3", "DRYDOCK_LOST_WORKER_SECONDS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "celery", "-A", "drydock.celery", "beat", "--pidfile", ""]
    with (tmp_path / "beat.log").open("wb") as log:
        beat = subprocess.Popen(
            [*command, "--scheduler", "leases.schedule:Scheduler"], env=environment, stdout=log, stderr=log, cwd=ROOT
        )
        try:
            life()
        finally:
            beat.terminate()
            beat.wait(15)


def test_a_worker_that_keeps_ending_stops_neither_web_nor_itself():
    said: list[str] = []
    foreground = Foreground(
        [Program("web", ["sleep", "60"]), Program("steps", ["false"], needed=False)], lambda _, text: said.append(text)
    )
    try:
        for program in foreground.programs:
            foreground._start(program)
        until = time.monotonic() + 3.5
        while time.monotonic() < until:
            assert foreground._mend()
            time.sleep(0.05)
        assert foreground.children["web"].poll() is None
        starts = [text for text in said if text.startswith("starting steps again")]
        assert 2 <= len(starts) <= 5, "with growing pauses"
    finally:
        foreground.stop()


def test_a_web_process_that_keeps_ending_ends_all():
    foreground = Foreground([Program("web", ["false"])], lambda *_: None)
    foreground._start(foreground.programs[0])
    until = time.monotonic() + 10
    while foreground._mend():
        assert time.monotonic() < until
        time.sleep(0.02)
    foreground.stop()


def test_a_message_that_cannot_be_acknowledged_takes_no_place_of_the_worker(caplog):
    gone = SimpleNamespace(connection_errors=(ConnectionError,), do_restore=False)
    taken = virtual.QoS(gone, prefetch_count=1)
    taken.append(object(), "tag")
    assert not taken.can_consume()

    def ack(self: object, delivery_tag: str) -> None:
        raise ConnectionError("refused")

    messages._freeing(ack)(taken, "tag")
    assert taken.can_consume()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
