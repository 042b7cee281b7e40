"""Networks of hosts through the engine: a lease chooses one, and a switch that fails keeps its host closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blueprints.networks.errors import NetworkUnreachable
from blueprints.networks.fake import Fabric
from drydock.core.errors import Conflict
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Debt, Event, Lease, ResourceIdentity
from leases.operations import resources
from leases.operations.callers import caller
from tests.blueprints.baremetal.network_bench import NETWORK, PORTS, Journal, fabric
from tests.blueprints.baremetal.test_deployment import double, guest, image, operator, rack
from tests.bmc.guests import Guests
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = [
    "_database", "_quick", "ask", "blueprint", "double", "guest", "image", "operator", "owner", "rack", "soon", "until",
]  # fmt: skip

pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("soon")]


@pytest.fixture
def switches() -> Iterator[Fabric]:
    with fabric() as made:
        yield made


def there(switches: Fabric) -> set[str]:
    """The networks of the machine, by any of its ports."""
    return Journal(switches, None, None).there()


def test_a_detach_that_fails_blocks_the_cleaning_until_the_switch_is_back(
    rack: Any, guest: Guests, switches: Fabric, ask: Any, owner: Any, until: Any, operator: Any
) -> None:
    config = {"network": NETWORK}
    alpha = until(rack(config, more={"ports": list(PORTS)}, first_cleaning=False), state="active")
    assert (there(switches), alpha.attributes["networks"]) == (set(), ["blue", "green"])
    assert Lease.objects.get(pk=ask("host", requirements={"network": "wash"}).pk).state == "pending"
    lease = until(ask("host", requirements={"network": "green"}, exclusive=True), state="active")
    assert (there(switches), lease.facts["network"]) == ({"green"}, "green")
    seen = resources.get(caller(owner), alpha.pk)
    assert "leaf-1" not in str(seen)
    assert "switch_port leaf-1/ethernet1/1" in resources.get(operator, alpha.pk).identities

    silent = NetworkUnreachable("leaf-1 does not answer.")
    switches.errors = {"detach": silent, "check": silent}
    boots = list(guest.boots)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    settle()
    alpha.refresh_from_db()
    assert (alpha.in_maintenance, alpha.quarantined, guest.runs) == (True, False, "")
    assert alpha.message == "leaf-1 does not answer."
    assert guest.boots == boots, "it was not erased"
    assert there(switches) == {"green"}
    resources.check(operator, alpha.pk)
    settle()
    alpha.refresh_from_db()
    assert (alpha.message, alpha.observed) == ("leaf-1 does not answer.", "unreachable")
    debt = Debt.objects.get()
    assert (debt.phase, debt.message) == ("deactivate", "")
    assert guest.boots == boots, "nor is it erased after another check"

    switches.errors.clear()
    resources.check(operator, alpha.pk)
    settle()
    until(alpha, in_maintenance=False)
    assert guest.boots == [*boots, "ramdisk"]
    assert (there(switches), guest.runs, alpha.facts["network"]) == (set(), "", None)
    assert not Debt.objects.exists()
    resources.retire(operator, alpha.pk)
    until(alpha, state="destroyed")
    assert there(switches) == set()
    assert "leaf-1" not in str(list(Event.objects.filter(lease=lease).values_list("message", "details")))


def test_a_port_belongs_to_one_host(rack: Any, switches: Fabric, operator: Any) -> None:
    rack({"network": NETWORK}, more={"ports": list(PORTS)})
    other = {"address": "127.9.8.200", "user": "root", "bmc": {"driver": "redfish", "address": "127.9.8.201"}}
    port = {"switch": "LEAF-2", "port": "ethernet1/1"}
    with pytest.raises(Conflict, match="which has the same switch port"):
        resources.register(operator, "rack", {**other, "ports": [port]})
    assert ResourceIdentity.objects.filter(namespace="switch_port").count() == 2
