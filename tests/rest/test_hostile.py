"""What strangers send: each gets a clear problem with the field, the right status, and nothing is changed."""

from __future__ import annotations

from leases.messaging.inline import settle
from leases.rest.parsing import DEEPEST
from tests.rest.attempts import Attempts, counts

LEASES = [
    ({"type": "nonsense"}, "type"), ({"type": ""}, "type"), ({"type": 5}, "type"), ({"type": "x" * 64}, "type"),
    ({"type": "../fake"}, "type"), ({"type": None}, "type"),
    ({"requirements": {"nonsense": 1}}, "requirements.nonsense"), ({"requirements": []}, "requirements"),
    ({"requirements": None}, "requirements"), ({"requirements": "vcpus"}, "requirements"),
    ({"requirements": {"vcpus": "2 parsecs"}}, "vcpus"), ({"vcpus": "2"}, "vcpus"), ({"vcpus": -0.0001}, "vcpus"),
    ({"vcpus": True}, "vcpus"), ({"ram": "4 furlongs"}, "ram"), ({"ram": -1}, "ram"), ({"ram": ""}, "ram"),
    ({"ram": False}, "ram"), ({"ram": 1.5}, "ram"), ({"ram": "٤"}, "ram"), ({"disk": 1 << 41}, "disk"),
    ({"disk": "9" * 5000}, "disk"), ({"ram": 1, "ram_mib": 1}, ""),
    ({"slots": 0}, "slots"), ({"slots": -1}, "slots"), ({"slots": 10**9}, "slots"), ({"slots": 10**40}, "slots"),
    ({"slots": "1"}, "slots"), ({"slots": True}, "slots"), ({"slots": 1.5}, "slots"),
    ({"cpu_millicores": -5}, "cpu_millicores"), ({"cpu_millicores": "1"}, "cpu_millicores"),
    ({"extra": {"gpu": -1}}, "extra.gpu"), ({"extra": {"gpu": 1 << 63}}, "extra.gpu"), ({"extra": 3}, "extra"),
    ({"exclusive": 1}, "exclusive"), ({"exclusive": "false"}, "exclusive"), ({"priority": 101}, "priority"),
    ({"ttl": "0s"}, "ttl"), ({"ttl": "-1h"}, "ttl"), ({"ttl": "soon"}, "ttl"), ({"ttl": "11y"}, "ttl"),
    ({"ttl": 1e308}, "ttl"), ({"ttl": []}, "ttl"), ({"ttl": True}, "ttl"), ({"ttl": "9" * 400 + "d"}, "ttl"),
    ({"wait_limit": -1}, "wait_limit"), ({"heartbeat_limit": "x"}, "heartbeat_limit"),
    ({"until": "2020-01-01T00:00:00Z"}, "until"), ({"until": 4_102_444_800}, "until"),
    ({"until": "4102444800"}, "until"), ({"until": "tomorrow"}, "until"), ({"until": "2030-01-01"}, "until"),
    ({"until": "2030-01-01T00:00:00"}, "until"), ({"until": "9999-12-31T23:59:59-12:00"}, "until"),
    ({"until": "0001-01-01T00:00:00+14:00"}, "until"), ({"until": "2030-02-30T00:00:00Z"}, "until"),
    ({"name": "\x1b[31m"}, "name"), ({"name": "a\0b"}, "name"), ({"name": "x" * 256}, "name"), ({"name": 5}, "name"),
    ({"labels": {"a b": "x"}}, "labels.a b.[key]"), ({"labels": {"a": 5}}, "labels.a"), ({"labels": ["a"]}, "labels"),
    ({"public_keys": ["x" * 2001]}, "public_keys.0"), ({"idempotency_key": ""}, "idempotency_key"),
    ({"allowed_blueprints": "pool"}, "allowed_blueprints"), ({"slotz": 1}, "slotz"), ({"id": 1}, "id"),
    ({"owner": "chief"}, "owner"), ({"state": "active"}, "state"), ({"charged_group": "staff"}, "charged_group"),
]  # fmt: skip


def test_requests_that_mean_nothing(ada):
    attempt = Attempts(ada)
    for given, field in LEASES:
        attempt("POST", "leases", 400, field, {"type": "fake", **given})
        attempt("POST", "explain", 400, field, {"type": "fake", **given})
    attempt("POST", "groups", 400, "leases.1.slots", {"leases": [{"type": "fake"}, {"type": "fake", "slots": -1}]})
    attempt("POST", "groups", 400, "leases", {"leases": []})
    attempt("POST", "groups", 400, "same", {"leases": [{"type": "fake"}], "same": "everything"})
    for near in ("close", "PREFER", None, True, 7, ["prefer"]):
        attempt("POST", "groups", 400, "near", {"leases": [{"type": "fake"}] * 2, "near": near})
    attempt("POST", "groups", 400, "near", {"leases": [{"type": "fake"}] * 2, "near": "prefer", "same": "parent"})
    attempt.done()


DOCUMENTS = [
    b"{", b"", b"[]", b'"x"', b"7", b"null", b"\xff\xfe{}", b'{"type": "fake", "type": "fake"}', b"{} {}",
    b'{"type": "fake", "slots": NaN}', b'{"type": "fake", "slots": Infinity}', b'{"type": "fake", "ttl": -Infinity}',
    b'{"type": "fake", "ttl": 1e400}', b'{"type": "fake", "requirements": {"a": -1e999}}',
    b'{"type": "fake", "slots": 1' + b"0" * 5000 + b"}", b'{"type": "fake", "name": "\\ud800"}',
    b'{"type": "fake", "labels": {"\\udfff": "x"}}', b'{"type": "fake", "name": "\\u0000"}',
    b'{"type": "fake", "requirements": ' + b"[" * 500_000, b"[" * 900_000,
    b'{"type": "fake", "requirements": ' + b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 2),
]  # fmt: skip


def test_documents_that_are_none(ada, chief, api):
    attempt = Attempts(ada)
    for content in DOCUMENTS:
        attempt("POST", "leases", 400, content=content)
    attempt("POST", "leases", 413, content=b'{"type": "' + b"x" * 10_000_000 + b'"}')
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/xml", "x"):
        attempt("POST", "leases", 415, content=b'{"type": "fake"}', content_type=kind)
    attempt("POST", "leases", 400, content=b"{}", headers={"Content-Length": "many"})
    attempt("POST", "leases", 400, "Idempotency-Key", {"type": "fake"}, headers={"Idempotency-Key": "x" * 256})
    attempt.done()

    boss = Attempts(api(chief, "operate"))
    endless = b'{"name": "x", "kind": "fake", "config": {"boot_polls": 1e999}}'
    boss("POST", "blueprints", 400, content=endless)
    boss("POST", "blueprints", 404, "kind", {"name": "x", "kind": "nonsense"})
    boss("POST", "blueprints", 400, "config.nonsense", {"name": "x", "kind": "fake", "config": {"nonsense": 1}})
    boss("PATCH", "blueprints/pool", 400, "max_resources", {"max_resources": -1})
    boss("PATCH", "blueprints/pool", 400, "idle_timeout", {"idle_timeout": "never"})
    boss("PATCH", "blueprints/pool", 400, "max_ttl", {"max_ttl": "never"})
    boss("PUT", "quotas", 400, "max_ttl", {"user": "ada", "max_ttl": "never"})
    boss("PUT", "quotas", 400, "max_slots", {"user": "ada", "max_slots": 1 << 31})
    boss("PUT", "quotas", 400, "user", {"user": "ada", "group": "staff", "max_slots": 1})
    boss.done()


def test_addresses_and_queries_that_lead_nowhere(ada, held):
    attempt = Attempts(ada)
    for path in ("nothing", "leases/", "leases/0", "leases/-1", "leases/1e3", "leases/" + "9" * 30, "leases/%00",
                 f"leases/{held}/", f"leases/{held}/nothing", "blueprints/a%2Fb", "blueprints/" + "x" * 64, "../admin",
                 "leases/٤", f"leases/{held}%0a"):  # fmt: skip
        attempt("GET", path, 404)
    for method, path in (("PUT", "leases"), ("DELETE", f"leases/{held}"), ("POST", "me"), ("OPTIONS", "leases"),
                         ("TRACE", "leases"), ("BREW", "leases")):  # fmt: skip
        assert attempt(method, path, 405).headers["Allow"]
    for query, field in (("limit=0", "limit"), ("limit=1001", "limit"), ("limit=1_0", "limit"), ("limit=+1", "limit"),
                         ("limit=1&limit=2", "limit"), ("state=alive", "state.0"), ("all=yes", "all"), ("all=1", "all"),
                         ("cursor=x", "cursor"), ("cursor=-1", "cursor"), ("resource=9" + "9" * 30, "resource"),
                         ("slots=1", "slots"), ("name=%00", "name"), ("order_by=owner", "order_by"),
                         ("name=" + "x" * 256, "name"), ("owner__password=a", "owner__password"),
                         ("label=%ed%a0%80%00", "label")):  # fmt: skip
        attempt("GET", f"leases?{query}", 400, field)
    for query in ("wait=-1", "wait=nan", "wait=inf", "wait=1e9", "wait=x", "wait=0x10"):
        attempt("GET", f"leases/{held}?{query}", 400, "wait")
    attempt("POST", f"leases/{held}/extend", 400, "until", {"until": "2020-01-01T00:00:00Z"})
    attempt("POST", f"leases/{held}/extend", 400, "until", {"until": "9999-12-31T23:59:59-12:00"})
    attempt("POST", f"leases/{held}/extend", 400, "until", {"until": 1e12})
    attempt("POST", f"leases/{held}/extend", 400, "ttl", {})
    attempt("POST", f"leases/{held}/extend", 400, "ttl", {"ttl": "1h", "until": "2030-01-01T00:00:00Z"})
    attempt("POST", f"leases/{held}/hold", 400, "ttl", {"ttl": "8d"})
    attempt("POST", f"leases/{held}/release", 400, "message", {"message": "x" * 5000})
    attempt.done()


def test_what_no_blueprint_could_ever_meet_is_refused_with_every_verdict(ada, held):
    before = counts()
    found = ada("POST", "explain", {"type": "fake", "slots": 1_000_000})
    assert found["outcome"] == "refuse"
    assert found["verdicts"][0]["answer"] == "no"
    assert counts() == before
    made = ada("POST", "leases", {"type": "fake", "slots": 1_000_000}, code=201)["id"]
    settle()
    lease = ada("GET", f"leases/{made}?wait=5")
    assert (lease["state"], lease["reason"]) == ("broken", "refused")
    assert lease["message"]
    assert [verdict["blueprint"] for verdict in lease["verdicts"]] == ["pool"]
    after = counts()
    assert {"Resource", "Share"}.isdisjoint(name for name in before if before[name] != after[name])
