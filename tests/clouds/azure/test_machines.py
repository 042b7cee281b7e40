"""What is read of a machine's JSON."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from blueprints.azure.account import image_reference
from blueprints.azure.instances import instance, state
from blueprints.cloud.faults import CloudError
from blueprints.cloud.values import Lifecycle

SPOT = {"name": "dd-one", "location": "EastUS", "properties": {"priority": "Spot", "provisioningState": "Succeeded"}}


@pytest.mark.parametrize(
    ("provisioning", "power", "stands"),
    [
        ("Creating", "", Lifecycle.PENDING),
        ("Creating", "running", Lifecycle.PENDING),
        ("Succeeded", "", Lifecycle.PENDING),
        ("Succeeded", "starting", Lifecycle.PENDING),
        ("Succeeded", "running", Lifecycle.RUNNING),
        ("Updating", "running", Lifecycle.RUNNING),
        ("Updating", "deallocating", Lifecycle.STOPPING),
        ("Succeeded", "stopped", Lifecycle.STOPPED),
        ("Succeeded", "deallocated", Lifecycle.STOPPED),
        ("Deleting", "running", Lifecycle.TERMINATING),
        ("Failed", "", Lifecycle.FAILED),
        ("Failed", "running", Lifecycle.RUNNING),
        ("Failed", "deallocated", Lifecycle.STOPPED),
        ("Canceled", "", Lifecycle.FAILED),
    ],
)
def test_where_a_machine_stands(provisioning: str, power: str, stands: Lifecycle) -> None:
    assert state(provisioning, power) is stands


def test_a_machine_that_was_taken_back_says_so() -> None:
    statuses = [
        {"code": "PowerState/deallocated", "displayStatus": "VM deallocated"},
        {"code": "ProvisioningState/failed/Evicted", "level": "Error", "message": "Taken back."},
    ]
    found = instance(SPOT, {"statuses": statuses}, {}, {})
    assert (found.preempted, found.state) == (True, Lifecycle.STOPPED)
    assert found.reason == "ProvisioningState/failed/Evicted: Taken back."
    assert not instance(SPOT, {"statuses": statuses[:1]}, {}, {}).preempted


def test_a_machine_of_which_little_is_told() -> None:
    found = instance(SPOT, None, {}, {})
    assert (found.key, found.location, found.public_address, found.state) == ("dd-one", "eastus", "", Lifecycle.PENDING)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-06-01T10:20:30.1234567+00:00", dt.datetime(2026, 6, 1, 10, 20, 30, 123456, dt.UTC)),
        ("2026-06-01T10:20:30Z", dt.datetime(2026, 6, 1, 10, 20, 30, 0, dt.UTC)),
        ("2026-06-01T10:20:30.5Z", dt.datetime(2026, 6, 1, 10, 20, 30, 500000, dt.UTC)),
        (None, None),
    ],
)
def test_when_a_machine_was_made(text: str | None, at: dt.datetime | None) -> None:
    about: dict[str, Any] = {**SPOT["properties"], "timeCreated": text}  # type: ignore[dict-item]
    assert instance({**SPOT, "properties": about}, None, {}, {}).created_at == at


@pytest.mark.parametrize(
    ("image", "sent"),
    [
        ("a:b:c:latest", {"publisher": "a", "offer": "b", "sku": "c", "version": "latest"}),
        ("/subscriptions/x/images/y", {"id": "/subscriptions/x/images/y"}),
        ("/CommunityGalleries/x/images/y", {"communityGalleryImageId": "/CommunityGalleries/x/images/y"}),
        ("/sharedGalleries/x/images/y", {"sharedGalleryImageId": "/sharedGalleries/x/images/y"}),
    ],
)
def test_an_image_as_azure_wants_it(image: str, sent: dict[str, str]) -> None:
    assert image_reference(image) == sent


def test_words_that_are_no_image() -> None:
    with pytest.raises(CloudError, match="PUBLISHER:OFFER:SKU:VERSION"):
        image_reference("debian-12")
