"""No check of the behaviour suite that cannot fail: each notices a client, or a guest, that is wrong in its point."""

from __future__ import annotations

import dataclasses

import pytest

from blueprints.cloud.validation.suite import NAMES, Suite, chosen
from blueprints.cloud.validation.values import Report, Verdict
from tests.clouds.ec2.conftest import no_aws_of_ours  # noqa: F401
from tests.clouds.validation import emulated
from tests.clouds.validation.broken import BROKEN, OPENED, Plain, altered
from tests.peers import require

pytestmark = pytest.mark.timeout(900)

SHORT = {
    "ssh": 4.0, "create": 4.0, "change": 1.5, "stopped": 1.5, "firewall": 1.5, "first_boot": 2.0, "running": 1.0,
    "ended": 8.0,
}  # fmt: skip
"""Seconds, for the check that is to fail: it mostly does so when they are over. All others have their usual time."""


@pytest.fixture
def amazon():
    require("sshd")
    require("sudo")
    with emulated.cloud("ec2") as cloud:
        yield cloud


def only_that_fails(name: str, report: Report) -> str:
    """What the check said; every other one that was carried out has passed."""
    failed = [one for one in report.findings if one.verdict is Verdict.FAILED]
    assert [one.check for one in failed] == [name], [(one.check, one.message) for one in failed]
    assert not report.ok
    return failed[0].message


def run(cloud, folder, name, client, wanted=None, **limits) -> Report:
    """The check and what it needs."""
    environment = cloud.environment(folder)
    environment.client = client
    usual = dataclasses.replace(environment.limits, **limits)
    short = dataclasses.replace(usual, **{field: seconds for field, seconds in SHORT.items() if field not in limits})

    def told(check, finding):
        environment.limits = short if check.name == name and finding is None else usual

    return Suite(
        environment, wanted=wanted or chosen([name, "create"] if name == "nothing-left" else [name]), told=told
    ).run()


@pytest.mark.parametrize("name", BROKEN)
def test_a_client_that_is_wrong_there_fails_that_check_alone(name, amazon, tmp_path):
    report = run(amazon, tmp_path, name, amazon.client(BROKEN[name]))
    only_that_fails(name, report)
    left = amazon.double.objects() if name != "nothing-left" else {}
    assert not left, "the clean-up was stopped by it"


def test_every_check_has_such_a_client_or_a_test_of_its_own():
    of_their_own = {"refused-create", "boot", "guest", "firewall", "spot-refusal", "expiry"}
    assert set(BROKEN) | of_their_own == set(NAMES)
    assert not set(BROKEN) & of_their_own


def test_a_machine_of_a_refused_order_is_noticed_and_ended(amazon, tmp_path):
    """A client that takes another image, and another type, where there is none of that name."""
    sound = amazon.client()
    image = amazon.wish(sound).image.id

    def mend(order):
        return dataclasses.replace(order, image=image, type="t3.micro")

    lenient = altered("create", lambda self, create, order, prepared: create(mend(order), prepared))
    at_all = altered("prepare", lambda self, prepare, order: prepare(mend(order)))
    client = amazon.client(lambda base: lenient(at_all(base)))
    assert "was accepted" in only_that_fails("refused-create", run(amazon, tmp_path, "refused-create", client))
    assert amazon.double.objects() == {}


def test_a_machine_that_never_runs_fails_boot_and_what_needs_it_is_not_run(amazon, tmp_path):
    amazon.double.pending = 60.0
    report = run(amazon, tmp_path, "boot", amazon.client(), chosen(["ssh", "tags"]))
    only_that_fails("boot", report)
    verdicts = {one.check: one.verdict for one in report.findings}
    assert (verdicts["ssh"], verdicts["tags"]) == (Verdict.NOT_RUN, Verdict.NOT_RUN)
    assert amazon.double.objects() == {}


@pytest.mark.parametrize(
    ("program", "says", "words"),
    [
        ("cloud-init", "echo status: error", "cloud-init reports"),
        ("cloud-init", "echo status: running", "The first boot has finished"),
        ("systemctl", "echo maintenance", "systemd reports 'maintenance'"),
        ("sudo", "exit 1", "cannot become root"),
        ("uname", "echo sparc64", "architecture"),
    ],
)
def test_a_guest_that_is_not_as_it_should_be(program, says, words, amazon, tmp_path):
    amazon.place.said[program] = says
    assert words in only_that_fails("guest", run(amazon, tmp_path, "guest", amazon.client()))
    assert amazon.double.objects() == {}


@pytest.mark.parametrize("how", OPENED)
def test_a_firewall_that_does_nothing(how, amazon, tmp_path):
    only_that_fails("firewall", run(amazon, tmp_path, "firewall", amazon.client(OPENED[how])))


def test_a_firewall_that_lets_everything_in(amazon, tmp_path):
    amazon.place.opened = lambda key: set(range(65_536))
    assert "although it was not opened" in only_that_fails(
        "firewall", run(amazon, tmp_path, "firewall", amazon.client())
    )


@pytest.mark.parametrize("refuses", [True, False])
def test_a_cloud_without_spot_machines_refuses_their_orders(refuses, amazon, tmp_path):
    report = run(amazon, tmp_path, "spot-refusal", Plain(amazon.client(), refuses=refuses))
    if not refuses:
        assert "was accepted" in only_that_fails("spot-refusal", report)
    assert report.ok is refuses
    assert amazon.double.objects() == {}


def test_an_end_that_the_provider_forgets(tmp_path):
    require("sshd")
    with emulated.cloud("gce") as google:
        endless = altered(
            "create", lambda self, create, order, given: create(dataclasses.replace(order, ends_after=None), given)
        )
        report = run(google, tmp_path, "expiry", google.client(endless), expires_after=2.0)
        only_that_fails("expiry", report)
        assert google.double.objects() == {}
