"""Calls on a server that misbehaves: every one ends with the right error, in time, and shows no secret."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from blueprints.answers import Failed, Scope, Wait
from blueprints.kube import (
    AnswerInvalid,
    ApiUnavailable,
    CertificateUntrusted,
    Credential,
    CredentialRefused,
    KubeError,
    ManagerConflict,
    ObjectAbsent,
    ObjectChanged,
    ObjectExists,
    ObjectRefused,
    ObjectType,
    RequestForbidden,
    VersionExpired,
    connect,
)
from blueprints.kube.errors import AnswerTooLong
from tests.kube.double import TOKEN, Double, kubeconfig

THING = ObjectType(group="test.example.com", version="v1", kind="Thing", plural="things")
PATH = "/apis/test.example.com/v1/namespaces/lab/things"


def thing(name: str = "one", **changes: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "resourceVersion": "7", "generation": 1}
    return {"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": meta, "spec": {"size": 1}} | changes


def test_an_object_is_read_with_the_token(double: Double):
    double.says("GET", f"{PATH}/one", thing())
    with double.cluster() as cluster:
        found = cluster.get(THING, "one", "lab")
    assert (found.name, found.uid, found.spec) == ("one", "uid-one", {"size": 1})
    assert double.calls[0].token == TOKEN


def test_absence_is_a_404(double: Double):
    with double.cluster() as cluster:
        assert cluster.find(THING, "none", "lab") is None
        with pytest.raises(ObjectAbsent):
            cluster.get(THING, "none", "lab")


def test_a_listing_is_read_page_by_page(double: Double):
    more = {"metadata": {"resourceVersion": "9", "continue": "next"}, "items": [thing("a")]}
    double.says("GET", PATH, more, times=1)
    double.says("GET", PATH, {"metadata": {"resourceVersion": "9"}, "items": [thing("b")]})
    with double.cluster() as cluster:
        assert [one.name for one in cluster.list(THING, "lab", labels="a=b", limit=1)] == ["a", "b"]
    assert [call.query.get("continue") for call in double.calls] == [None, "next"]
    assert double.calls[1].query["labelSelector"] == "a=b"


def test_a_listing_whose_pages_are_too_long_is_read_in_shorter_ones(double: Double, monkeypatch):
    monkeypatch.setattr("blueprints.kube.cluster.MOST_PAGE", 2000)
    many = {"metadata": {"resourceVersion": "9", "continue": "next"}, "items": [thing(f"a{n}") for n in range(50)]}
    double.says("GET", PATH, many, times=1)
    double.says("GET", PATH, {"metadata": {"resourceVersion": "9"}, "items": [thing("b")]})
    with double.cluster() as cluster:
        assert [one.name for one in cluster.list(THING, "lab")] == ["b"]
    assert [(call.query["limit"], call.query.get("continue")) for call in double.calls] == [
        ("1000", None),
        ("250", None),
    ]


def test_a_server_that_repeats_its_page_ends_the_listing(double: Double):
    double.says("GET", PATH, {"metadata": {"resourceVersion": "9", "continue": "same"}, "items": [thing("a")]})
    with double.cluster() as cluster:
        assert len(cluster.list(THING, "lab")) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>captive portal</html>", b"[]", b"null", b'{"metadata": 1}', b'{"metadata": {"name": 5}}',
        b"[" * 90_000, b'{"metadata": {"name": "x", "generation": ' + b"9" * 9000 + b"}}",
        b'{"metadata": {"name": "x", "generation": "soon"}}', b'{"metadata": {"name": "x"', b"\xff\xfe\x00",
        b'{"metadata": {"name": "x", "finalizers": "f"}}',
    ],
)  # fmt: skip
def test_garbage_is_reported_as_such(double: Double, body: bytes):
    double.says("GET", f"{PATH}/one", body)
    with double.cluster() as cluster, pytest.raises(AnswerInvalid):
        cluster.get(THING, "one", "lab")


def test_a_status_of_a_mebibyte_and_ten_thousand_conditions_are_read_in_part(double: Double):
    conditions = [{"type": f"T{n}", "status": "True", "message": "m" * 100} for n in range(10_000)]
    double.says("GET", f"{PATH}/one", thing(status={"phase": "p" * 5000, "conditions": [None, *conditions]}))
    with double.cluster() as cluster:
        found = cluster.get(THING, "one", "lab")
    assert len(found.conditions) == 99
    assert len(found.phase) == 1000
    assert found.condition("T5").true


def test_an_answer_that_does_not_end_is_given_up(double: Double):
    def endless(handler: Any, call: Any) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while not double.ended.is_set():
            handler.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")

    double.does("GET", f"{PATH}/one", endless)
    with double.cluster() as cluster, pytest.raises(AnswerTooLong, match="more than 4096 KiB"):
        cluster.get(THING, "one", "lab")


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_server_that_sends_byte_by_byte_is_given_up_at_the_deadline(double: Double, part: str):
    def drip(handler: Any, call: Any) -> None:
        if part == "headers":
            return handler.drip(b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000)
        handler.send_response(200)
        handler.send_header("Content-Length", "10000")
        handler.end_headers()
        return handler.drip(b" " * 10_000)

    double.does("GET", f"{PATH}/one", drip)
    with double.cluster(deadline=0.5) as cluster, pytest.raises(ApiUnavailable, match="did not answer within"):
        cluster.get(THING, "one", "lab")


def test_silence_ends_at_the_deadline(double: Double):
    double.does("POST", PATH, lambda handler, call: double.ended.wait(20) and None)
    with double.cluster(deadline=0.3) as cluster, pytest.raises(ApiUnavailable) as caught:
        cluster.create(THING, thing())
    assert caught.value.sent


def test_nobody_at_the_address_means_that_nothing_was_sent():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"https://127.0.0.1:{taken.getsockname()[1]}"
        with (
            connect({"server": url, "token": "x"}) as cluster,
            pytest.raises(ApiUnavailable, match="refused") as caught,
        ):
            cluster.create(THING, thing())
    assert not caught.value.sent
    assert isinstance(caught.value.answer(), Wait)


def test_a_connection_that_ends_after_the_request_leaves_open_whether_it_was_carried_out(double: Double):
    def end(handler: Any, call: Any) -> None:
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    double.does("POST", PATH, end)
    with double.cluster() as cluster, pytest.raises(ApiUnavailable) as caught:
        cluster.create(THING, thing())
    assert caught.value.sent
    assert len(double.calls) == 1


def test_the_certificate_may_have_another_name(double: Double):
    double.says("GET", f"{PATH}/one", thing())
    for name in ("localhost", "elsewhere.test"):
        config = kubeconfig(double.url, user={"token": TOKEN}, cluster={"tls-server-name": name})
        with connect({"kubeconfig": yaml.safe_dump(config)}, deadline=60) as cluster:
            if name == "localhost":
                assert cluster.get(THING, "one", "lab").name == "one"
            else:
                with pytest.raises(CertificateUntrusted):
                    cluster.get(THING, "one", "lab")


def test_an_idle_connection_that_the_server_ended_is_opened_again(double: Double):
    def once(handler: Any, call: Any) -> None:
        handler.answer(200, b'{"metadata": {"name": "one"}}')
        handler.close_connection = True

    double.does("GET", f"{PATH}/one", once)
    with double.cluster() as cluster:
        for _ in range(3):
            assert cluster.get(THING, "one", "lab").name == "one"


@pytest.mark.parametrize(
    ("code", "header", "pause"), [(429, "7", 7.0), (503, "", 5.0), (500, "0", 1.0), (504, "x", 5.0)]
)
def test_overload_and_failures_mean_wait(double: Double, code: int, header: str, pause: float):
    double.fails("GET", f"{PATH}/one", code, Retry_After=header)
    with double.cluster() as cluster, pytest.raises(ApiUnavailable) as caught:
        cluster.get(THING, "one", "lab")
    answer = caught.value.answer()
    assert isinstance(answer, Wait)
    assert answer.after == pause


def test_a_wait_is_never_longer_than_five_minutes(double: Double):
    double.fails("GET", f"{PATH}/one", 429, Retry_After="999999999")
    with double.cluster() as cluster, pytest.raises(ApiUnavailable) as caught:
        cluster.get(THING, "one", "lab")
    assert caught.value.pause == 300.0


def test_401_reads_the_credential_again_once(double: Double):
    double.says("GET", f"{PATH}/one", thing())
    double.tokens = {"the-new-token"}
    reads = []

    def again() -> Credential:
        reads.append(1)
        return double.credential(token="the-new-token")

    with connect(double.credential(), again=again) as cluster:
        assert cluster.get(THING, "one", "lab").name == "one"
        double.tokens = set()
        with pytest.raises(CredentialRefused) as caught:
            cluster.get(THING, "one", "lab")
    assert len(reads) == 2
    assert len(double.calls) == 3  # the credential had not changed, so the last call was not repeated
    assert caught.value.answer().scope is Scope.OPERATOR


def test_403_names_verb_resource_and_namespace(double: Double):
    double.fails("DELETE", f"{PATH}/one", 403, "Forbidden", message=f"no, {TOKEN}")
    with double.cluster() as cluster, pytest.raises(RequestForbidden) as caught:
        cluster.delete(THING, "one", "lab", uid="u")
    error = caught.value
    assert (error.verb, error.resource, error.namespace) == ("delete", "things.test.example.com", "lab")
    assert "delete things.test.example.com one in namespace lab" in str(error)
    assert TOKEN not in str(error)


def test_a_conflict_names_the_other_manager_and_its_fields(double: Double):
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit" using v1', "field": ".spec.size"}
    ]
    double.fails("PATCH", f"{PATH}/one", 409, "Conflict", causes=causes)
    double.says("GET", f"{PATH}/one", thing())
    with double.cluster() as cluster, pytest.raises(ManagerConflict) as caught:
        cluster.apply(THING, thing(), current=cluster.get(THING, "one", "lab"))
    assert [(one.name, one.fields) for one in caught.value.owners] == [("kubectl-edit", (".spec.size",))]
    assert "kubectl-edit owns .spec.size" in str(caught.value)
    assert all("force" not in call.query for call in double.calls)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (409, "AlreadyExists", ObjectExists), (409, "Conflict", ObjectChanged), (410, "Expired", VersionExpired),
        (422, "Invalid", ObjectRefused), (400, "BadRequest", ObjectRefused), (302, "", AnswerInvalid),
    ],
)  # fmt: skip
def test_every_status_has_its_error(double: Double, code: int, reason: str, error: type[KubeError]):
    double.fails("POST", PATH, code, reason, causes=[{"field": "spec.size", "message": "too big"}, "garbage", None])
    with double.cluster() as cluster, pytest.raises(error) as caught:
        cluster.create(THING, thing())
    if isinstance(caught.value, ObjectRefused):
        assert [one.field for one in caught.value.problems] == ["spec.size"]
        assert isinstance(caught.value.answer(), Failed)


def test_a_redirect_never_gets_the_token(double: Double):
    double.says("GET", f"{PATH}/one", {}, 307, Location=f"{double.url}/elsewhere")
    with double.cluster() as cluster, pytest.raises(AnswerInvalid, match="redirects"):
        cluster.get(THING, "one", "lab")
    assert not double.called("GET", "/elsewhere")


def test_nothing_is_sent_to_a_server_with_another_certificate(double: Double):
    credential = double.credential(ca="")
    with connect(credential) as cluster, pytest.raises(CertificateUntrusted, match="not trusted"):
        cluster.get(THING, "one", "lab")
    assert not double.calls


def test_a_message_of_the_server_about_a_secret_is_not_repeated(double: Double):
    from blueprints.kube import SECRET

    double.fails("POST", ".*/secrets", 422, "Invalid", message="data: Invalid value: hunter2", causes=[
        {"field": "data[x]", "message": "Invalid value: hunter2"}
    ])  # fmt: skip
    with double.cluster() as cluster, pytest.raises(ObjectRefused) as caught:
        cluster.create(SECRET, SECRET.manifest("s", "lab", data={"x": "aHVudGVyMg=="}))
    assert "hunter2" not in str(caught.value) + str(caught.value.problems)
    assert caught.value.problems[0].field == "data[x]"


def test_a_client_certificate_is_presented_and_no_file_is_written(double: Double, tmp_path: Path):
    """The official client writes key and CA to temporary files; a process that is killed leaves them."""
    program = """
import os, sys
from blueprints.kube import ObjectType, connect
cluster = connect({"kubeconfig": sys.stdin.read()})
thing = ObjectType(group="test.example.com", version="v1", kind="Thing", plural="things")
print(cluster.get(thing, "one", "lab").name, flush=True)
links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
print(sum("memfd" in os.readlink(link) for link in links if os.path.lexists(link)), flush=True)
os.kill(os.getpid(), 9)
"""
    double.says("GET", f"{PATH}/one", thing())
    given = yaml.safe_dump(kubeconfig(double.url))
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], input=given, capture_output=True, text=True, env=environment,
        cwd=Path(__file__).parents[2], timeout=100,
    )  # fmt: skip
    assert done.stdout.split() == ["one", "0"], done.stderr
    assert double.calls[0].certificate
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_does_not_belong_to_the_certificate_is_refused_before_anything_is_sent(double: Double):
    config, other = kubeconfig(double.url), kubeconfig(double.url)
    config["users"][0]["user"]["client-key-data"] = other["users"][0]["user"]["client-key-data"]
    before = set(Path(tempfile.gettempdir()).iterdir())
    with (
        connect({"kubeconfig": yaml.safe_dump(config)}) as cluster,
        pytest.raises(KubeError, match="do not belong together"),
    ):
        cluster.get(THING, "one", "lab")
    assert not double.calls
    assert {
        path for path in set(Path(tempfile.gettempdir()).iterdir()) - before if path.suffix in (".pem", ".crt")
    } == set()


def test_a_watch_ends_from_another_thread(double: Double):
    import threading

    from blueprints.kube.client import Connection
    from blueprints.kube.credential import Source

    def quiet(handler: Any, call: Any) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        double.ended.wait(20)

    double.does("GET", PATH, quiet)
    stream = Connection(Source(double.credential())).stream(PATH, query=[("watch", "true")], deadline=5, idle=60)
    began = time.monotonic()
    threading.Timer(0.1, stream.close).start()
    with pytest.raises(ApiUnavailable):
        list(stream.lines(1000))
    assert time.monotonic() - began < 50
