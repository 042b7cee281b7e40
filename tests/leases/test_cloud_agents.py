"""Machines whose image has no cloud-init: ready by the agent of their cloud, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blueprints.azure.kind import AzureHost
from blueprints.cloud import kind
from blueprints.gce.kind import GceHost
from drydock.core import clock
from leases.messaging.inline import settle
from leases.models import Event, Lease, Run
from tests.leases.emulated import gone, interface, look

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(400),
]
UNIT, MANAGER = "google-guest-agent.service", "google-guest-agent-manager.service"
SYSTEMCTL = """#!/bin/sh
[ "$1" = status ] && shift
cd {units} || exit 1
case $1 in
cat) [ -e "$2" ];;
is-active) cat "$2"; [ "$(cat "$2")" = active ];;
--no-pager) echo "$2: main process exited, code=exited, status=2";;
esac
"""


class Guest:
    """What is installed in an image: units in a state each, and the folder of Azure's agent."""

    def __init__(self, folder: Path) -> None:
        self.units, self.programs, self.waagent = folder / "units", folder / "programs", folder / "waagent"
        self.units.mkdir()
        self.programs.mkdir()
        (self.programs / "systemctl").write_text(SYSTEMCTL.format(units=self.units))
        (self.programs / "systemctl").chmod(0o755)

    def unit(self, name: str, state: str) -> None:
        (self.units / name).write_text(f"{state}\n")


@pytest.fixture
def image(machines, tmp_path, monkeypatch) -> Guest:
    """An image without cloud-init, and so far without an agent. Its machines share this computer, and so the question
    is put to a systemctl and a folder of their own."""
    found, machines.plain = Guest(tmp_path), True
    for host in (GceHost, AzureHost):
        asked = host.Config.agent_status.replace("/var/lib/waagent", str(found.waagent))
        monkeypatch.setattr(host.Config, "agent_status", f"PATH={found.programs}:$PATH\n{asked}")
    return found


def google(image, state):
    """As it is since 20250901.00: the former unit is there, and disabled."""
    image.unit(UNIT, "inactive")
    image.unit(MANAGER, state)


def former(image, state):
    image.unit(UNIT, state)


def microsoft(image, state):
    image.waagent.mkdir(exist_ok=True)
    if state == "active":
        (image.waagent / "provisioned").touch()


def asked(cloud, ask):
    """A lease whose machine is waited for until it is ready by its agent."""
    cloud.blueprint(ready_by="agent", host_key={"gce": "guest_attributes", "azure": "run_command"}[cloud.kind])
    look()
    lease = ask("host")
    settle()
    look("status")
    return lease


def told(words, seconds=30):
    """An event that says so, which is waited for."""
    end = clock.monotonic() + seconds
    while not (found := Event.objects.filter(message__contains=words).first()):
        assert clock.monotonic() < end, "\n".join(Event.objects.values_list("message", flat=True))
        Run.objects.update(due_at="2020-01-01T00:00Z")
        settle()
        clock.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("cloud", "agent"), [("gce", google), ("gce", former), ("azure", microsoft)], indirect=["cloud"]
)
def test_a_machine_without_cloud_init_is_ready_by_its_agent(cloud, agent, image, ask, until):
    agent(image, "activating")
    lease = asked(cloud, ask)
    end = clock.monotonic() + 60
    while not Run.objects.filter(sentence="The first boot has not finished yet.").exists():
        assert clock.monotonic() < end, list(Run.objects.values("phase", "step", "sentence", "memo"))
        Run.objects.update(due_at="2020-01-01T00:00Z")
        settle()
    agent(image, "active")
    Run.objects.update(due_at="2020-01-01T00:00Z")
    until(lease, state="active", seconds=120)
    assert interface(lease, "command").check(["echo", "here"]).text == "here\n"
    gone()
    assert cloud.double.objects() == {}


@pytest.mark.parametrize("cloud", ["gce"], indirect=True)
@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (lambda image: None, "The image does not have the cloud's agent. Set ready_by: ssh in the blueprint."),
        (lambda image: google(image, "failed"), f"The cloud's agent failed: {MANAGER}: main process exited"),
        (
            lambda image: google(image, "activating"),
            "reach did not finish within 3 s. The first boot has not finished yet.",
        ),
    ],
    ids=["no agent", "failed", "never ready"],
)
def test_one_that_never_is_ready_says_why(cloud, agent, words, image, ask, monkeypatch):
    monkeypatch.setattr(kind, "_BOOT", 3.0)
    agent(image)
    asked(cloud, ask)
    told(words)
    assert not Lease.objects.filter(state="active").exists()
    gone()
    assert cloud.double.objects() == {}
