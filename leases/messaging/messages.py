"""The messages that a worker accepts from the broker: only hints in Drydock's own format."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import redis, virtual
from kombu.utils.uuid import uuid as new_uuid
from redis.exceptions import ResponseError

from drydock.core import clock
from leases.engine.core import installation
from leases.messaging import hints

log = logging.getLogger(__name__)

_redis: Any = redis

"""Typed as Any, because its type stubs lack the methods that are overridden here."""

LONGEST = 16 << 10

"""The maximum length of a message body in characters. Drydock's own have fewer than a hundred."""

LONGEST_WORD = 255

_IDS = range(1 << 63)

ARGUMENTS: dict[str, tuple[type[Any], ...]] = {"serve": (str,), "sweep": (), "discover": (int, str)}

"""The types of the arguments of each hint. A hint that is not listed has one id as its argument."""

_TASK = "leases."

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_LOG_SECONDS = 10.0

_SHOWN = 200


class Unreadable(ValueError):
    """A message that is not a valid hint. The text says why."""


class Dropped:
    """Counts the messages that this process drops, logs at most one line every few seconds, and reports the total."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unreported, self._unsaid, self._last, self._said_at = 0, 0, "", float("-inf")

    def count(self, why: str) -> None:
        """Count one dropped message. `why` is the reason."""
        with self._lock:
            self._unreported, self._unsaid, self._last = self._unreported + 1, self._unsaid + 1, why[:_SHOWN]
            if clock.monotonic() - self._said_at < _LOG_SECONDS:
                return
            self._said_at, number, self._unsaid = clock.monotonic(), self._unsaid, 0
        log.error("Dropped %d broker messages that are not Drydock's own, the last because: %s", number, why)

    def report(self) -> None:
        """Add the messages that were counted since the last report to the row of the installation."""
        with self._lock:
            number, why, self._unreported = self._unreported, self._last, 0
        if not number:
            return
        try:
            installation.add_dropped(number, why)
        except Exception:
            with self._lock:
                self._unreported += number
            raise


DROPPED = Dropped()


def readable(raw: Any, queue: str) -> dict[str, Any]:
    """Return the message, rebuilt from its hint and arguments. Raises Unreadable if it is not a valid hint."""
    whole = _mapping(raw, "message")
    headers, properties = _mapping(whole.get("headers"), "headers"), _mapping(whole.get("properties"), "properties")
    task = headers.get("task")
    hint = task.removeprefix(_TASK) if isinstance(task, str) and task.startswith(_TASK) else ""
    if hint not in hints.QUEUES:
        raise Unreadable(f"its task is {str(task)[:60]!r}")
    arguments = _arguments(hint, _body(whole.get("body"), properties.get("body_encoding")))
    given = headers.get("id")
    pk = given if isinstance(given, str) and _ID.fullmatch(given) else str(uuid.uuid4())
    body = json.dumps([arguments, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py", "task": task, "id": pk, "root_id": pk, "parent_id": None, "group": None, "retries": 0,
            "eta": None, "expires": None, "timelimit": [None, None], "argsrepr": repr(tuple(arguments)),
            "kwargsrepr": "{}", "origin": "", "ignore_result": True,
        },
        "properties": {
            "correlation_id": pk, "delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0, "body_encoding": "base64", "delivery_tag": new_uuid(),
        },
    }  # fmt: skip


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable(f"its {what} are not a JSON object")
    return value


def _body(body: Any, encoding: Any) -> Any:
    if not isinstance(body, str) or len(body) > LONGEST:
        raise Unreadable(f"its body is not text of at most {LONGEST} characters")
    try:
        return json.loads(base64.b64decode(body, validate=True) if encoding == "base64" else body)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise Unreadable(f"its body is not valid JSON: {type(error).__name__}") from None


def _arguments(hint: str, body: Any) -> list[Any]:
    if not isinstance(body, list) or len(body) != 3 or not isinstance(body[0], list) or body[1]:
        raise Unreadable("its body does not contain arguments, named arguments and options")
    arguments: list[Any] = body[0]
    takes = ARGUMENTS.get(hint, (int,))
    if len(arguments) != len(takes) or not all(map(_is, takes, arguments)):
        raise Unreadable(f"{hint} takes {', '.join(kind.__name__ for kind in takes) or 'no arguments'}")
    return arguments


def _is(kind: type[Any], value: Any) -> bool:
    if type(value) is not kind:
        return False
    return value in _IDS if isinstance(value, int) else len(value) <= LONGEST_WORD and value.isprintable()


def _unspoiled(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a step of the emulated acknowledgement so that it removes keys of the wrong type."""

    def done(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return work(self, *args, **kwargs)
        except ResponseError as error:
            return self.channel.remove_spoiled(error)

    return done


def _freeing(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a step of the emulated acknowledgement so that it succeeds even if the broker cannot be reached.

    A worker takes as many messages as it has processes. A message whose acknowledgement failed would count as taken
    forever, and if all of them failed, the worker would not even notice that its connection is gone. The broker
    delivers the message again if it still has it, and hints may be handled twice.
    """

    def done(self: Any, delivery_tag: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return work(self, delivery_tag, *args, **kwargs)
        except self.channel.connection_errors as error:
            log.warning("A message could not be acknowledged: %s", error)
            return virtual.QoS.ack(self, delivery_tag)

    return done


class QoS(_redis.QoS):  # type: ignore[misc]
    """Acknowledges messages, and returns unacknowledged ones to their queue."""

    append = _unspoiled(_redis.QoS.append)
    ack = _freeing(_unspoiled(_redis.QoS.ack))
    reject = _freeing(_unspoiled(_redis.QoS.reject))
    restore_visible = _unspoiled(_redis.QoS.restore_visible)

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Return a message to its queue, or drop the message if it cannot be parsed."""
        try:
            super().restore_by_tag(tag, client, leftmost)
        except (ValueError, TypeError, RecursionError, ArithmeticError) as error:
            DROPPED.count(f"unacknowledged and not JSON: {type(error).__name__}")
            self._remove_from_indices(tag).execute()


class Channel(_redis.Channel):  # type: ignore[misc]
    """Reads from the queues, and drops messages that are not JSON."""

    QoS = QoS

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except ResponseError as error:
            self.remove_spoiled(error)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError) as error:
            # The broker no longer has the message. Only parsing it raises these errors here, not its delivery.
            DROPPED.count(f"not JSON: {type(error).__name__}")
        raise Empty

    def remove_spoiled(self, error: ResponseError) -> None:
        """Delete those keys of the queues that have another type than Celery uses. Raises `error` if there are none."""
        queues = (self._q_for_pri(queue, priority) for priority in self.priority_steps for queue in self.active_queues)
        wanted = {**dict.fromkeys(queues, b"list"), self.unacked_key: b"hash", self.unacked_index_key: b"zset"}
        with self.conn_or_acquire() as client:
            # kombu adds the prefix to the keys of commands that it knows, and TYPE is not one of them.
            types = {key: client.type(f"{self.global_keyprefix}{key}") for key in wanted}
            spoiled = [key for key, kind in wanted.items() if types[key] not in (kind, b"none")]
            if not spoiled:
                raise error
            client.delete(*spoiled)
        DROPPED.count(f"keys of another type than Celery's: {', '.join(spoiled)}")


class Transport(_redis.Transport):  # type: ignore[misc]
    """A Redis transport that passes on only messages that are valid hints."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            made = readable(message, queue)
        except Unreadable as error:
            DROPPED.count(str(error))
            return
        virtual.Transport._deliver(self, made, queue)
