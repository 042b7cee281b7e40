"""What the suite does when it is ended early, and what a later run makes of that."""

from __future__ import annotations

import dataclasses
import os

import pytest

from blueprints.cloud.validation.choosing import cost, machines
from blueprints.cloud.validation.journal import Journal, Made, clean
from blueprints.cloud.validation.suite import Suite, chosen
from blueprints.cloud.validation.tags import INSTALLATION, run_tags
from blueprints.cloud.validation.values import Verdict
from drydock.core.errors import Conflict, InvalidRequest
from tests.clouds.ec2.conftest import no_aws_of_ours  # noqa: F401
from tests.clouds.validation import emulated
from tests.clouds.validation.broken import Plain
from tests.peers import require

pytestmark = pytest.mark.timeout(900)
SOME = chosen(["boot", "lost-create", "terminate"])


@pytest.fixture
def amazon():
    require("sshd")
    with emulated.cloud("ec2") as cloud:
        yield cloud


def test_answers_that_are_lost_make_no_second_machine(amazon, tmp_path):
    amazon.lose()
    report = Suite(amazon.environment(tmp_path), wanted=SOME).run()
    assert report.ok, [one for one in report.findings if one.verdict is Verdict.FAILED]
    assert len(amazon.double._instances()) == 2  # the main one, and that of lost-create
    assert amazon.double.objects() == {}


def test_who_is_interrupted_cleans_up(amazon, tmp_path):
    def interrupt(check, finding):
        if check.name == "boot" and finding is None:
            assert amazon.double.objects()
            raise KeyboardInterrupt

    environment = amazon.environment(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Suite(environment, wanted=SOME, told=interrupt).run()
    assert amazon.double.objects() == {}
    assert environment.journal.unfinished() == ()


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_killed_run_has_left_is_ended_by_a_later_one(lost, amazon, tmp_path):
    """By the journal, or without it by tag and proof."""
    whose = run_tags("validate-tests", proof=lambda key: f"proof-of-{key}")
    killed = amazon.environment(tmp_path, whose=whose)
    killed.make(killed.order("main"))
    assert amazon.double.objects()
    if lost:
        killed.journal.path.unlink()
    later = run_tags("validate-tests", proof=whose.proof)
    gone, left = clean(amazon.client(), later, Journal(killed.journal.path), emulated.QUICK)
    assert (gone, left) == ([whose.key("main")], [])
    assert amazon.double.objects() == {}
    assert not killed.journal.path.exists()


def test_what_is_not_proven_is_left_alone(amazon, tmp_path):
    theirs = amazon.environment(tmp_path, whose=run_tags("validate-tests", proof=lambda key: "theirs"))
    theirs.make(theirs.order("main"))
    ours = run_tags("validate-tests", proof=lambda key: "ours")
    assert clean(amazon.client(), ours, Journal(tmp_path / "ours"), emulated.QUICK) == ([], [])
    assert amazon.double.objects()
    theirs.clear()


@pytest.mark.skipif(os.geteuid() != 0, reason="machines run as ourselves, and no account can become root")
def test_a_client_that_can_little_is_not_blamed_for_it(amazon, tmp_path):
    environment = amazon.environment(tmp_path)
    environment.client = Plain(amazon.client())
    report = Suite(environment).run()
    assert report.ok, [one for one in report.findings if one.verdict is Verdict.FAILED]
    not_supported = {one.check for one in report.findings if one.verdict is Verdict.NOT_SUPPORTED}
    assert not_supported >= {"quotas", "firewall", "stop-start", "reboot", "repeated-create", "expiry"}


def test_the_journal_is_there_before_the_call_and_survives_a_torn_line(tmp_path):
    journal = Journal(tmp_path / "deep" / "journal")
    made = journal.will_make(Made(key="one", location="here", tags={INSTALLATION: "x"}))
    asked = journal.will_ask(made)
    with journal.path.open("a") as file:
        file.write('{"made": {"key": "tw')
    journal.known_as(asked, "i-1")
    (found,) = Journal(journal.path).unfinished()
    assert (found.key, found.instance_id, found.asked, found.tags) == ("one", "i-1", True, {INSTALLATION: "x"})
    assert journal.path.stat().st_mode & 0o777 == 0o600
    journal.gone("one")
    assert not journal.path.exists()


def test_two_runs_of_one_account_do_not_meet(tmp_path):
    journal = Journal(tmp_path / "journal")
    with journal.held(), pytest.raises(Conflict), Journal(journal.path).held():
        pass
    with journal.held():
        pass


def test_checks_bring_what_they_need(amazon, tmp_path):
    assert chosen(["guest"]) == {"create", "boot", "ssh", "guest", "nothing-left"}
    assert chosen(["prices"]) == {"prices"}
    assert "firewall" not in chosen(skip=["firewall"])
    for field in ("only", "skip"):
        with pytest.raises(InvalidRequest) as caught:
            chosen(**{field: ["pong"]})
        assert caught.value.field == field


def test_the_cheapest_is_chosen_and_costs_are_told_beforehand(amazon):
    client = amazon.client()
    free = {"type": "", "other_type": ""}
    wish = amazon.wish(client, **free)
    offered = {one.name: one for one in client.types("us-east-1")}
    hosts = [one for one in offered.values() if one.arch == "x86_64" and not one.gpus]
    prices = {one.name: [price.per_hour for price in one.prices if price.market == "on_demand"] for one in hosts}
    assert prices[wish.type] == min(found for found in prices.values() if found)
    assert machines(chosen(["prices"])) == 0
    assert cost(wish, chosen(["prices"])) == 0
    dear = dataclasses.replace(wish, price=0.5)
    assert (machines(chosen(["boot"])), cost(dear, chosen(["boot"]))) == (1, 0.5)
    assert cost(dear, chosen()) == 1.0  # one beside the main machine
    with pytest.raises(InvalidRequest) as caught:
        amazon.wish(client, **free, max_price=0.0001)
    assert caught.value.field == "type"
    with pytest.raises(InvalidRequest) as caught:
        amazon.wish(client, type="m5.large", other_type="", max_price=0.02)
    assert caught.value.field == "max_price"
    assert amazon.double.objects() == {}
