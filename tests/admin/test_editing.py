"""What may be edited: through operations, with errors on the field, and secrets that only go in."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from blueprints.contract import Checks
from blueprints.models import Blueprint, Credential
from blueprints.specs import Problem
from leases.messaging.inline import settle
from leases.models import Authorization, Event, Quota
from tests.admin.conftest import act, page, rows_of

SECRET = "hush-hush-do-not-tell"
ADD = {
    "name": "pool", "kind": "fake", "config": "{}", "enabled": "on", "audience": "everyone", "order": "100",
    "min_ready": "0", "max_builds": "10", "max_outdated": "1",
}  # fmt: skip


def add(client, model, **given):
    return client.post(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add"), given)


def errors(answer):
    assert answer.status_code == 200
    return answer.context["adminform"].form.errors


def said(client, answer):
    assert answer.status_code == 302, errors(answer)
    return [str(message) for message in client.get(answer.url).context["messages"]]


def form_of(client, row, **changed):
    """What the browser would post when only `changed` was typed."""
    form = client.get(page(row)).context["adminform"].form
    given = {name: form[name].value() for name in form.fields}
    if isinstance(given.get("config"), dict):
        given["config"] = json.dumps(given["config"])
    before = {f"initial-{name}": value for name, value in given.items()}
    return {name: "" if value is None else value for name, value in (given | before | changed).items()}


class TestBlueprints:
    def test_one_is_added_and_serves(self, site, ask):
        said(site, add(site, Blueprint, **ADD, idle_timeout="30m", max_resources="3"))
        made = Blueprint.objects.get()
        assert (made.enabled, made.resource_type, made.max_resources) == (True, "fake", 3)
        assert made.idle_timeout == dt.timedelta(minutes=30)
        assert Event.objects.filter(kind="blueprint.added", actor="chief", blueprint=made).exists()
        waiting = ask()
        settle()
        waiting.refresh_from_db()
        assert waiting.state == "active"

    def test_all_that_its_kind_finds_wrong_stands_on_the_field(self, site):
        config = json.dumps({"boot_polls": -1, "colour": "red"})
        found = errors(add(site, Blueprint, **(ADD | {"config": config})))["config"]
        assert any(words.startswith("boot_polls: ") for words in found)
        assert any(words.startswith("colour: ") for words in found)
        for config in ("[1]", "7", "nonsense", '"x"'):
            assert "config" in errors(add(site, Blueprint, **(ADD | {"config": config}))), config
        assert not Blueprint.objects.exists()

    def test_other_fields_are_checked(self, site, blueprint):
        blueprint()
        for field, value in (
            ("name", "Not A Name"), ("name", "pool"), ("kind", "nothing"), ("idle_timeout", "soon"),
            ("max_builds", "0"), ("max_resources", "-1"), ("order", "1e3"), ("order", "99999999999"),
        ):  # fmt: skip
            assert field in errors(add(site, Blueprint, **(ADD | {"name": "new"} | {field: value}))), field
        assert Blueprint.objects.count() == 1

    def test_one_whose_check_is_fatal_stays_disabled(self, site, monkeypatch):
        monkeypatch.setattr(
            "blueprints.fake.kind.Fake.check_blueprint",
            lambda self, view: [Problem(field="provider", message="<b>no such</b> account", fatal=True)],
        )
        told = said(site, add(site, Blueprint, **ADD))
        assert "provider: <b>no such</b> account" in told
        assert any("Not enabled" in words for words in told)
        assert not Blueprint.objects.get().enabled

    def test_another_config_is_another_generation(self, site, blueprint):
        pool = blueprint(config={"boot_polls": 1}, max_resources=2)
        said(site, site.post(page(pool), form_of(site, pool)))
        pool.refresh_from_db()
        assert (pool.generation, Event.objects.filter(kind="blueprint.changed").count()) == (1, 0)
        said(site, site.post(page(pool), form_of(site, pool, note="mine", max_resources="")))
        pool.refresh_from_db()
        assert (pool.generation, pool.note, pool.max_resources, pool.enabled) == (1, "mine", None, True)
        said(site, site.post(page(pool), form_of(site, pool, config='{"boot_polls": 2}')))
        pool.refresh_from_db()
        assert (pool.generation, pool.config) == (2, {"boot_polls": 2})
        assert Event.objects.filter(kind="blueprint.changed", actor="chief").count() == 2

    def test_what_somebody_else_changed_meanwhile_stays(self, site, blueprint):
        pool = blueprint(idle_timeout=dt.timedelta(hours=1))
        form = form_of(site, pool, order="7")
        others = {"note": "by another", "config": {"boot_polls": 3}, "idle_timeout": None, "max_resources": 5}
        Blueprint.objects.update(**others)
        said(site, site.post(page(pool), form))
        pool.refresh_from_db()
        assert (pool.order, pool.generation) == (7, 1)
        assert {name: getattr(pool, name) for name in others} == others

    def test_a_change_wakes_who_waits(self, site, blueprint, ask):
        pool = blueprint(config={"catalogue": "stale"})
        waiting = ask()
        settle()
        said(site, site.post(page(pool), form_of(site, pool, config="{}")))
        settle()
        waiting.refresh_from_db()
        assert waiting.state == "active"

    def test_spans_keep_their_value(self, site, blueprint):
        pool = blueprint(idle_timeout=dt.timedelta(days=1, minutes=5), check_interval=dt.timedelta(seconds=0.5))
        form = form_of(site, pool)
        shown = site.get(page(pool)).content.decode()
        assert 'value="1d5m"' in shown
        assert 'value="0.5s"' in shown
        said(site, site.post(page(pool), form | {"idle_timeout": "1d5m", "check_interval": "0.5s", "note": "x"}))
        assert Event.objects.get(kind="blueprint.changed").message == "Changed: note."

    def test_resources_keep_their_type(self, site, lease):
        pool = lease.resource.blueprint
        answer = site.post(page(pool), form_of(site, pool, kind="fake_activated"))
        assert "The blueprint has resources of resource type 'fake'" in errors(answer)["kind"][0]

    def test_a_kind_that_is_no_longer_installed_is_shown(self, site, blueprint):
        pool = blueprint(kind="vanished")
        assert "vanished (not installed)" in site.get(page(pool)).content.decode()
        assert "Kind &#x27;vanished" in site.get(page(pool)).content.decode()
        assert "kind" in errors(site.post(page(pool), form_of(site, pool)))

    def test_its_name_and_switches_are_not_typed_over(self, site, blueprint):
        pool = blueprint()
        given = form_of(site, pool) | {"name": "other", "drained": "on", "generation": "9", "resource_type": "x"}
        said(site, site.post(page(pool), given))
        pool.refresh_from_db()
        assert (pool.name, pool.drained, pool.generation, pool.resource_type) == ("pool", False, 1, "fake")
        assert (
            site.post(reverse("admin:blueprints_blueprint_delete", args=(pool.pk,)), {"post": "yes"}).status_code == 403
        )

    def test_view_only_staff_changes_nothing(self, staff, blueprint):
        pool = blueprint()
        view = staff("view_blueprint")
        assert view.post(page(pool), ADD).status_code == 403
        assert 'name="_save"' not in view.get(page(pool)).content.decode()
        assert add(view, Blueprint, **(ADD | {"name": "new"})).status_code == 403

    def test_what_its_kind_understands_is_shown(self, site, blueprint):
        shown = site.get(page(blueprint())).content.decode()
        for words in ("boot_polls", "Config fields", "builds", "powers", Checks.__name__.lower()):
            assert words in shown


class TestCredentials:
    def test_secrets_go_in_and_never_come_out(self, site):
        said(site, add(site, Credential, name="cloud", secrets=json.dumps({"key": SECRET}), note="ours"))
        made = Credential.objects.get()
        assert made.secrets == {"key": SECRET}
        for answer in (site.get(page(made)), site.get(rows_of(Credential))):
            assert SECRET not in answer.content.decode()
        assert SECRET not in str(list(Event.objects.values()))

    def test_empty_keeps_and_anything_else_replaces(self, site):
        made = Credential.objects.create(name="cloud", secrets={"key": SECRET})
        said(site, site.post(page(made), {"note": "new", "secrets": ""}))
        made.refresh_from_db()
        assert (made.note, made.secrets) == ("new", {"key": SECRET})
        said(site, site.post(page(made), {"note": "new", "secrets": '{"key": "other"}'}))
        made.refresh_from_db()
        assert (made.secrets, made.name) == ({"key": "other"}, "cloud")
        kinds = Event.objects.filter(kind="credential.changed", actor="chief").values_list("message", flat=True)
        assert list(kinds) == ["Credential cloud: note.", "Credential cloud: secrets."]

    @pytest.mark.parametrize("typed", [SECRET, f'"{SECRET}"', f'{{"a": {SECRET}}}', f'["{SECRET}"]', "{}", "null"])
    def test_what_was_typed_wrongly_is_not_shown_again(self, site, typed):
        answer = add(site, Credential, name="cloud", secrets=typed)
        assert "secrets" in errors(answer)
        assert SECRET not in answer.content.decode()

    def test_nor_when_something_else_was_wrong(self, site):
        answer = add(site, Credential, name="Not A Name", secrets=json.dumps({"key": SECRET}))
        assert "name" in errors(answer)
        assert SECRET not in answer.content.decode()

    def test_view_only_staff_sees_no_field(self, staff):
        made = Credential.objects.create(name="cloud", secrets={"key": SECRET})
        shown = staff("view_credential").get(page(made)).content.decode()
        assert SECRET not in shown
        assert "secrets" not in shown.lower().replace(rows_of(Credential), "")

    def test_one_that_a_blueprint_names_is_not_deleted(self, site, blueprint):
        made = Credential.objects.create(name="cloud", secrets={"key": SECRET})
        user = blueprint(config={"api_credential": "cloud"})
        assert user.name in site.get(page(made)).content.decode()
        at = reverse("admin:blueprints_credential_delete", args=(made.pk,))
        assert "whose config names cloud" in site.post(at, {"post": "yes"}).content.decode()
        assert Credential.objects.exists()
        Blueprint.objects.update(config={})
        site.post(at, {"post": "yes"})
        assert not Credential.objects.exists()
        assert Event.objects.filter(kind="credential.deleted", actor="chief").exists()


class TestAuthorizations:
    def test_approving_wakes_who_waits_and_declining_ends_it(self, site, blueprint, ask, owner):
        pool = blueprint(audience="authorized")
        asked = Authorization.objects.create(blueprint=pool, user=owner, state="requested")
        waiting = ask()
        settle()
        site.post(act("approve", asked), {"message": "yes"})
        settle()
        waiting.refresh_from_db()
        asked.refresh_from_db()
        assert (waiting.state, asked.state, asked.decided_by.username) == ("active", "authorized", "chief")
        site.post(act("decline", asked), {})
        asked.refresh_from_db()
        assert asked.state == "declined"
        assert Event.objects.filter(kind="authorization.declined", actor="chief").exists()

    def test_one_is_added_for_a_user_or_a_group(self, site, blueprint, owner):
        pool, crew = blueprint(audience="authorized"), Group.objects.create(name="crew")
        said(site, add(site, Authorization, blueprint=pool.pk, user=owner.pk, note="x"))
        said(site, add(site, Authorization, blueprint=pool.pk, group=crew.pk))
        assert set(Authorization.objects.values_list("state", flat=True)) == {"authorized"}
        assert "user" in errors(add(site, Authorization, blueprint=pool.pk, user=owner.pk, group=crew.pk))
        assert "user" in errors(add(site, Authorization, blueprint=pool.pk))
        assert errors(add(site, Authorization, blueprint=pool.pk, group=crew.pk))
        assert Authorization.objects.count() == 2

    def test_foreign_keys_are_completed(self, site, blueprint, owner):
        pool = blueprint()
        for model, field, words, found in (
            ("authorization", "blueprint", "poo", pool), ("authorization", "user", "ad", owner),
            ("quota", "user", "ad", owner),
        ):  # fmt: skip
            given = {"app_label": "leases", "model_name": model, "field_name": field, "term": words}
            answer = site.get(reverse("admin:autocomplete"), given).json()
            assert [one["id"] for one in answer["results"]] == [str(found.pk)]


class TestQuotas:
    def test_raising_one_serves_who_waits_for_it(self, site, blueprint, ask, owner):
        blueprint(config={"capacity": {"slots": 5}})
        said(site, add(site, Quota, user=owner.pk, max_leases="1"))
        ask()
        second = ask()
        settle()
        second.refresh_from_db()
        assert second.reason == "waiting_quota"
        quota = Quota.objects.get()
        said(site, site.post(page(quota), {"max_leases": "2"}))
        settle()
        second.refresh_from_db()
        quota.refresh_from_db()
        assert (second.state, quota.max_leases, quota.user) == ("active", 2, owner)
        assert Event.objects.filter(kind="quota.set", actor="chief").count() == 2

    def test_how_long_leases_last_is_typed_as_a_span(self, site, owner):
        said(site, add(site, Quota, user=owner.pk, max_ttl="30d", default_ttl="1d12h"))
        quota = Quota.objects.get()
        assert (quota.max_ttl, quota.default_ttl) == (dt.timedelta(days=30), dt.timedelta(hours=36))
        assert 'value="1d12h"' in site.get(page(quota)).content.decode()
        assert "max_ttl" in errors(site.post(page(quota), {"max_ttl": "soon"}))
        said(site, site.post(page(quota), {"default_ttl": "40d", "max_ttl": "30d"}))
        assert Quota.objects.get().default_ttl == dt.timedelta(hours=36), "longer than the longest"
        said(site, site.post(page(quota), {"max_ttl": "", "default_ttl": ""}))
        assert Quota.objects.get().max_ttl is None

    def test_limits_are_checked(self, site, owner):
        for value in ("-1", "4294967296", "many"):
            assert "max_ram_mib" in errors(add(site, Quota, user=owner.pk, max_ram_mib=value))
        assert "user" in errors(add(site, Quota, max_leases="1"))
        assert not Quota.objects.exists()

    def test_limits_of_further_classes_are_edited_as_json(self, site, owner):
        said(site, add(site, Quota, user=owner.pk, max_extra='{"gpu": 2, "fpga": 1}'))
        quota = Quota.objects.get()
        said(site, site.post(page(quota), {"max_extra": '{"gpu": 4}'}))
        quota.refresh_from_db()
        assert quota.max_extra == {"gpu": 4}
        assert "max_extra" in errors(site.post(page(quota), {"max_extra": '{"gpu": -4}'}))

    def test_deleting_one_serves_who_waits_for_it(self, site, blueprint, ask, owner):
        blueprint(config={"capacity": {"slots": 5}})
        quota = Quota.objects.create(user=owner, max_leases=0)
        waiting = ask()
        settle()
        site.post(reverse("admin:leases_quota_delete", args=(quota.pk,)), {"post": "yes"})
        settle()
        waiting.refresh_from_db()
        assert (waiting.state, Quota.objects.count()) == ("active", 0)


def test_editing_wants_a_token(chief, blueprint, owner):
    pool = blueprint()
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(chief)
    assert strict.post(page(pool), ADD | {"note": "x"}).status_code == 403
    for model, given in ((Blueprint, ADD | {"name": "new"}), (Quota, {"user": owner.pk}), (Credential, {"name": "x"})):
        assert add(strict, model, **given).status_code == 403


def test_a_user_who_has_a_quota_and_an_authorization_can_be_deleted(site, blueprint):
    eve = User.objects.create_user("eve")
    Quota.objects.create(user=eve, max_leases=1)
    Authorization.objects.create(blueprint=blueprint(), user=eve, state="authorized")
    site.post(reverse("admin:auth_user_delete", args=(eve.pk,)), {"post": "yes"})
    assert not User.objects.filter(pk=eve.pk).exists()


def inputs_of(client, address):
    """What a browser would post of the inputs of a blueprint's config."""
    page_ = client.get(address)
    assert page_.status_code == 200
    form = page_.context["adminform"].form
    widget = form.fields["config"].widget
    shown = widget.get_context("config", form["config"].value(), {})
    typed = {one["name"]: one["value"] for one in shown["settings"] if one["setting"].sort != "flag" or one["on"]}
    if shown["other"]:
        typed[shown["other"]["name"]] = shown["other"]["value"]
    return {"config.": "1", **typed}


class TestConfigInputs:
    """The inputs that are made from the schema of the kind."""

    def test_what_is_typed_becomes_the_config(self, site):
        at = reverse("admin:blueprints_blueprint_add")
        typed = {
            "config.boot_polls": "3", "config.traits": "fast\nquiet\n", "config.secrets": "on", "config.provider": "x",
            "config.capacity": '{"slots": 4}', "config.catalogue": "fresh",
        }  # fmt: skip
        given = {name: value for name, value in ADD.items() if name != "config"}
        said(site, site.post(at, given | {"config.": "1"} | typed))
        assert Blueprint.objects.get().config == {
            "boot_polls": 3, "traits": ["fast", "quiet"], "secrets": True, "provider": "x", "capacity": {"slots": 4}
        }  # fmt: skip

    @pytest.mark.parametrize(
        "config",
        [
            {}, {"boot_polls": 0}, {"boot_polls": 2, "traits": ["a"], "secrets": False},
            {"capacity": {"slots": 2}, "catalogue": "stale"}, {"offers": [{"offer": "big", "price": 1.5}]},
        ],
    )  # fmt: skip
    def test_saving_without_typing_changes_nothing(self, site, blueprint, config):
        pool = blueprint(config=config)
        given = form_of(site, pool)
        given.pop("config")
        said(site, site.post(page(pool), given | inputs_of(site, page(pool)) | {"note": "typed"}))
        pool.refresh_from_db()
        assert (pool.config, pool.generation, pool.note) == (config, 1, "typed")

    def test_names_that_the_kind_does_not_know_are_shown_and_refused_not_dropped(self, site, blueprint):
        pool = blueprint(config={"of_old": 1, "boot_polls": 2})
        given = form_of(site, pool)
        given.pop("config")
        answer = site.post(page(pool), given | inputs_of(site, page(pool)) | {"config.boot_polls": "4"})
        assert "of_old" in str(errors(answer)["config"])

    def test_a_mistake_stands_beside_its_input(self, site):
        at = reverse("admin:blueprints_blueprint_add")
        given = {name: value for name, value in ADD.items() if name != "config"}
        answer = site.post(at, given | {"config.": "1", "config.boot_polls": "many", "config.capacity": "{"})
        found = errors(answer)["config"]
        assert len(found) == 2
        shown = answer.content.decode()
        assert shown.index('for="id_config.boot_polls"') < shown.rindex("boot_polls: It must be a whole number")
        assert 'value="many"' in shown

    def test_the_inputs_of_another_kind(self, site, staff):
        at = reverse("admin:blueprints_blueprint_inputs")
        shown = site.get(at, {"kind": "local_host"}).content.decode()
        assert 'name="config.first_uid"' in shown
        assert "config.boot_polls" not in shown
        assert 'name="config"' in site.get(at, {"kind": "no such"}).content.decode()
        assert staff("view_blueprint").get(at, {"kind": "fake"}).status_code == 403

    def test_the_check_button_says_what_would_be_built_and_stores_nothing(self, site, staff):
        at = reverse("admin:blueprints_blueprint_trial")
        given = {name: value for name, value in ADD.items() if name != "config"} | {"config.": "1"}
        offers = '[{"offer": "big", "zone": "north", "price": 1.5, "capacity": {"slots": 8}}, {"offer": "small"}]'
        shown = site.post(at, given | {"config.offers": offers}).content.decode()
        for words in ("No problems found", "Possible builds", "big", "north", "1.5", "8 slots", "small"):
            assert words in shown, words
        assert "It must be a whole number." in site.post(at, given | {"config.boot_polls": "many"}).content.decode()
        assert site.get(at).status_code == 403
        assert staff("view_blueprint").post(at, given).status_code == 403
        assert not Blueprint.objects.exists()
        assert not Event.objects.exists()
