"""The faults from outside, as a table from name to act."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil
import psycopg
import redis

from blueprints.fake.cloud import Cloud
from chaos.plan import Strike
from chaos.processes import Process
from chaos.provider import PROVIDER
from drydock.engines import BROKER, POSTGRESQL, Config
from drydock.engines.layout import DATABASE, USER
from drydock.engines.process import occupants

QUEUES = ("claims", "steps", "periodic")
SHUFFLING, STOPPED = 1.5, 2.5
"""Seconds for which messages are doubled and reordered, and for which the broker stands still."""


@dataclass(kw_only=True)
class Stricken:
    """What strikes act on, and how often each of them did something."""

    engines: Config
    prefix: str
    processes: dict[str, Process]
    done: Counter[str] = field(default_factory=Counter)
    threads: list[threading.Thread] = field(default_factory=list)

    def some(self, kind: str, aim: float) -> Process:
        """The process of this kind that the strike is aimed at."""
        found = [process for name, process in self.processes.items() if name.startswith(kind)]
        return found[int(aim * len(found))]

    def database(self) -> psycopg.Connection[Any]:
        """A connection of nobody's; fails while the database is down."""
        where = str(self.engines.layout.sockets)
        return psycopg.connect(host=where, user=USER, dbname=DATABASE, autocommit=True, connect_timeout=5)

    def broker(self) -> redis.Redis:
        """The same for the broker."""
        return redis.Redis(unix_socket_path=str(self.engines.layout.broker_socket), socket_timeout=2)

    def aside(self, act: Callable[[], None]) -> None:
        """For strikes that last."""
        thread = threading.Thread(target=act, daemon=True)
        self.threads.append(thread)
        thread.start()


def strike(what: Strike, on: Stricken) -> bool:
    """Carry it out; False when what it is meant for was not there at that moment."""
    try:
        struck = STRIKES[what.name](on, what.aim)
    except (psycopg.OperationalError, redis.RedisError, psutil.Error, OSError):
        struck = False
    on.done[what.name] += struck
    return struck


def measure_queues(on: Stricken) -> None:
    """How long the queues grow at most; nothing while the broker is down."""
    with contextlib.suppress(redis.RedisError, OSError), on.broker() as broker:
        waiting = sum(int(broker.llen(f"{on.prefix}{queue}")) for queue in QUEUES)
        on.done["longest queue"] = max(on.done["longest queue"], waiting)


def _kill(kind: str) -> Callable[[Stricken, float], bool]:
    return lambda on, aim: on.some(kind, aim).kill()


def _kill_child(on: Stricken, aim: float) -> bool:
    return on.some("worker", aim).kill_a_child(aim)


def _empty_broker(on: Stricken, aim: float) -> bool:
    with on.broker() as broker:
        on.done["messages lost"] += sum(int(broker.llen(f"{on.prefix}{queue}")) for queue in QUEUES)
        return bool(broker.flushall())


def _stop_broker(on: Stricken, aim: float) -> bool:
    """It answers nobody for a while, and then is dead; the keeper starts an empty one."""
    found = occupants(on.engines.layout.data(BROKER), "")
    for process in found:
        process.suspend()

    def end() -> None:
        time.sleep(STOPPED)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    on.aside(end)
    return bool(found)


def _postmaster(on: Stricken) -> psutil.Process:
    """Return the server's process. Its file is empty for a moment while the server starts."""
    file = on.engines.layout.data(POSTGRESQL) / "postmaster.pid"
    until = time.monotonic() + 10
    while not (lines := file.read_text().splitlines()) and time.monotonic() < until:
        time.sleep(0.05)
    return psutil.Process(int(lines[0]))


def _end_database(number: signal.Signals) -> Callable[[Stricken, float], bool]:
    """Ended so, it is started again by the keeper."""

    def end(on: Stricken, aim: float) -> bool:
        _postmaster(on).send_signal(number)
        return True

    return end


def _kill_keeper(on: Stricken, aim: float) -> bool:
    keeper = _postmaster(on).parent()
    if keeper is None or "drydock.engines.keeper" not in keeper.cmdline():
        return False
    os.kill(keeper.pid, signal.SIGKILL)
    return True


def _cut_connections(on: Stricken, aim: float) -> bool:
    """A part of all connections, by chance."""
    with on.database() as database:
        cut = database.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < %s",
            (0.3 + 0.7 * aim,),
        ).fetchone()
    on.done["connections cut"] += cut[0] if cut else 0
    return bool(cut and cut[0])


_SHUFFLE = """
local found = redis.call('LRANGE', KEYS[1], 0, -1)
redis.call('DEL', KEYS[1])
local order = cjson.decode(ARGV[1])
for _, place in ipairs(order) do
    if found[place] then redis.call('RPUSH', KEYS[1], found[place]) end
end
return #found
"""


def _shuffle_messages(on: Stricken, aim: float) -> bool:
    """For a while whatever waits in the queues is doubled and put in another order."""
    chance = random.Random(aim)

    def shuffle() -> None:
        until = time.monotonic() + SHUFFLING
        while time.monotonic() < until:
            with contextlib.suppress(redis.RedisError, OSError), on.broker() as broker:
                for queue in QUEUES:
                    on.done["messages doubled"] += _shuffle(broker, f"{on.prefix}{queue}", chance)
            time.sleep(0.02)

    on.aside(shuffle)
    return True


def _shuffle(broker: redis.Redis, queue: str, chance: random.Random) -> int:
    """How many messages were doubled. A queue that has grown long is only reordered."""
    length = int(broker.llen(queue))
    if not length:
        return 0
    order = [*range(1, length + 1)] * (2 if length < 100 else 1)
    chance.shuffle(order)
    moved = int(broker.eval(_SHUFFLE, 1, queue, json.dumps(order)))
    return moved if length < 100 else 0


def _lose_instance(on: Stricken, aim: float) -> bool:
    """An instance vanishes at the provider, as if somebody had deleted it by hand."""
    cloud = Cloud(PROVIDER)
    running = cloud.instances("running")
    if not running:
        return False
    cloud.lose(running[int(aim * len(running))].key)
    return True


STRIKES: dict[str, Callable[[Stricken, float], bool]] = {
    "kill_worker": _kill("worker"),
    "kill_child": _kill_child,
    "kill_beat": _kill("beat"),
    "kill_web": _kill("web"),
    "kill_client": _kill("client"),
    "empty_broker": _empty_broker,
    "stop_broker": _stop_broker,
    "crash_database": _end_database(signal.SIGKILL),
    "restart_database": _end_database(signal.SIGINT),
    "stop_database": _end_database(signal.SIGQUIT),
    "kill_keeper": _kill_keeper,
    "cut_connections": _cut_connections,
    "shuffle_messages": _shuffle_messages,
    "lose_instance": _lose_instance,
}
