"""A double and a client of it for every test."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from blueprints.azure.client import Azure
from blueprints.azure.config import Credential
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Instance, Lifecycle, Order, Underway
from tests.clouds.azure.double import AzureDouble

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0000000000000000000000000000000000000000 test"
TAGS = {"drydock-installation": "i1", "drydock-resource": "r1"}
USUAL = Order(
    key="dd-one",
    token="attempt-1",
    location="eastus",
    zone="1",
    type="Standard_D2s_v5",
    image="Debian:debian-12:12-gen2:0.20260601.2600",
    ssh_from=("192.0.2.0/24", "2001:db8::/32"),
    ssh_port=2222,
    user="drydock",
    public_key=PUBLIC_KEY,
    user_data="#cloud-config\n{}",
    tags=TAGS,
)


def order(**other: Any) -> Order:
    """The usual one, with something else."""
    return dataclasses.replace(USUAL, **other)


@dataclasses.dataclass(frozen=True)
class Bench:
    """A client, and the frame's part of the contract: asking again until it is done."""

    azure: Azure
    double: AzureDouble

    def prepared(self, wanted: Order) -> Mapping[str, str]:
        return until(lambda: self.azure.prepare(wanted))

    def made(self, wanted: Order = USUAL) -> Instance:
        return self.finished(wanted, self.azure.create(wanted, self.prepared(wanted)))

    def finished(self, wanted: Order, found: Instance | Underway) -> Instance:
        while isinstance(found, Underway):
            time.sleep(0.02)
            found = self.azure.created(wanted, found.handle)
        return found

    def read(self, instance: Instance) -> Instance | None:
        return self.azure.instance(instance.location, instance.zone, instance.key, instance.id)

    def until(self, instance: Instance, state: Lifecycle) -> Instance:
        return until(lambda: found if (found := self.read(instance)) and found.state is state else None)

    def swept(self, key: str = "dd-one", tags: Mapping[str, str] = TAGS) -> None:
        until(lambda: not self.azure.sweep("eastus", "1", key, tags))

    def ended(self, instance: Instance) -> None:
        self.azure.terminate(instance)
        self.swept(instance.key)


def until(look: Callable[[], Any]) -> Any:
    """What a call answers once it is neither Underway nor nothing; a busy object is asked again."""
    for _ in range(500):
        try:
            found = look()
        except CloudError as error:
            if error.meaning is not Meaning.CONFLICT:
                raise
            found = None
        if found and not isinstance(found, Underway):
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about")


@pytest.fixture
def double() -> Iterator[AzureDouble]:
    with AzureDouble() as double:
        yield double


@pytest.fixture
def bench(double: AzureDouble) -> Iterator[Bench]:
    azure = Azure(Credential(**double.credential()), deadline=10)
    try:
        yield Bench(azure, double)
    finally:
        azure.close()
