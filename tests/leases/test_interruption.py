"""A spot machine whose guest was told that it is taken back: its owner hears of it by the next health check."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pytest

from blueprints.cloud import guest, interruption
from blueprints.models import Blueprint
from blueprints.userdata import LIMIT
from leases.messaging.inline import settle
from leases.models import Event, Resource
from leases.signals import interruption_announced
from tests.clouds import machines
from tests.clouds.machines import cloud_config
from tests.leases.emulated import Emulated, gone, look, ready

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(400),
]


@pytest.fixture
def notice(tmp_path, monkeypatch) -> Path:
    """The notice of the one machine, which shares this computer."""
    file = tmp_path / "interruption.json"
    monkeypatch.setattr(guest, "_ANNOUNCED", guest._ANNOUNCED.replace(interruption.NOTICE, str(file)))
    return file


@pytest.fixture
def heard():
    found = []

    def hear(sender, **about):
        found.append((about["lease_id"], about["resource_id"]))

    interruption_announced.connect(hear)
    yield found
    interruption_announced.disconnect(hear)


@pytest.fixture
def given(monkeypatch) -> list[str]:
    """The user data that machines were started with."""
    found: list[str] = []
    monkeypatch.setattr(machines, "cloud_config", lambda text: (found.append(text), cloud_config(text))[1])
    return found


def spot(cloud: Emulated, **config) -> None:
    cloud.blueprint(markets=["spot"], **config)
    Blueprint.objects.update(check_interval=dt.timedelta(hours=1))
    look()


def checked() -> None:
    """One health check of everything."""
    before = Event.objects.filter(kind="step.done", message="check: look").count()
    Resource.objects.update(check_at="2020-01-01T00:00Z")
    settle()
    assert Event.objects.filter(kind="step.done", message="check: look").count() == before + 1


@pytest.mark.parametrize("cloud", ["azure", "gce", "ec2"], indirect=True)
def test_what_the_guest_was_told_is_announced_once(cloud, notice, heard, ask, until):
    spot(cloud)
    lease = ready(ask("host"), until)
    checked()
    assert not heard
    notice.write_text(json.dumps({"provider": cloud.kind, "action": "preempt", "time": "2027-01-01T08:22:00Z"}))
    checked()
    checked()
    assert heard == [(lease.pk, lease.resource_id)]
    told = Event.objects.get(kind="lease.interruption", lease=lease)
    assert "the guest was notified: preempt at 2027-01-01T08:22:00Z" in told.message
    assert Event.objects.filter(kind="resource.interruption").count() == 1
    lease.refresh_from_db()
    assert lease.state == "active"
    gone()


@pytest.mark.parametrize("cloud", ["azure"], indirect=True)
@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 4096, '"x"'])
def test_a_notice_that_is_none_announces_nothing_and_fails_no_check(cloud, notice, heard, ask, until, text):
    spot(cloud)
    ready(ask("host"), until)
    notice.write_text(text)
    checked()
    assert not heard
    assert Resource.objects.get().check_failures == 0
    gone()


@pytest.mark.parametrize("cloud", ["gce"], indirect=True)
def test_a_lying_notice_stays_a_short_plain_text(cloud, notice, heard, ask, until):
    spot(cloud)
    ready(ask("host"), until)
    notice.write_text(json.dumps({"action": "\x1b[31m" + "x" * 3000, "time": ["a"]}))
    checked()
    assert len(heard) == 1
    (event,) = Event.objects.filter(kind="lease.interruption")
    assert "\x1b" not in event.message
    assert len(event.message) < 200
    gone()


@pytest.mark.parametrize("market", ["spot", "on_demand"])
def test_only_spot_machines_get_the_program(cloud, given, market, ask, until):
    cloud.blueprint(markets=[market])
    look()
    lease = ready(ask("host"), until)
    said = cloud_config(given[0])
    paths = [one["path"] for one in said.get("write_files", ())]
    assert (interruption.PROGRAM in paths) is (market == "spot")
    assert (f'provider, every = "{cloud.kind}"' in given[0].replace('\\"', '"')) is (market == "spot")
    assert lease.resource.facts.get("interruption", "") == ("watched" if market == "spot" else "")
    gone()


@pytest.mark.parametrize("cloud", ["gce"], indirect=True)
def test_a_cloud_config_that_leaves_no_room_for_it_goes_without(cloud, given, ask, until):
    spot(cloud, user_data={"write_files": [{"path": "/etc/motd", "content": "x" * (LIMIT - 3500)}]})
    ready(ask("host"), until)
    assert interruption.PROGRAM not in given[0]
    gone()
