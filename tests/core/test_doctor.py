"""The doctor: all well on a migrated database, and every ailment said with its cure."""

from __future__ import annotations

import pytest
from django.apps import apps

from blueprints.fake.kind import Fake
from blueprints.models import Blueprint
from blueprints.specs import Problem
from drydock import doctor
from leases.models import Resource

pytestmark = pytest.mark.django_db


def findings() -> dict[str, doctor.Finding]:
    return {finding.check: finding for finding in doctor.examine()}


def test_all_is_well():
    apps.get_model("leases", "Worker").objects.create(name="one")
    bad = [finding for finding in findings().values() if finding.verdict is not doctor.Verdict.OK]
    assert bad == []


def test_a_lost_key_a_broker_gone_and_no_worker_are_said_with_their_cure(settings, monkeypatch):
    settings.DRYDOCK_ENCRYPTION_KEYS = ["short"]
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"database_url": "postgresql://h/n"})
    monkeypatch.setattr(doctor.current_app, "connection_for_write", _gone)
    found = findings()
    for check in ("keys", "broker", "workers"):
        assert found[check].verdict is doctor.Verdict.FAIL, found[check]
        assert found[check].mend
    assert "DRYDOCK_ENCRYPTION_KEYS" in found["keys"].mend
    assert found["database"].verdict is doctor.Verdict.OK


def test_what_cannot_be_reached_is_named(monkeypatch):
    apps.get_model("leases", "Worker").objects.create(name="one")
    lab = Blueprint.objects.create(name="lab", kind="fake", resource_type="fake", config={"provider": "lab"})
    Resource.objects.create(blueprint=lab, type="fake", name="rack-7", state="active", check_failures=2)
    found = findings()["reachability"]
    assert (found.verdict, found.mend) == (doctor.Verdict.WARN, "drydock attention")
    assert "rack-7" in found.message
    said = [
        Problem(field="provider", message="it does not answer"),
        Problem(field="x", message="y", fatal=False),
    ]
    monkeypatch.setattr(Fake, "check_blueprint", lambda self, blueprint: said)
    found = findings()["reachability"]
    assert (found.verdict, found.mend) == (doctor.Verdict.FAIL, "drydock blueprints check lab")
    assert found.message.endswith("lab: it does not answer")
    monkeypatch.setattr(Fake, "check_blueprint", lambda self, blueprint: 1 / 0)
    assert "lab: ZeroDivisionError" in findings()["reachability"].message


def _gone():
    raise OSError("connection refused")
