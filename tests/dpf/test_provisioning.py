"""The step in which DPF installs a card, as a watch reports it: no request is sent while nothing is to do."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Json, Wait
from blueprints.dpf.access import SELDOM
from blueprints.dpu.dpf import provisioning
from blueprints.dpu.dpf.config import Config
from blueprints.specs import BlueprintView, ResourceView, Spec
from drydock.core import clock
from tests.kube.double import Double, double

CONFIG = {"credential": "dpf", "namespace": "dpus", "image": "https://images/a.bfb", "flavor": "hbn"}
REPORT: Json = {"phase": "OS Installing", "percent": 20, "sentence": "DPU a: OS Installing."}


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture
def server():
    """A server that is down for good: whoever reads is told so."""
    with double() as found:
        found.fails("GET", "/apis", 503, "ServiceUnavailable")
        yield found


def seen(seconds: float, phase: str = "OS Installing") -> Json:
    """Return the memo of a step that saw a phase first so many seconds ago."""
    since = clock.now() - dt.timedelta(seconds=seconds)
    return {"phase": phase, "since": since.isoformat(), "percent": 16, "reimaged": 1}


def called(server: Double, memo: Json, report: Json | None, **config: Any) -> tuple[Answer, int]:
    """Call the step. Return its answer and the number of requests."""
    secrets = {"server": server.url, "token": server.credential().token, "ca": server.ca}
    view = BlueprintView(
        id=3, name="dpus", kind="dpf", generation=1, config=Config.model_validate({**CONFIG, **config}),
        credentials={"dpf": secrets},
    )  # fmt: skip
    resource = ResourceView(
        id=4, key="dd-r4", name="dpus-4", type="dpu", origin="built", blueprint=view, attributes={},
        capacity=Amounts(slots=1),
    )  # fmt: skip
    before = len(server.calls)
    answer = provisioning.provision(Spec(phase="build", key="dd-r4", resource=resource, progress=report), memo)
    return answer, len(server.calls) - before


def test_a_phase_that_a_watch_reports_is_shown_without_a_request(server):
    memo = seen(60.0)
    answer, requests = called(server, memo, REPORT)
    assert isinstance(answer, Wait)
    assert (answer.percent, answer.sentence, requests) == (20, REPORT["sentence"], 0)
    assert answer.memo == {**memo, "percent": 20}
    assert (answer.after, answer.watched) == (2.0, SELDOM)


def test_the_limit_of_a_phase_begins_when_a_watch_reports_it(server):
    answer, requests = called(server, seen(1500.0, "Prepare BFB"), REPORT)
    assert isinstance(answer, Wait)
    assert (answer.memo["phase"], requests) == ("OS Installing", 0)
    assert (clock.now() - dt.datetime.fromisoformat(answer.memo["since"])).total_seconds() < 60


@pytest.mark.parametrize(
    ("memo", "report"),
    [(seen(60.0), None), ({}, REPORT), (seen(4000.0), REPORT)],
    ids=["nothing reported", "first call", "limit of the phase exceeded"],
)
def test_otherwise_it_reads(server, memo, report):
    answer, requests = called(server, memo, report)
    assert isinstance(answer, Wait)
    assert requests > 0
    assert "503" in answer.sentence
