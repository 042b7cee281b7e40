"""The schema says what the API does, from one declaration."""

from __future__ import annotations

import json

import pytest
from django.test import Client as Browser
from drf_spectacular.drainage import GENERATOR_STATS

from drydock_client import values
from drydock_client.values import to_json
from leases.rest.schema import Schema
from leases.rest.views import MADE


@pytest.fixture
def schema():
    found = Browser().get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"})
    assert found.status_code == 200
    return json.loads(found.content)


def test_it_is_made_without_a_warning(schema):
    GENERATOR_STATS.reset()
    MADE.clear()
    Browser().get("/api/schema/")
    assert MADE
    assert not GENERATOR_STATS._warn_cache
    assert not GENERATOR_STATS._error_cache
    assert schema["openapi"].startswith("3.1")
    assert set(schema["components"]["securitySchemes"]) == {"token"}


def test_every_value_of_the_client_is_described_by_its_own_fields(schema):
    described = schema["components"]["schemas"]
    for name in (
        "LeaseInfo", "ResourceInfo", "BlueprintInfo", "EventInfo", "JobInfo", "KindInfo", "Explanation", "OfferInfo",
        "InstanceTypeInfo", "PriceInfo", "LocationInfo", "CredentialInfo", "ReadingInfo", "ReaderInfo", "WatchInfo",
    ):  # fmt: skip
        assert set(described[name]["properties"]) == set(getattr(values, name).__dataclass_fields__)
    assert described["LeaseInfo"]["properties"]["ttl"]["anyOf"][0] == {"type": "number"}
    assert "slots" in described["LeaseRequest"]["properties"]
    assert to_json(values.Verdict(blueprint="a", answer="no", sentence="b")).keys() == set(
        described["Verdict"]["properties"]
    )


def test_every_operation_has_a_name_of_its_own_a_summary_and_its_errors(schema):
    operations = [o for path in schema["paths"].values() for o in path.values()]
    assert len({o["operationId"] for o in operations}) == len(operations)
    assert all(o["summary"] and o["security"] == [{"token": []}] for o in operations)
    assert all("401" in o["responses"] and "429" in o["responses"] for o in operations)


def test_the_page_that_shows_it_needs_no_internet():
    page = Browser().get("/api/docs/")
    script = Browser().get("/api/docs/?script=")
    assert page.status_code == script.status_code == 200
    for text in (page.content.decode(), script.content.decode()):
        for line in text.splitlines():
            if "src=" in line or "href=" in line or "import" in line:
                assert "http://" not in line
                assert "https://" not in line
    assert "/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js" in page.content.decode()


def test_it_is_made_once_for_all_who_ask(monkeypatch):
    """Anybody may ask for it, as often as they like."""
    MADE.clear()
    formats = ("application/vnd.oai.openapi", "application/vnd.oai.openapi+json")
    first = [Browser().get("/api/schema/", headers={"Accept": one}).content for one in formats]
    monkeypatch.setattr(Schema, "get_operation", None)
    for query in ("", "?version=2", "?lang=de"):
        again = [Browser().get(f"/api/schema/{query}", headers={"Accept": one}).content for one in formats]
        assert again == first
