"""Settings of VFs during a lease, and where network functions can be attached. A program stands for `ip`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.accelerators import virtual
from blueprints.accelerators.kind import Accelerators
from blueprints.answers import Failed, Ready
from blueprints.devices import DeviceRefused
from blueprints.specs import Control, HostView
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.accelerators import fake_ip
from tests.accelerators import fake_sysfs as sysfs
from tests.accelerators.fake_ip import FakeIp
from tests.accelerators.fake_sysfs import CARD
from tests.blueprints import host_peers as peers

KIND = Accelerators()
ROOT = LocalEndpoint(uid=0, gid=0, home="/")
VF = "0000:3b:02.1"
DECLARED = {"mac": "02:00:5e:00:53:07", "vlan": 100, "max_mbits": 1000, "trust": False, "spoofchk": True}


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    peers.needs_root()
    root = tmp_path / "tree"
    sysfs.write(root)
    (root / "sys/bus/pci/devices" / CARD / "net" / fake_ip.CARD).mkdir(parents=True)
    for n in range(2):
        add_vf(root, n)
    return root


def add_vf(root: Path, n: int) -> None:
    """Add a VF of the card."""
    folder = sysfs.function(root, f"0000:3b:02.{n}", sysfs.DRIVERS["iavf"], "020000", "iavf", 40 + n)
    (folder / "physfn").symlink_to(f"../{CARD}")
    (root / "sys/bus/pci/devices" / CARD / f"virtfn{n}").symlink_to(f"../{folder.name}")


@pytest.fixture
def program(tree: Path, tmp_path: Path) -> FakeIp:
    return FakeIp(tmp_path / "tools")


def spec(tree: Path, facts: Any = None, **declared: Any) -> Any:
    """What a step gets, as far as it reads it."""
    known = {"id": VF, "class": "vf", "attach": "none", "part_of": CARD}
    host = HostView(id=7, name="rack-7", blueprint="racks", connect=lambda: transport_to(ROOT))
    resource = SimpleNamespace(name=f"vf {VF}", facts={"device": known}, attributes={}, host=lambda: host)
    lease = SimpleNamespace(key="lease1", facts=facts or {}, members=lambda: ())
    config = KIND.Config.model_validate({
        "captured": str(tree), "tools": str(tree.parent / "tools"), "networks": [{"address": VF, **declared}],
    })  # fmt: skip
    return SimpleNamespace(phase="activate", resource=resource, lease=lease, deadline=30.0, config=config)


def done(tree: Path, phase: str, facts: Any, **declared: Any) -> Any:
    """Carry out the steps of a phase that concern the settings. Return the facts of the lease, or the failure."""
    acts = {"activate": (virtual.read_settings, virtual.apply_settings), "clean": (virtual.restore_settings,)}[phase]
    for act in acts:
        answer = act(spec(tree, facts, **declared), {})
        if isinstance(answer, Failed):
            return answer
        facts = facts | answer.facts
    return facts


def test_a_vf_has_the_declared_settings_during_a_lease_and_its_own_afterwards(program: FakeIp, tree: Path) -> None:
    program.change(1, address="02:00:5e:00:53:01", trust=True, rate={"max_tx": 0, "min_tx": 50})
    before, other = program.read(1), program.read(0)
    facts = done(tree, "activate", {}, **DECLARED)
    assert facts["vf_before"] == {
        "mac": "02:00:5e:00:53:01", "vlan": 0, "min_mbits": 50, "max_mbits": 0, "trust": True, "spoofchk": True,
    }  # fmt: skip
    now = program.read(1)
    assert (now["address"], now["vlan_list"], now["trust"]) == ("02:00:5e:00:53:07", [{"vlan": 100}], False)
    assert now["rate"] == {"max_tx": 1000, "min_tx": 50}, "a rate that is not declared stays"
    assert done(tree, "activate", facts, **DECLARED)["vf_before"] == facts["vf_before"], "a repeated step reads no more"
    done(tree, "clean", facts, **DECLARED)
    assert program.read(1) == before
    assert program.read(0) == other, "the VFs of other leases are left alone"


def test_what_a_tenant_changed_is_restored_whatever_was_declared(program: FakeIp, tree: Path) -> None:
    before = program.read(1)
    facts = done(tree, "activate", {}, vlan=100)
    program.change(1, address="02:00:5e:00:53:66", spoofchk=False)
    done(tree, "clean", facts, vlan=100)
    assert program.read(1) == before


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ({"ignores": "vlan"}, "The card does not keep the settings of 0000:3b:02.1: vlan is 0, not 100."),
        ({"refuses": "trust"}, "ip refuses to set trust off of VF 1 of card0."),
    ],
)
def test_a_setting_that_the_card_does_not_take_is_a_failure(program: FakeIp, tree: Path, card: Any, said: str) -> None:
    program.change(1, trust=True, **card)
    answer = done(tree, "activate", {}, vlan=100, trust=False)
    assert isinstance(answer, Failed)
    assert answer.message == said


def test_no_setting_is_touched_if_none_is_declared(program: FakeIp, tree: Path) -> None:
    (tree.parent / "tools/ip").unlink()
    assert done(tree, "activate", {}, attach="none") == {}


def test_the_output_of_older_and_newer_versions_of_ip_is_read() -> None:
    older = '[{"ifname":"p0","vfinfo_list":[{"vf":0,"mac":"02:00:00:00:00:01","vlan":7,"tx_rate":9,"spoofchk":false}]}]'
    assert virtual.settings_of(older, 0) == {
        "mac": "02:00:00:00:00:01", "vlan": 7, "min_mbits": 0, "max_mbits": 9, "spoofchk": False,
    }  # fmt: skip
    for text in ("", "[]", '[{"ifname":"p0"}]', older.replace('"vf":0', '"vf":1'), "[7]"):
        with pytest.raises(DeviceRefused, match="ip does not report the VF 0"):
            virtual.settings_of(text, 0)


def test_a_part_of_an_iommu_group_is_not_passed_through(tree: Path) -> None:
    one = spec(tree)
    one.resource.facts["device"] |= {"attach": "vfio", "group": ["0000:3b:02.0"], "iommu_group": 41}
    answer = virtual.check_group(one, {})
    assert isinstance(answer, Failed)
    assert "only together with the rest of its IOMMU group 41: 0000:3b:02.0" in answer.message
    along: Any = SimpleNamespace(resource=SimpleNamespace(facts={"device": {"id": "0000:3b:02.0"}}))
    one.lease.members = lambda: (along,)
    assert virtual.check_group(one, {}) == Ready()


def attached(tree: Path, transport: Any, *, shared: bool = False, exclusive: bool = False) -> Any:
    one = spec(tree, attach="netns")
    one.resource.facts["device"]["attach"] = "netns"
    control = (
        None
        if shared
        else Control(transport=transport or SimpleNamespace(endpoint="ssh"), uid=70_001, gid=70_001, home="/nowhere")
    )
    one.lease.parents = {"host": SimpleNamespace(
        control=lambda: control, facts={}, asked=SimpleNamespace(exclusive=exclusive),
        resource=SimpleNamespace(name="rack-7", attributes={}),
    )}  # fmt: skip
    return virtual.attach(one, {})


def test_a_namespace_is_refused_where_sessions_do_not_enter_it(tree: Path) -> None:
    answer = attached(tree, SimpleNamespace(endpoint="ssh"))
    assert isinstance(answer, Failed)
    assert answer.message == (
        "On rack-7, sshd starts the sessions of a lease as its account, and only root can enter a network namespace. "
        "Lease the whole host, or declare the attachment vfio or none."
    )
    answer = attached(tree, None, shared=True)
    assert isinstance(answer, Failed)
    assert "Leases share an account on rack-7" in answer.message
    for whole in (attached(tree, None, shared=True, exclusive=True), attached(tree, None, exclusive=True)):
        assert whole == Ready(facts={"network": {"namespace": "", "interfaces": []}}), "the lease has the whole machine"


def test_a_forged_address_names_no_interface_of_the_host(program: FakeIp, tree: Path) -> None:
    """As from an agent that was taken over: a folder that it prepared would choose the interface."""
    (tree / "forged/net/eth0").mkdir(parents=True)
    one = spec(tree, attach="netns", vlan=100)
    one.resource.facts["device"] |= {"id": "../../../../forged", "attach": "netns"}
    one.config.networks[0].__dict__["address"] = "*"
    account: Any = SimpleNamespace(endpoint=ROOT)
    control = Control(transport=account, uid=70_001, gid=70_001, home="/nowhere")
    one.lease.parents = {"host": SimpleNamespace(
        control=lambda: control, facts={}, asked=SimpleNamespace(exclusive=False),
        resource=SimpleNamespace(name="rack-7", attributes={}),
    )}  # fmt: skip
    for act in (virtual.read_settings, virtual.attach):
        answer = act(one, {})
        assert isinstance(answer, Failed)
        assert "'../../../../forged' is not a PCI address" in answer.message
