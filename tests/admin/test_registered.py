"""Every model has a page, and every page answers whatever is searched for."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib import admin
from django.urls import reverse

from blueprints.models import Allowance, Listing, Reading
from leases.admin.toolkit.base import RecordAdmin
from leases.messaging.inline import settle
from leases.models import (
    Agent,
    AgentOrder,
    Capacity,
    Console,
    ConsoleAttachment,
    ConsoleInput,
    ConsoleOutput,
    Debt,
    ErasureRecord,
    Event,
    Failure,
    Finding,
    FormerConfig,
    Installation,
    Job,
    JoinCode,
    Lease,
    LeaseEvidence,
    LoginAttempt,
    Part,
    ProviderWatch,
    ReportedHardware,
    Resource,
    ResourceCredential,
    ResourceIdentity,
    Run,
    SensorReport,
    Share,
    SlotLock,
    Sync,
    Worker,
)
from leases.models.job import KeptOutput, Watch
from tests.admin.conftest import rows_of

MODELS = [model for label in ("blueprints", "leases", "rest") for model in apps.get_app_config(label).get_models()]
BY_ENGINE = (
    Allowance, Capacity, Debt, Event, Failure, Installation, Job, Lease, Listing, Part, Reading, Resource, Run, Share,
    SlotLock, Sync, Worker, Watch, KeptOutput, Finding, ResourceIdentity, ResourceCredential, Agent, AgentOrder,
    JoinCode, ReportedHardware, LeaseEvidence, ErasureRecord, Console, ConsoleAttachment, ConsoleInput, ConsoleOutput,
    SensorReport, LoginAttempt, FormerConfig, ProviderWatch,
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_model_is_registered(model):
    found = admin.site._registry.get(model)
    assert found is not None, f"{model.__name__} has no admin"
    assert len(found.list_display) > 2
    assert found.search_fields or model is Installation


@pytest.mark.parametrize("model", BY_ENGINE, ids=lambda model: model.__name__)
def test_what_the_engine_writes_is_not_typed_over(model):
    assert isinstance(admin.site._registry[model], RecordAdmin)


def test_rows_of_the_engine_are_neither_added_changed_nor_deleted(site, lease):
    for row in (lease, lease.resource, Share.objects.get(), Event.objects.first()):
        at = f"admin:leases_{row._meta.model_name}"
        before = type(row).objects.filter(pk=row.pk).values().get()
        assert site.get(reverse(f"{at}_add")).status_code == 403
        assert site.post(reverse(f"{at}_change", args=(row.pk,)), {"state": "broken"}).status_code == 403
        assert site.post(reverse(f"{at}_delete", args=(row.pk,)), {"post": "yes"}).status_code == 403
        site.post(rows_of(type(row)), {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"})
        assert type(row).objects.filter(pk=row.pk).values().get() == before


@pytest.mark.parametrize("words", ["1", "abc", "99999999999999999999999999", "' OR 1=1 --", "%_\\", "é🙂", "\0"])
def test_any_words_can_be_searched_for(site, words):
    for model in MODELS:
        assert site.get(rows_of(model), {"q": words}).status_code == 200, model


def test_every_filter_answers(site, lease):
    settle()
    for model in MODELS:
        changelist = site.get(rows_of(model)).context["cl"]
        for spec in changelist.filter_specs:
            for choice in list(spec.choices(changelist)):
                assert site.get(rows_of(model) + choice["query_string"]).status_code == 200, (model, choice)


def test_rows_that_are_not_there(site):
    for model in MODELS:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
        assert site.get(reverse(name, args=("987654",))).status_code == 302


def test_strangers_are_sent_to_sign_in(client, lease, owner):
    client.force_login(owner)
    for address in (rows_of(Lease), reverse("admin:leases_lease_act", args=("release",)) + f"?ids={lease.pk}"):
        assert client.get(address).status_code == 302
        assert client.post(address).status_code == 302
