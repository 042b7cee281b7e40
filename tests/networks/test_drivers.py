"""The included drivers `fake` and `none`, and how drivers are found."""

from __future__ import annotations

import pytest

from blueprints.networks import registry
from blueprints.networks.contract import Access, Port
from blueprints.networks.fake import FABRICS, Fabric, FakeNetworks
from blueprints.networks.none import NoNetworks
from blueprints.testing.networks import NetworkConformance
from drydock.core.errors import NotFound
from drydock.core.plugins import PluginProblem, Plugins
from interfaces.deadline import Deadline

PORT = Port(switch="leaf-1", port="Ethernet1/12")


class TestFake(NetworkConformance):
    driver = FakeNetworks()

    def settings(self):
        return {"fabric": "conformance", "ids": {"blue": 20, "deploy": 10}}

    def networks(self):
        return "blue", "deploy"

    def port(self):
        return {"switch": "leaf-1", "port": "Ethernet1/12"}


def test_a_fake_port_can_be_in_two_networks_so_that_tests_notice() -> None:
    fabric = FABRICS["two"] = Fabric()
    driver = FakeNetworks()
    access = Access(settings=driver.Settings(fabric="two"), deadline=Deadline(1))
    driver.attach(access, PORT, "blue")
    driver.attach(access, PORT, "deploy")
    assert driver.check(access, PORT) == {"blue", "deploy"}
    assert fabric.calls == [
        ("attach", "leaf-1/ethernet1/12", "blue"), ("attach", "leaf-1/ethernet1/12", "deploy"),
        ("check", "leaf-1/ethernet1/12", ""),
    ]  # fmt: skip


def test_none_switches_nothing() -> None:
    driver = registry.driver("none")
    access = Access(settings=driver.Settings(), deadline=Deadline(1))
    driver.attach(access, PORT, "blue")
    driver.detach(access, PORT, "green")
    assert isinstance(driver, NoNetworks)
    assert (driver.switches, driver.check(access, PORT), driver.ids(access.settings)) == (False, frozenset(), None)


def test_an_unknown_driver_is_an_error_that_lists_the_installed_ones() -> None:
    with pytest.raises(NotFound, match=r"no network driver 'vlans'\. Installed are: .*command, fake, none"):
        registry.driver("vlans")


def test_a_driver_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PluginProblem(group=registry.GROUP, name="acme", source="acme 1", message="ImportError: no acme")
    there = Plugins(group=registry.GROUP, objects={}, sources={}, problems=(problem,))
    monkeypatch.setattr(registry, "installed", lambda: there)
    with pytest.raises(NotFound, match="'acme': ImportError: no acme"):
        registry.driver("acme")
