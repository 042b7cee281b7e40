"""Messages that somebody else may put into the broker, each of them raw bytes in a queue."""

from __future__ import annotations

import base64
import json
from typing import Any

HUGE = "x" * 900_000
LINK = {"task": "leases.sweep", "args": [], "kwargs": {}, "options": {"queue": "periodic"}}


def message(headers: Any = None, body: Any = None, properties: Any = None, **more: Any) -> bytes:
    """A message as Celery would send it, with parts replaced."""
    given = {"lang": "py", "task": "leases.sweep", "id": "1", "root_id": "1", "parent_id": None, "group": None,
             "retries": 0, "eta": None, "expires": None, "timelimit": [None, None], "argsrepr": "()",
             "kwargsrepr": "{}", "origin": "me"}  # fmt: skip
    said = [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}] if body is None else body
    text = said if isinstance(said, str) else base64.b64encode(json.dumps(said).encode()).decode()
    known = {"correlation_id": "1", "delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "periodic"},
             "priority": 0, "body_encoding": "base64", "delivery_tag": "1"}  # fmt: skip
    whole = {
        "body": text, "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {**given, **headers} if isinstance(headers, dict) else given if headers is None else headers,
        "properties": {**known, **properties} if isinstance(properties, dict) else properties or known, **more,
    }  # fmt: skip
    return json.dumps(whole).encode()


HARMLESS: dict[str, bytes] = {
    "time limit of words": message({"timelimit": ["a", "b"]}),
    "time limit of one": message({"timelimit": 5}),
    "time limit below nothing": message({"timelimit": [-1, -1]}),
    "eta of a list": message({"eta": []}),
    "eta beyond all calendars": message({"eta": "9999-12-31T23:59:59+00:00"}),
    "expires of a word": message({"expires": "never"}),
    "retries of a word": message({"retries": "many"}),
    "id of a list": message({"id": []}),
    "id of a mapping": message({"id": {"a": 1}}),
    "group of a mapping": message({"group": {"a": [1]}}),
    "compression that is none": message({"compression": "x-none"}),
    "compression of a list": message({"compression": []}),
    "stamps": message({"stamped_headers": 5, "stamps": [1]}),
    "shadow": message({"shadow": {"a": 1}}),
    "callbacks": message(body=[[], {}, {"callbacks": [LINK] * 3, "errbacks": 5, "chain": [LINK], "chord": LINK}]),
    "another content type": message(**{"content-type": "application/x-python-serialize"}),
    "no content encoding": message(**{"content-encoding": None}),
    "encoding of a number": message(**{"content-encoding": 7}),
    "delivery tag of a list": message(properties={"delivery_tag": []}),
    "delivery info of a word": message(properties={"delivery_info": "there"}),
    "delivery info without a key": message(properties={"delivery_info": {}}),
    "priority of a word": message(properties={"priority": "first"}),
    "reply to": message(properties={"reply_to": {"a": 1}}),
}
"""They say what to do in a form of Celery's that is not right; the hint in them is. It is carried out."""

DROPPED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"hello",
    "half a JSON": b'{"body": ',
    "a number": b"1",
    "a list": b"[]",
    "nothing but null": b"null",
    "an empty object": b"{}",
    "no text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "a number of many digits": b"9" * 100_000,
    "infinity": b"1e999",
    "pickle": base64.b64decode("gASVIAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"),
    "a date of kombu's that is none": b'{"__type__": "datetime", "__value__": "never"}',
    "a number of kombu's that is none": b'{"__type__": "decimal", "__value__": "x"}',
    "bytes of kombu's that are none": b'{"__type__": "bytes", "__value__": 5}',
    "headers of a list": message([]),
    "headers of a word": message("x"),
    "headers of a number": message(5),
    "properties of a list": message(properties=[1]),
    "properties of a word": message(properties="x"),
    "no task": message({"task": None}),
    "task of a list": message({"task": ["leases.sweep"]}),
    "task of a mapping": message({"task": {}}),
    "another task": message({"task": "os.system"}),
    "a task of Celery's": message({"task": "celery.chord_unlock"}),
    "a task of the module's": message({"task": "leases.tasks"}),
    "body of a number": message(body=5),
    "body of a mapping": message(body={"args": []}),
    "body that is not valid base64": message(body="%%%"),
    "body that is no JSON": message(body=base64.b64encode(b"{").decode()),
    "body of another encoding": message(body="x", properties={"body_encoding": "rot13"}),
    "body of null": json.dumps({**json.loads(message()), "body": None}).encode(),
    "no body": json.dumps({k: v for k, v in json.loads(message()).items() if k != "body"}).encode(),
    "a huge body": message(body=HUGE),
    "a deep body": message(body=base64.b64encode(b"[" * 9000).decode()),
    "arguments of a word": message(body=["abc", {}, {}]),
    "arguments too many": message(body=[[1, 2, 3], {}, {}]),
    "arguments too few": message({"task": "leases.step"}),
    "an argument of a list": message({"task": "leases.step"}, body=[[[1]], {}, {}]),
    "an argument of a mapping": message({"task": "leases.step"}, body=[[{"$gt": 0}], {}, {}]),
    "an argument below nothing": message({"task": "leases.step"}, body=[[-1], {}, {}]),
    "an argument beyond all ids": message({"task": "leases.step"}, body=[[1 << 80], {}, {}]),
    "an argument of a truth": message({"task": "leases.step"}, body=[[True], {}, {}]),
    "a type with an escape": message({"task": "leases.serve"}, body=[["\x1b[2J"], {}, {}]),
    "a long type": message({"task": "leases.serve"}, body=[["x" * 5000], {}, {}]),
    "named arguments": message({"task": "leases.end"}, body=[[1], {"reason": "operator", "actor": "root"}, {}]),
    "the first protocol": json.dumps({"task": "leases.sweep", "id": "1", "args": [], "kwargs": {}}).encode(),
}
"""They are no hint."""
