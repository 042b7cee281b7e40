"""Cases: each follows from its sort and its number alone, so that a failure is one line of `corpus.txt`."""

from __future__ import annotations

import base64
import io
import json
import random
import tarfile
from typing import Any

from tests.leases.hostile_messages import DROPPED, HARMLESS

WORDS = [
    "", "x", "fake", "host", "a" * 300, "\x00", "\x9b2J", "\u202e", "\ud800", "漢字", "-1", "1e999", "../..", "/", "*",
    "{{7*7}}", "' OR 1=1 --", "\n", "9" * 400, "2h", "4GiB", "null", "%00", "%2e%2e", "\x7f",
]  # fmt: skip
NUMBERS = [0, -1, 1, 1 << 31, 1 << 63, 1 << 80, -(1 << 63), 0.5, 1e308, True, False, None]
FIELDS = [
    "type", "requirements", "slots", "ram", "vcpus", "labels", "name", "ttl", "until", "traits", "workload", "extra",
    "command", "env", "cwd", "stdin", "leases", "same", "message", "reason", "priority", "public_keys",
]  # fmt: skip
KINDS = [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
ADDRESSES = [
    ("POST", "leases"), ("POST", "groups"), ("POST", "explain"), ("POST", "tokens"),
    ("POST", "leases/{id}/jobs"), ("POST", "leases/{id}/extend"), ("POST", "leases/{id}/hold"), ("POST", "instances"),
    ("GET", "offers"), ("POST", "authorizations"),
]  # fmt: skip


def value(rng: random.Random, depth: int = 0) -> Any:
    """Something of JSON."""
    sort = rng.randrange(8 if depth < 4 else 4)
    if sort < 2:
        return rng.choice(WORDS)
    if sort < 4:
        return rng.choice(NUMBERS)
    if sort < 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice([*FIELDS, *WORDS]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def spoiled(rng: random.Random, content: bytes) -> bytes:
    """The content with some of its bytes changed, removed, doubled or added."""
    found = bytearray(content)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(4):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at : at + rng.randrange(20)]
            case 2:
                found[at:at] = found[at : at + rng.randrange(40)]
            case _:
                found[at:at] = rng.randbytes(rng.randrange(9))
    return bytes(found)


def body(rng: random.Random) -> bytes:
    """A JSON body that is nearly right, or none."""
    given: Any = {"type": "fake"} if rng.random() < 0.5 else {}
    given |= {rng.choice(FIELDS): value(rng) for _ in range(rng.randrange(4))}
    text = json.dumps(given if rng.random() < 0.9 else value(rng)).encode()
    return spoiled(rng, text) if rng.random() < 0.3 else text


def archive(rng: random.Random) -> bytes:
    """A tar archive with odd entries, often broken."""
    target = io.BytesIO()
    form = rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    with tarfile.open(fileobj=target, mode="w", format=form, encoding="utf-8", errors="surrogatepass") as made:
        plain = [word for word in WORDS if word != "\ud800" and "\0" not in word]
        for _ in range(rng.randrange(5)):
            name = "/".join(rng.choice(plain) for _ in range(rng.randrange(1, 5))) or "x"
            entry = tarfile.TarInfo(name)
            entry.type = rng.choice(
                [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
            )
            entry.linkname, entry.mode = rng.choice(plain), rng.randrange(0o10000)
            entry.size = rng.randrange(2000) if entry.type == tarfile.REGTYPE else 0
            made.addfile(entry, io.BytesIO(bytes(entry.size)))
    content = target.getvalue()
    return spoiled(rng, content) if rng.random() < 0.6 else content


def message(rng: random.Random) -> bytes:
    """A message of the broker."""
    raw = rng.choice([*HARMLESS.values(), *DROPPED.values()])
    if rng.random() < 0.5:
        return spoiled(rng, raw[:20_000])
    said = json.dumps([[value(rng)], value(rng), value(rng)]).encode()
    made = {
        "body": base64.b64encode(said).decode(),
        "headers": {
            "task": rng.choice(["leases.sweep", "leases.step", "leases.serve"]),
            "id": value(rng),
            "timelimit": value(rng),
            "eta": value(rng),
        },
        "properties": {"delivery_tag": value(rng), "body_encoding": "base64", "delivery_info": value(rng)},
    }
    return json.dumps(made).encode()
