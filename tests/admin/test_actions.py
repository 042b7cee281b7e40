"""Actions: asked first, done by operations under the name of who did it, and recorded."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from blueprints.models import Blueprint, RememberedError
from drydock.core.errors import Busy
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run
from tests.admin.conftest import act, page, rows_of
from tests.admin.test_registered import MODELS

ACTS = [
    (model, one) for model in MODELS for one in getattr(admin.site._registry[model], "acts", ())
]  # fmt: skip


def said(client, answer):
    return [str(message) for message in client.get(answer.url).context["messages"]]


def do(client, name, *rows, **given):
    """Act, and settle what follows."""
    answer = client.post(act(name, *rows), given)
    assert answer.status_code == 302, answer.context["form"].errors
    settle()
    for row in rows:
        if type(row).objects.filter(pk=row.pk).exists():
            row.refresh_from_db()
    return said(client, answer)


def by(kind, who="chief"):
    return Event.objects.filter(kind=kind, actor=who).count()


class TestAsking:
    def test_the_page_names_what_will_happen_and_does_nothing_yet(self, site, lease):
        answer = site.post(rows_of(Lease), {"action": "release", "_selected_action": [lease.pk]})
        assert answer.status_code == 302
        shown = site.get(answer.url).content.decode()
        for words in (f"one (#{lease.pk})", "The lease ends now", "active", ">Cancel</a>"):
            assert words in shown
        lease.refresh_from_db()
        assert (lease.state, lease.release_wanted) == ("active", "")

    def test_a_row_offers_what_applies_to_it(self, site, lease):
        offered = {one.name for one, _ in site.get(page(lease)).context["acts"]}
        assert offered == {"release", "extend", "hold", "note", "transfer"}
        offered = {one.name for one, _ in site.get(page(lease.resource)).context["acts"]}
        assert offered == {
            "check", "power", "drain", "quarantine", "retire", "force_destroy", "reboot", "resize", "tags", "console",
            "credential", "no-reboots",
        }  # fmt: skip

    def test_nothing_chosen_and_nonsense(self, site, lease):
        for ids in ("", "abc", "1;2", "99999999999999999999999", "²", "-1"):
            answer = site.get(reverse("admin:leases_lease_act", args=("release",)), {"ids": ids})
            assert (answer.status_code, said(site, answer)) == (302, ["No row was selected."])
        assert site.get(act("explode", lease)).status_code == 403

    @pytest.mark.parametrize(("model", "one"), ACTS, ids=lambda part: getattr(part, "name", None) or part.__name__)
    def test_every_action_wants_a_permission_and_a_token(self, model, one, staff, lease, chief):
        row = model.objects.first() or RememberedError.objects.create(blueprint=Blueprint.objects.get(), message="x")
        if not isinstance(row, model):
            row = model(pk=1)
        view = staff(f"view_{model._meta.model_name}")
        for answer in (view.get(act(one.name, row)), view.post(act(one.name, row))):
            assert answer.status_code == 403
        strict = Client(enforce_csrf_checks=True)
        strict.force_login(chief)
        before = Event.objects.count()
        assert strict.post(act(one.name, row)).status_code == 403
        assert Event.objects.count() == before

    def test_who_may_only_look_sees_no_action(self, staff, lease):
        view = staff("view_lease", "view_resource", "view_blueprint")
        for row in (lease, lease.resource, lease.resource.blueprint):
            assert view.get(page(row)).context["acts"] == []
            assert "/act/" not in view.get(page(row)).content.decode()
            assert view.get(rows_of(type(row))).context["action_form"] is None

    def test_staff_with_the_permission_act(self, staff, lease):
        do(staff("view_lease", "change_lease"), "release", lease)
        assert lease.state == "destroyed"
        assert Event.objects.get(lease=lease, to_state="released").actor == "stan"


class TestLeases:
    def test_release(self, site, lease, chief):
        assert do(site, "release", lease, message="enough") == ["one: The lease is being released."]
        event = Event.objects.get(lease=lease, to_state="released")
        assert (lease.state, event.actor, event.reason) == ("destroyed", "chief", "released_by_operator")
        logged = LogEntry.objects.get(object_id=str(lease.pk))
        assert (logged.user, logged.get_change_message()) == (chief, "Release.")

    def test_several_at_once_each_by_itself(self, site, blueprint, ask):
        blueprint(config={"capacity": {"slots": 3}})
        rows = [ask(ttl="1h"), ask(), ask(ttl="1h")]
        settle()
        told = do(site, "extend", *rows, ttl="3h")
        assert [words.split(":")[0] for words in told] == [str(row) for row in rows]
        assert "has no end, so it cannot be extended" in told[1]
        assert LogEntry.objects.count() == 2

    def test_extend(self, site, lease):
        before = lease.until
        do(site, "extend", lease, ttl="90m")
        assert lease.until - before > dt.timedelta(minutes=29)
        assert by("lease.extended") == 1
        answer = site.post(act("extend", lease), {"ttl": "soon"})
        assert "is not a valid duration" in answer.content.decode()
        assert "already lasts" in do(site, "extend", lease, ttl="1m")[0]

    def test_hold_and_end_of_it(self, site, lease):
        do(site, "hold", lease, ttl="2h", message="a look")
        assert lease.held
        assert by("lease.held") == 1
        do(site, "unhold", lease)
        assert not lease.held
        do(site, "hold", lease, ttl="")
        assert (lease.held, lease.hold_until) == (True, None)

    def test_retry(self, site, blueprint, ask):
        blueprint(config={"catalogue": "stale"})
        waiting = ask()
        do(site, "retry", waiting)
        assert by("lease.retry") == 1

    def test_what_is_busy_says_so(self, site, lease, monkeypatch):
        def busy(*args, **kwargs):
            raise Busy

        monkeypatch.setattr("leases.operations.leases.release", busy)
        assert "busy" in do(site, "release", lease)[0]
        assert not LogEntry.objects.exists()


class TestResources:
    def test_drain_and_undrain(self, site, lease):
        do(site, "drain", lease.resource, message="new disks")
        assert lease.resource.drained
        do(site, "undrain", lease.resource)
        assert not lease.resource.drained
        assert (by("resource.drained"), by("resource.undrained")) == (1, 1)

    def test_quarantine_wants_a_note(self, site, lease):
        assert site.post(act("quarantine", lease.resource), {"message": " "}).status_code == 200
        do(site, "quarantine", lease.resource, message="odd noises")
        assert (lease.resource.quarantined, lease.resource.note) == (True, "odd noises")
        do(site, "unquarantine", lease.resource)
        assert not lease.resource.quarantined

    def test_retire(self, site, lease):
        resource = lease.resource
        assert "is leased or busy" in do(site, "retire", resource)[0]
        do(site, "release", lease)
        do(site, "retire", resource)
        assert resource.state == "destroyed"

    def test_force_wants_the_name_and_a_reason(self, site, lease, blueprint):
        resource = lease.resource
        for given in (
            {"typed": resource.name, "message": " "}, {"typed": "other", "message": "gone"}, {"message": "gone"}
        ):  # fmt: skip
            assert site.post(act("force_destroy", resource), given).status_code == 200
        resource.refresh_from_db()
        assert resource.gone_at is None
        do(site, "force_destroy", resource, typed=str(resource), message="the account was closed")
        assert resource.gone_at is not None
        assert by("resource.forced") == 1

    def test_force_is_for_one_at_a_time(self, site, lease):
        other = Resource.objects.create(blueprint=lease.resource.blueprint, type="fake", name="other")
        answer = site.get(act("force_destroy", lease.resource, other))
        assert said(site, answer) == ["Force destroy: select a single row."]

    def test_check_and_power(self, site, lease):
        do(site, "check", lease.resource)
        assert lease.resource.observed == "ok"
        do(site, "power", lease.resource, wanted="cycle")
        assert (by("resource.check"), by("resource.power")) == (1, 1)
        assert site.post(act("power", lease.resource), {"wanted": "up"}).status_code == 200


class TestBlueprints:
    def test_check_shows_problems(self, site, blueprint):
        pool = blueprint(config={"faults": [{"does": "fail", "at": "nowhere"}]})
        assert any("faults.0.at" in words for words in do(site, "check", pool))
        pool = blueprint("other")
        assert do(site, "check", pool) == ["other: No problems found."]

    def test_disable_enable_drain_undrain(self, site, blueprint):
        pool = blueprint()
        for name, kind, expected in (
            ("disable", "disabled", (False, False)), ("enable", "enabled", (True, False)),
            ("drain", "drained", (True, True)), ("undrain", "undrained", (True, False)),
        ):  # fmt: skip
            do(site, name, pool)
            assert (pool.enabled, pool.drained) == expected
            assert by(f"blueprint.{kind}") == 1

    def test_remove(self, site, lease, blueprint):
        other = blueprint("other")
        do(site, "remove", other, typed="other")
        assert not Blueprint.objects.filter(pk=other.pk).exists()
        assert "is needed by resource" in do(site, "remove", lease.resource.blueprint, typed="pool")[0]

    def test_remembered_errors_are_cleared(self, site, blueprint):
        error = RememberedError.objects.create(blueprint=blueprint(), scope="blueprint", message="broke")
        do(site, "clear", error)
        assert not RememberedError.objects.exists()
        assert by("blueprint.error_cleared") == 1


def test_a_held_step_is_resolved(site, blueprint, ask):
    blueprint(config={"faults": [{"does": "hold", "at": "build.boot"}]})
    ask()
    settle()
    run = Run.objects.get(waits_for="operator")
    assert "a person" in site.get(page(run)).content.decode()
    assert site.post(act("resolve", run), {"message": "no answer"}).status_code == 200
    assert do(site, "resolve", run, yes="False", message="not ours")[0].endswith("The step continues.")
    assert Event.objects.get(kind="step.resolved").details == {"yes": False, "text": "not ours"}
    assert by("step.resolved") == 1


def test_what_is_gone_meanwhile(site, lease):
    retirement.lose(lease.resource_id, reason="lost", message="died")
    settle()
    assert "is broken" in do(site, "drain", lease.resource)[0]
