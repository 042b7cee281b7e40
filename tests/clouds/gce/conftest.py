"""A double, a client of it, and the orders that tests begin with."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Order, Underway
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential
from tests.clouds.gce.double import Double, Pace

TAGS = {
    "drydock-installation": "i-1",
    "drydock-epoch": "3",
    "drydock-resource": "r-1",
    "drydock-proof": "0123456789abcdef0123456789abcdef01234567",
    "drydock-blueprint": "vms",
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0000000000000000000000000000000000000000"
USUAL = Order(
    key="dd-one",
    token="attempt-1",
    location="us-central1",
    zone="us-central1-a",
    type="n2-standard-2",
    image="projects/debian-cloud/global/images/debian-12-bookworm-v20261014",
    ssh_from=("192.0.2.0/24",),
    user="drydock",
    public_key=KEY,
    user_data="#cloud-config\n{}",
    tags=TAGS,
)


def order(**other: Any) -> Order:
    """The usual one, with something else."""
    return dataclasses.replace(USUAL, **other)


@pytest.fixture
def double() -> Iterator[Double]:
    """At the end it has to have answered nothing that Google could not."""
    with Double(pace=Pace(operation=0.01, boot=0.02)) as it:
        yield it
    assert it.violations == []


@pytest.fixture
def gce(double: Double) -> Gce:
    return Gce(Credential(**double.credential))


def until(look: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What `look` gives as soon as it gives something."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def prepared(gce: Gce, wanted: Order) -> Any:
    """What the instance stands on, when it is there."""

    def look() -> Any:
        said = gce.prepare(wanted)
        return None if isinstance(said, Underway) else said

    return until(look)


def made(gce: Gce, wanted: Order = USUAL) -> Instance:
    """An instance of an order, running."""
    said = gce.create(wanted, {})
    end = time.monotonic() + 20
    while isinstance(said, Underway):
        assert time.monotonic() < end, "the create did not come to an end"
        time.sleep(0.01)
        said = gce.created(wanted, said.handle)
    assert said.state is Lifecycle.RUNNING
    return said


def refused(meaning: Meaning, call: Callable[..., Any], *args: Any) -> CloudError:
    """The CloudError of a call, which has to have this meaning."""
    with pytest.raises(CloudError) as caught:
        call(*args)
    assert caught.value.meaning is meaning, (caught.value.meaning, str(caught.value))
    return caught.value
