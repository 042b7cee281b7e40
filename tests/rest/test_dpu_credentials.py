"""Credentials of a DPU over REST: shown once to their owner, audited, in no event, and gone with the lease."""

from __future__ import annotations

import json

import pytest

from blueprints.fake.dpucredentials import FakeCredentials
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event
from leases.operations.callers import caller
from tests.rest.dpus import leased, left


@pytest.fixture
def ada(api, owner, blueprint):
    blueprint("dpus", kind="fake_activated", config={"provider": "dpus"})
    return api(owner)


@pytest.fixture
def held(ada):
    return leased(ada)


def test_a_credential_is_shown_once_and_audited_and_its_secret_is_nowhere_else(ada, held, caplog) -> None:
    where = f"leases/{held}/dpu-credentials"
    made = ada("PUT", f"{where}/metrics", {"ttl": "10m"})
    assert (made["name"], made["state"]) == ("metrics", "ready")
    secret = ada("POST", f"{where}/metrics/kubeconfig")["kubeconfig"]
    assert secret.startswith("fake kubeconfig ")
    refused = ada("POST", f"{where}/metrics/kubeconfig", code=409)
    assert "was shown already" in refused["detail"]
    listed = ada("GET", where)["results"]
    assert [(one["name"], one["state"]) for one in listed] == [("metrics", "shown")]
    ada("DELETE", f"{where}/metrics", code=204)
    ada("DELETE", f"{where}/metrics", code=204)
    assert ada("POST", f"{where}/metrics/kubeconfig", code=404)["code"] == "credential_missing"
    told = Event.objects.filter(kind="lease.dpu_credential", lease_id=held).order_by("pk")
    assert [one.message for one in told][:3] == [
        "Requested DPU credential metrics for 600 s.", "DPU credential metrics was shown to the owner.",
        "Removed DPU credential metrics.",
    ]  # fmt: skip
    assert {one.actor for one in told} == {"ada"}
    seen = json.dumps([refused, listed, ada("GET", f"leases/{held}")])
    seen += "".join(json.dumps([one.message, one.details]) for one in Event.objects.all()) + caplog.text
    assert secret.split()[-1] not in seen


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ttl": "9m"}, "ttl"), ({"ttl": "25h"}, "ttl"), ({"ttl": "soon"}, "ttl"), ({}, "ttl"),
        ({"ttl": "1h", "namespace": "kube-system"}, "namespace"), ({"ttl": "1h", "type": "tokenFile"}, "type"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_with_their_field(ada, held, body, field) -> None:
    assert ada("PUT", f"leases/{held}/dpu-credentials/metrics", body, code=400)["field"] == field
    assert left("credential") == []


def test_only_the_owner_reads_it_not_an_operator_and_not_a_token_that_another_made(
    ada, held, api, owner, chief, django_user_model
) -> None:
    where = f"leases/{held}/dpu-credentials/metrics"
    ada("PUT", where, {"ttl": "10m"})
    eve = api(django_user_model.objects.create_user("eve"))
    for method, path, body in (
        ("GET", f"leases/{held}/dpu-credentials", None), ("PUT", where, {"ttl": "10m"}), ("DELETE", where, None),
        ("POST", f"{where}/kubeconfig", None),
    ):  # fmt: skip
        assert eve(method, path, body, code=404)["code"] == "not_found"
    api(chief)("POST", f"{where}/kubeconfig", code=404)
    api(owner, "read")("POST", f"{where}/kubeconfig", code=403)
    assert ada("POST", f"{where}/kubeconfig")["kubeconfig"]


def test_credentials_end_with_the_lease(ada, held) -> None:
    ada("PUT", f"leases/{held}/dpu-credentials/metrics", {"ttl": "10m"})
    assert left("credential") == ["credential metrics"]
    ada("POST", f"leases/{held}/release", {})
    settle()
    assert left("credential") == []
    assert ada("GET", f"leases/{held}/dpu-credentials", code=409)["code"] == "lease_ended"


def test_a_request_that_comes_after_the_cleaning_leaves_nothing(ada, held, monkeypatch) -> None:
    create = FakeCredentials.create

    def late(self, name, seconds, deadline):
        made = create(self, name, seconds, deadline)
        ada("POST", f"leases/{held}/release", {})
        settle()
        return made

    monkeypatch.setattr(FakeCredentials, "create", late)
    refused = ada("PUT", f"leases/{held}/dpu-credentials/metrics", {"ttl": "10m"}, code=409)
    assert refused["code"] == "lease_ended"
    assert left("credential") == []


def test_the_client_in_this_process_does_the_same(ada, held, owner) -> None:
    here = LocalClient(caller(owner))
    made = here.request_dpu_credential(held, "metrics", ttl="10m")
    assert here.dpu_credentials(held) == [made]
    assert here.read_dpu_credential(held, "metrics").startswith("fake kubeconfig ")
    here.remove_dpu_credential(held, "metrics")
    assert here.dpu_credentials(held) == []
