"""Hosts that do not answer: they take some of the threads, for seconds, and from nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import connections

from blueprints.fake.openers import fakes
from interfaces.errors import DeadlineExceeded
from leases import hostcalls
from leases.engine.core import specs
from leases.messaging.inline import settle
from leases.places import PLACES
from leases.rest.urls import V1
from tests.rest.attempts import archive

TAR = {"content": archive(("top/a", b"x")), "content_type": "application/x-tar"}
BYTES = {"content": b"x", "content_type": "application/octet-stream"}
CALLS = {
    "leases/<id:id>/jobs": [("POST", "", {"body": {"command": ["true"]}})],
    "leases/<id:id>/file": [("PUT", "?path=a", BYTES), ("GET", "?path=a", {}), ("DELETE", "?path=a", {})],
    "leases/<id:id>/files": [("GET", "", {})],
    "leases/<id:id>/tree": [("PUT", "?path=b", TAR), ("GET", "?path=b", {})],
    "leases/<id:id>/page": [("PUT", "?path=a", BYTES), ("GET", "?path=a", {}), ("DELETE", "?path=a", {})],
    "leases/<id:id>/pages": [("PUT", "?path=p", TAR)],
    "leases/<id:id>/server": [("GET", "", {}), ("POST", "", {"body": {"act": "start"}})],
    "leases/<id:id>/server/log": [("GET", "?kind=access", {})],
    "leases/<id:id>/dpu-services": [("GET", "", {})],
    "leases/<id:id>/dpu-services/<word:name>": [
        ("PUT", "", {"body": {"chart": {"repository": "oci://a.test", "name": "a", "version": "1"}}}),
        ("GET", "", {}), ("DELETE", "", {}),
    ],
    "jobs/<id:id>": [("GET", "", {})],
    "jobs/<id:id>/output": [("GET", "", {})],
    "jobs/<id:id>/cancel": [("POST", "", {})],
}  # fmt: skip
"""Every address that reaches a host, and how."""


@pytest.fixture
def job(ada, held) -> int:
    return ada("POST", f"leases/{held}/jobs", {"command": ["sleep", "1000"]}, code=202)["id"]


@pytest.fixture
def jobs(held):
    """The jobs on the host of the lease."""
    return fakes(specs.key("l", held)).command.jobs


@pytest.fixture
def eve(api, blueprint):
    """Another owner, with a lease and a job of her own."""
    client = api(User.objects.create_user("eve"))
    made = client("POST", "leases", {"type": "fake"}, code=201)["id"]
    settle()
    client.job = client("POST", f"leases/{made}/jobs", {"command": ["true"]}, code=202)["id"]
    return client


def test_whatever_reaches_a_host_holds_a_place(ada, held, job, monkeypatch) -> None:
    """A new address that opens an interface without one fails here."""
    reached: list[bool] = []
    real = specs.opened

    def opened(*given):
        reached.append(PLACES._taken.total() > 0)
        return real(*given)

    monkeypatch.setattr(specs, "opened", opened)
    for address, view in V1.items():
        if not address.startswith(("leases/<id:id>", "jobs/")):
            continue
        path = address.replace("<id:id>", str(job if address.startswith("jobs/") else held))
        path = path.replace("<word:name>", "edge")
        if address in CALLS:
            for method, query, given in CALLS[address]:
                reached.clear()
                answer = ada.raw(method, path + query, **given)
                if hasattr(answer, "streaming_content"):
                    list(answer.streaming_content)
                answer.close()
                over = address == "jobs/<id:id>/cancel"
                assert reached or over, (method, path, answer.status_code)
                assert all(reached), (method, path, answer.status_code)
        else:
            reached.clear()
            ada.raw("GET", path).close()
            assert all(reached), f"{address} ({view.__name__}) reaches a host without a place"


@pytest.fixture
def hanging(jobs, monkeypatch) -> Iterator[threading.Event]:
    """The host of ada's lease answers nothing until this is set."""
    done, real = threading.Event(), jobs.status

    def status(id: str):
        done.wait(60)
        return real(id)

    monkeypatch.setattr(jobs, "status", status)
    yield done
    done.set()


def test_an_owner_with_hosts_that_hang_leaves_threads_and_places_to_others(
    ada, job, eve, hanging, jobs, settings
) -> None:
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"web_threads": 8, "longest_wait_seconds": 0})
    entered = threading.Semaphore(0)
    real = PLACES.take

    def take(sort: str, user: int) -> bool:
        took = real(sort, user)
        if took:
            entered.release()
        return took

    def ask() -> int:
        try:
            return int(ada.raw("GET", f"jobs/{job}").status_code)
        finally:
            connections.close_all()

    PLACES.take = take  # type: ignore[method-assign]
    try:
        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(ask) for _ in range(3)]
            for _ in waiting:
                assert entered.acquire(timeout=30)
            refused = [ada.raw("GET", f"jobs/{job}") for _ in range(197)]
            assert {one.status_code for one in refused} == {503}
            assert (refused[0].headers["Retry-After"], refused[-1].headers["Retry-After"]) == ("1", "10")
            assert ada("GET", "me")["name"] == "ada", "the owner is answered all that needs no host"
            assert eve("GET", f"jobs/{eve.job}")["state"] == "running", "another owner's host has a place"
            hanging.set()
            assert [one.result(30) for one in waiting] == [200, 200, 200]
    finally:
        del PLACES.take
    assert PLACES._taken.total() == 0


def test_a_host_that_does_not_answer_is_named(ada, held, job, jobs, monkeypatch) -> None:
    def silent(id: str):
        raise DeadlineExceeded("The command took longer than 10 s.")

    monkeypatch.setattr(jobs, "status", silent)
    answer = ada.raw("GET", f"jobs/{job}")
    said = answer.json()
    assert (answer.status_code, said["code"], answer.headers["Retry-After"]) == (504, "host_silent", "5")
    assert said["detail"].startswith(f"The host of lease {held} (")
    assert said["detail"].endswith(") did not answer within 10 s.")
    assert "timed_out" in said["is_a"]
    assert PLACES._taken.total() == 0


def test_a_page_of_the_console_has_a_place_and_a_deadline_too(client, job, jobs, monkeypatch) -> None:
    client.force_login(User.objects.create_superuser("root"))
    seen: list[bool] = []

    def output(*_):
        seen.append(hostcalls.in_call())
        raise DeadlineExceeded("The command took longer than 10 s.")

    monkeypatch.setattr(jobs, "output", output)
    page = client.get(f"/admin/leases/job/{job}/output/")
    assert seen == [True]
    assert b"did not answer within 10 s" in page.content


def test_places_are_bounded_for_each_sort_user_and_all(settings) -> None:
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"web_threads": 16})
    taken = [(sort, user) for user in range(9) for sort in ("host", "transfer", "wait") for _ in range(9)
             if PLACES.take(sort, user)]  # fmt: skip
    try:
        assert len(taken) == 12
        assert max(sum(1 for sort, _ in taken if sort == name) for name in ("host", "transfer", "wait")) <= 8
        assert max(sum(1 for _, whose in taken if whose == user) for user in range(9)) <= 6
    finally:
        for sort, user in taken:
            PLACES.leave(sort, user)
    assert PLACES._taken.total() == 0
