"""Single steps of a DPU whose BMC fetches the image by HTTPS: whom it trusts, since when, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic
import pytest

from blueprints.answers import Failed, Ready, Scope, Wait
from blueprints.dpu.bluefield import flashing as steps
from blueprints.dpu.bluefield import https, preparing
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.kind import Bluefield as Kind
from interfaces.httpd import fingerprint, new_certificate
from tests.bluefield.dpus import Webroot, config, publish, resources, web
from tests.bluefield.lab import Lab
from tests.bmc.bluefield import bluefield
from tests.bmc.flashing import flashing
from tests.bmc.truststore import ROOM, STORE
from tests.peers import require

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    require("sshd")
    with (
        bluefield(resources()) as bmc, flashing(bmc) as card, web(tmp_path / "images") as images,
        web(tmp_path / "site", tls=True) as site,
    ):  # fmt: skip
        publish(images)
        made = Lab(bmc, card, images, Webroot(site))
        made.more = {"webroot": {"tls": True}}
        knows(made, "SCP", "HTTP", "HTTPS")
        yield made
        assert not bmc.sessions


def knows(lab: Lab, *protocols: str) -> None:
    """Let the BMC of the card know these protocols only."""
    card = lab.parents["card"]
    lab.parents["card"] = replace(card, resource=replace(card.resource, facts={"card": {"protocols": protocols}}))


def prepared(lab: Lab) -> None:
    """Bring it to the point at which the BMC is to trust the web root."""
    lab.publish()
    lab.done(preparing.choose_route, steps.check_protocol, steps.note_rshim, steps.take_rshim)


def stranger(lab: Lab) -> str:
    """Let the BMC trust a certificate of somebody else. Returns its id."""
    return lab.card.trust.add(new_certificate(["images.example"])[0])


def test_the_bmc_trusts_the_web_root_for_the_installation_and_nothing_is_left(lab):
    other = stranger(lab)
    prepared(lab)
    certificate = lab.webroot.server.certificate
    assert lab.facts[https.TRUSTED] == fingerprint(certificate), "it is stored before the BMC is told"
    assert certificate not in lab.card.trust.kept.values()
    lab.done(https.trust_webroot, steps.flash)
    assert certificate in lab.card.trust.kept.values()
    assert [one.body["TransferProtocol"] for one in lab.card.tasks.values()] == ["HTTPS"]
    assert lab.card.imaged == ["dpu-1"]
    lab.done(steps.wait_until_running)
    assert list(lab.card.trust.kept) == [other]
    calls = len(lab.bmc.calls)
    lab.done(steps.verify_versions)
    assert not [one for one in lab.bmc.calls[calls:] if STORE in one], "what is gone is not looked for again"


def test_a_bmc_that_was_not_told_refuses_the_web_root(lab):
    stranger(lab)
    prepared(lab)
    answer = lab.carry(steps.flash)
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.OFFER
    assert not lab.card.imaged


def test_a_certificate_of_another_host_is_not_accepted(lab):
    prepared(lab)
    lab.card.trust.add(new_certificate(["127.0.0.2"])[0])
    assert isinstance(lab.carry(steps.flash), Failed)
    assert not lab.card.imaged


def test_a_repeated_step_tells_the_bmc_once(lab):
    prepared(lab)
    lab.done(https.trust_webroot, https.trust_webroot)
    assert len(lab.card.trust.kept) == lab.card.trust.changes == 1


def test_a_lost_answer_is_waited_for_and_nothing_is_added_or_removed_twice(lab):
    prepared(lab)
    lab.bmc.lose = f"POST {STORE}"
    answer = lab.call(https.trust_webroot)
    assert isinstance(answer, Wait)
    lab.bmc.lose = ""
    lab.done(https.trust_webroot)
    assert len(lab.card.trust.kept) == lab.card.trust.changes == 1
    lab.done(steps.flash)
    lab.bmc.lose = f"DELETE {STORE}/.*"
    assert isinstance(lab.call(steps.wait_until_running), Wait)
    lab.bmc.lose = ""
    lab.done(steps.wait_until_running)
    assert not lab.card.trust.kept


def test_a_bmc_that_stays_away_fails_the_step(lab, monkeypatch):
    prepared(lab)
    monkeypatch.setattr(https, "_ATTEMPTS", 2)
    lab.bmc.lose = f"(GET|POST) {STORE}"
    answer = lab.carry(https.trust_webroot)
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code) == (Scope.STEP, "bmc_unreachable")


def test_a_full_trust_store_is_named_and_nothing_in_it_changes(lab):
    kept = [stranger(lab) for _ in range(ROOM)]
    prepared(lab)
    answer = lab.call(https.trust_webroot)
    assert isinstance(answer, Failed)
    assert f"has {ROOM} certificates" in answer.message
    assert list(lab.card.trust.kept) == kept


def test_a_refusal_for_another_reason_does_not_speak_of_room(lab):
    prepared(lab)
    lab.bmc.answers = [(f"POST {STORE}", "403 Forbidden")]
    answer = lab.call(https.trust_webroot)
    assert isinstance(answer, Failed)
    assert "Remove one" not in answer.message


def test_a_bmc_without_a_trust_store_fails_for_this_offer_only_and_its_end_is_no_other(lab):
    prepared(lab)
    lab.bmc.answers = [(f".* {STORE}.*", "404 Not Found")]
    answer = lab.call(https.trust_webroot)
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code) == (Scope.OFFER, "no_truststore")
    assert STORE in answer.message
    lab.parents.pop("image")
    lab.done(steps.wait_for_flash, steps.park, steps.leave_rshim)


def test_a_certificate_that_is_removed_while_the_store_is_read_is_not_there(lab):
    prepared(lab)
    gone = stranger(lab)
    lab.bmc.answers = [(f"GET {STORE}/{gone}", "404 Not Found")]
    lab.done(https.trust_webroot, steps.flash, steps.wait_until_running)
    assert list(lab.card.trust.kept) == [gone]


def test_a_web_root_that_has_changed_is_not_trusted(lab):
    prepared(lab)
    lab.webroot.server.certificate = new_certificate(["127.0.0.1"])[0]
    lab.parents["image"] = lab.webroot.lease()
    answer = lab.call(https.trust_webroot)
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code) == (Scope.OFFER, "webroot_changed")
    assert not lab.card.trust.kept


def test_a_web_root_that_the_bmc_trusts_already_needs_no_certificate_of_its_lease(lab):
    lab.card.trust.add(lab.webroot.server.certificate)
    lease = lab.parents["image"]
    lab.parents["image"] = replace(lease, facts={name: lease.facts[name] for name in ("uri", "site")})
    prepared(lab)
    lab.done(https.trust_webroot, steps.flash, steps.wait_until_running)
    assert lab.card.imaged == ["dpu-1"]
    assert len(lab.card.trust.kept) == 1
    assert not lab.card.trust.changes


def test_a_build_of_an_older_version_goes_on_without_the_fact(lab):
    prepared(lab)
    lab.facts.pop(https.TRUSTED)
    calls = len(lab.bmc.calls)
    lab.done(https.trust_webroot)
    assert len(lab.bmc.calls) == calls


def test_what_the_bmc_keeps_in_its_trust_store_need_not_be_understood(lab):
    lab.card.trust.kept["7"] = "garbage"
    prepared(lab)
    lab.done(https.trust_webroot, steps.flash, steps.wait_until_running)
    assert lab.card.trust.kept == {"7": "garbage"}


@pytest.mark.parametrize("told", [True, False])
def test_the_end_of_a_failed_build_takes_the_trust_back(lab, told):
    other = stranger(lab)
    prepared(lab)
    if told:
        lab.done(https.trust_webroot)
    lab.parents.pop("image")
    lab.done(steps.wait_for_flash, steps.park, steps.leave_rshim)
    assert list(lab.card.trust.kept) == [other]
    assert not lab.card.rshim


@pytest.mark.parametrize("answer", ["405 Method Not Allowed", "500 Internal Server Error", "501 Not Implemented"])
def test_the_end_of_a_failed_build_is_repeated_until_the_trust_is_taken_back(lab, answer):
    prepared(lab)
    lab.done(https.trust_webroot)
    lab.bmc.answers = [(f"DELETE {STORE}/.*", answer)]
    assert isinstance(lab.carry(steps.leave_rshim), Failed)
    lab.bmc.answers = []
    lab.done(steps.leave_rshim)
    assert not lab.card.trust.kept


@pytest.mark.parametrize(
    ("protocols", "tls", "rshim", "route"),
    [
        (["HTTP"], None, "", "bmc"), ([], True, "", "bmc"), (["HTTPS"], True, "", "bmc"), (["HTTP"], False, "", "bmc"),
        (["HTTPS"], None, "/dev/rshim0", "rshim"), (["HTTP"], True, "/dev/rshim0", "rshim"),
    ],
)  # fmt: skip
def test_the_route_follows_what_the_bmc_and_the_web_root_know(lab, protocols, tls, rshim, route):
    lab.more = {"webroot": {} if tls is None else {"tls": tls}, "rshim": rshim}
    knows(lab, *protocols)
    lab.publish()
    assert isinstance(answer := lab.call(preparing.choose_route), Ready)
    assert answer.facts[preparing.ROUTE] == route


@pytest.mark.parametrize(
    ("protocols", "tls", "advice"),
    [(["HTTP"], True, "tls: false"), (["HTTPS"], None, "tls: true"), (["HTTPS", "SCP"], False, "or let `webroot`")],
)
def test_without_any_route_the_requirement_of_the_web_root_that_would_give_one_is_named(lab, protocols, tls, advice):
    lab.more = {"webroot": {} if tls is None else {"tls": tls}, "rshim": ""}
    knows(lab, *protocols)
    lab.publish()
    assert isinstance(answer := lab.call(preparing.choose_route), Failed)
    assert advice in answer.message
    assert "set `rshim`" in answer.message


@pytest.mark.parametrize(("protocol", "tls", "advice"), [("HTTP", True, "tls: false"), ("HTTPS", False, "tls: true")])
def test_a_web_root_that_the_bmc_cannot_use_is_named_with_what_to_require(lab, tmp_path, protocol, tls, advice):
    lab.more = {}
    knows(lab, protocol)
    with web(tmp_path / "other", tls=tls) as site:
        lab.parents["image"] = Webroot(site).lease()
        lab.publish()
        answer = lab.call(steps.check_protocol)
    assert isinstance(answer, Failed)
    assert advice in answer.message


@pytest.mark.parametrize(("wanted", "tls"), [(True, False), (False, True)])
def test_a_web_root_that_is_not_what_was_required_is_not_used(lab, tmp_path, wanted, tls):
    lab.more = {"webroot": {"tls": wanted}}
    with web(tmp_path / "other", tls=tls) as site:
        lab.parents["image"] = Webroot(site).lease()
        lab.publish()
        answer = lab.call(steps.check_protocol)
    assert isinstance(answer, Failed)
    assert f"serves {'HTTPS' if tls else 'HTTP'}, and `webroot` requires tls: {str(wanted).lower()}" in answer.message


@pytest.mark.parametrize("tls", ["false", 1])
def test_a_requirement_of_tls_that_is_neither_true_nor_false_is_refused(lab, tls):
    with pytest.raises(pydantic.ValidationError, match="tls in webroot must be true or false"):
        Config.model_validate(config(lab.card, lab.images, webroot={"tls": tls}))


def test_a_web_root_with_a_certificate_that_is_none_needs_an_operator(lab):
    lab.webroot.server.certificate = "garbage"
    lab.parents["image"] = lab.webroot.lease()
    lab.publish()
    answer: Any = lab.call(steps.check_protocol)
    assert isinstance(answer, Failed)
    assert answer.scope is Scope.OPERATOR


def test_the_trust_belongs_to_a_step_that_builds_of_older_versions_have_too(lab):
    prepared(lab)
    step = Kind().build()[14]
    assert step.name == "own"
    lab.done(step.act)
    assert len(lab.card.trust.kept) == 1
