"""The fake kinds keep the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Health, Hold, Json, Resolution
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake, FakeActivated, FakeReported
from blueprints.fake.offering import FakeCloud
from blueprints.specs import Control, LeaseView, Part, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from interfaces.dpu_services import Chart, Port, Service


class FakeHooks(KindConformance):
    """How to look at the fake provider."""

    more: Json = {}

    @pytest.fixture(autouse=True)
    def _cloud(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path))

    @property
    def cloud(self) -> Cloud:
        return Cloud("conformance")

    def config(self) -> Json:
        first = {
            "offer": "small",
            "zone": "north",
            "price": 0.1,
            "capacity": {"slots": 3, "ram_mib": 1024, "extra": {"floppies": 1}},
        }
        full = {"offer": "full", "zone": "south", "capacity": {"slots": 1}}
        second = {"offer": "big", "zone": "south", "price": 0.4, "attributes": {"size": 9}}
        return {
            "provider": "conformance",
            "capacity": {"slots": 4, "ram_mib": 2048, "extra": {"floppies": 2}},
            "attributes": {"color": "red", "size": 3, "labels": ["a", "b"]},
            "traits": ["fast"],
            "parts": [{"part_class": "gpu", "count": 2, "attributes": {"model": "x"}}],
            "offers": [first, full, second],
            "poll_seconds": 0,
            "secrets": True,
            "watch": True,
            "bulk_checks": True,
            "charts": [{"repository": "oci://charts.example.org/doca", "name": "firewall", "versions": ["1.2.0"]}],
            **self.more,
        }

    def changed_config(self) -> Json:
        return {**self.config(), "traits": ["slow"]}

    def use_control(self, control: Control) -> None:
        assert not control.transport.files(control.home).list("")

    def requirements(self) -> Json:
        return {"color": "red", "size": 3, "zones": ["south", "north"], "labels": ["b"]}

    def impossible(self) -> Json:
        return {"zones": ["west"]}

    def amounts(self) -> Amounts:
        return Amounts(slots=2, ram_mib=1024, extra={"floppies": 1})

    def outside(self) -> Sequence[Outside]:
        return [Outside(name=one.key, tags=one.tags) for one in self.cloud.instances()]

    def registration(self) -> Json:
        return {"name": "box", "identity": "serial-1", "attributes": {"color": "blue"}}

    def plant(self) -> None:
        self.cloud.plant("host-1", attributes={"color": "red"}, capacity=Amounts(slots=8))
        gpu = Part(part_class="gpu", identity="GPU-1", attributes={"model": "x"})
        near = ("node 0", "port 1", "switch 1")
        self.cloud.plant(
            "card-1", part_of="host-1", parts=[gpu], traits=["fast"], identities={"serial:x": "S-1"}, locality=near
        )
        self.cloud.plant("slice-1", part_of="card-1", locality=near)

    def degrade(self, resource: ResourceView) -> bool:
        self.cloud.ail(resource.key, Health(state="degraded", reason="A fan has failed."))
        return True

    def kill(self, resource: ResourceView) -> None:
        self.cloud.kill(resource.key)

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        self.cloud.cut_off(resource.key)
        yield
        self.cloud.connect(resource.key)

    def touch(self, resource: ResourceView) -> bool:
        self.cloud.report(resource.key)
        return True

    def power_of(self, resource: ResourceView) -> str:
        found = self.cloud.instance(resource.key)
        assert found is not None
        return found.power

    def disk_of(self, resource: ResourceView) -> int:
        return int(self.cloud.settings(resource.key)["disk_gib"])

    def types(self) -> tuple[str, str]:
        return "small", "big"

    def type_of(self, resource: ResourceView) -> str:
        return self.cloud.settings(resource.key)["type"]

    def tags_of(self, resource: ResourceView) -> Mapping[str, str]:
        found = self.cloud.settings(resource.key)
        return {name.removeprefix("tag:"): value for name, value in found.items() if name.startswith("tag:")}

    def act_arguments(self, act: str) -> Json:
        return {"program": {"image": "blinky", "passes": 2}, "label": {"text": "hello"}}.get(act, {})

    def seen_of_act(self, resource: ResourceView, act: str) -> Json:
        found = self.cloud.settings(resource.key)
        return {name: found.get(name) for name in ("image", "label")} | {"serviced": "serviced" in found}

    def write_console(self, resource: ResourceView, text: str) -> None:
        self.cloud.write(resource.key, text)

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        return [one.what for one in self.cloud.left(lease.key) if one.what != "file"]

    def service(self) -> Service:
        chart = Chart(repository="oci://charts.example.org/doca", name="firewall", version="1.2.0")
        return Service(name="edge", chart=chart, values={"replicas": 1}, ports=(Port(name="metrics", port=9100),))

    def litter(self, lease: LeaseView) -> None:
        self.cloud.leave(lease.resource.key, lease.key, "file")

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        return [one.what for one in self.cloud.left(lease.key)]

    def test_drafts_call_nothing_outside(self) -> None:
        self.draft()
        assert self.cloud.count() == 0


class TestFake(FakeHooks):
    """The fake without work per lease."""

    kind = Fake()

    def test_a_bulk_check_finds_what_runs(self) -> None:
        resource = self.built()
        assert self._checked_in_bulk(resource).sound == [resource.id]
        self.destroyed(resource)


class TestFakeActivated(FakeHooks):
    """The fake with accounts per lease."""

    kind = FakeActivated()


class TestFakeWithWaits(FakeHooks):
    """Steps that take several calls."""

    kind = FakeActivated()
    more = {"flash_polls": 2, "boot_polls": 3, "destroy_polls": 2}


class TestFakeCleanedApart(FakeHooks):
    """Cleaning apart from the lease, in several calls."""

    kind = FakeActivated()
    more = {"clean_apart": True, "clean_polls": 2, "disks": 2}


class TestFakeWithHolds(FakeHooks):
    """Steps that wait for an operator's answer."""

    kind = FakeActivated()
    more = {
        "faults": [
            {"does": "hold", "at": at, "each": True, "resolved_by": "operator"}
            for at in ("build.boot", "activate.access", "destroy.delete")
        ]
    }

    def resolve(self, hold: Hold) -> Resolution | None:
        return Resolution(yes=True, text="done", actor="ann")


class TestFakeReported(FakeHooks):
    """Objects in reports: several places, one of them with several pages."""

    kind = FakeReported()
    more = {"page_size": 1}

    def plant(self) -> None:
        super().plant()
        for name in ("host-2", "card-2", "card-3"):
            self.cloud.plant(name, place="rack-2", part_of="host-2" if name != "host-2" else "")


class TestFakeCloud(FakeHooks):
    """What the fake provider sells, by way of the catalogue."""

    kind = FakeCloud()

    @pytest.fixture(autouse=True)
    def _sold(self, _cloud: None) -> None:
        self.cloud.sell("east", "small", vcpus=1, ram_mib=1024, price=0.1)
        self.cloud.sell("east", "big", vcpus=4, ram_mib=4096, price=0.4)
        self.cloud.sell("west", "big", vcpus=4, ram_mib=4096, price=0.5)

    def config(self) -> Json:
        return {"provider": "conformance", "credential": "account", "poll_seconds": 0}

    def credentials(self) -> Mapping[str, Mapping[str, str]]:
        return {"account": {"provider": "conformance"}}

    def wrong_secrets(self) -> Sequence[Mapping[str, str]]:
        return [{"provider": "conformance", "password": "wrong"}, {"nonsense": "1"}]

    def requirements(self) -> Json:
        return {"region": ["east", "west"]}

    def impossible(self) -> Json | None:
        return None

    def amounts(self) -> Amounts:
        return Amounts(cpu_millicores=2000, ram_mib=2048)

    def test_drafts_call_nothing_outside(self) -> None:
        offers, before = self.offers(), self.cloud.count()
        self.kind.draft(self.blueprint().config, self.asked(), offers[0])
        assert self.cloud.count() == before
