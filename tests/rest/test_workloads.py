"""Workloads over REST: asked for with a lease, told of with it, their output read after it."""

from __future__ import annotations

from blueprints.fake.openers import fakes
from leases.engine.core import specs
from leases.messaging.inline import settle
from leases.models import Job
from leases.workloads import jobs as mechanism


def asked(ada, code=201, **workload):
    return ada("POST", "leases", {"type": "fake", "workload": workload}, code=code)


def test_a_workload_from_asking_to_its_kept_output(ada, api, owner):
    lease = asked(ada, command=["make", "all"], env={"PIN": "hunter2"})
    assert lease["workload"]["state"] == "waiting"
    for _ in range(2):
        settle()
    row = Job.objects.get()
    host = fakes(specs.key("l", lease["id"])).command.jobs
    host.say(mechanism.host_id(row), b"made\n")
    host.finish(mechanism.host_id(row), 2)
    mechanism.watch(row.pk)
    for _ in range(2):
        settle()
    whole = ada.raw("GET", f"leases/{lease['id']}")
    found = whole.json()
    assert (found["state"], found["workload"]["outcome"], found["workload"]["exit_code"]) == ("destroyed", "exited", 2)
    assert found["workload"]["variables"] == ["PIN"]
    assert "hunter2" not in whole.content.decode()
    assert found["metrics"]["complete"] is False, "the fake host counts nothing"
    output = ada.raw("GET", f"jobs/{row.pk}/output")
    assert (output.content, output.headers["Drydock-Over"], output.headers["Drydock-Truncated"]) == (
        b"made\n",
        "1",
        "0",
    )
    told = ada("GET", f"leases/{lease['id']}/events")["results"]
    assert [one["message"] for one in told if one["to_state"] == "released"] == [
        "The workload has failed with exit code 2."
    ]


def test_bad_workloads_are_refused_with_their_field(ada):
    for workload, field in (
        ({"command": []}, "workload.command"),
        ({"image": "No Image"}, "workload.image"),
        ({"image": "alpine", "env": {"PATH": "/"}}, "workload.env"),
        ({}, "workload"),
    ):
        problem = asked(ada, code=400, **workload)
        assert any(one["field"].startswith(field) for one in problem["errors"]), problem
