"""MIG layouts that a blueprint declares, with a program that stands for nvidia-smi (`fake_smi`)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.accelerators.kind import Accelerators
from blueprints.answers import Failed, Hold, Need, Ready, Resolution, Wait
from blueprints.specs import HostView
from drydock.demo import captured
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.accelerators.fake_smi import PROCESS, FakeSmi
from tests.blueprints import host_peers as peers

KIND = Accelerators()
ROOT = LocalEndpoint(uid=0, gid=0, home="/")


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    peers.needs_root()
    return FakeSmi(tmp_path / "tools")


def brought(smi: FakeSmi, *profiles: str, granted: Any = (), resolution: Any = None, memo: Any = None) -> Any:
    """The first answer of the plan that is no Wait. Waits are not slept."""
    known = {"id": captured.GPU, "part_of": "", "class": "gpu", "vendor": "10de", "captured": True}
    host = HostView(id=7, name="rack-7", blueprint="racks", connect=lambda: transport_to(ROOT))
    resource = SimpleNamespace(
        name=f"gpu {captured.GPU}", facts={"host": 7, "device": known}, attributes={"model": "A100"}, host=lambda: host
    )
    config = KIND.Config.model_validate({
        "captured": "/nowhere", "tools": str(smi.folder), "mig": [{"model": "a100*", "profiles": profiles}]
    })  # fmt: skip
    spec: Any = SimpleNamespace(
        phase="update", resource=resource, lease=None, deadline=30.0, config=config, granted=frozenset(granted),
        resolution=resolution,
    )  # fmt: skip
    (step,) = KIND.update()
    answer: Any = Wait(memo=memo or {})
    for _ in range(12):
        if not isinstance(answer, Wait):
            return answer
        answer = step.act(spec, answer.memo)
    raise AssertionError(f"it does not end: {answer}")


def test_a_gpu_is_split_changed_and_made_whole_again(smi: FakeSmi) -> None:
    smi.can_be_split()
    answer = brought(smi, "3g.20gb", "1g.5gb")
    assert isinstance(answer, Ready), answer
    assert (answer.rediscover, answer.gone) == (True, ())
    assert sorted(smi.profiles()) == ["1g.5gb", "3g.20gb"]
    assert brought(smi, "1g.5gb", "3g.20gb") == Ready(log="The MIG layout is 1g.5gb, 3g.20gb."), "in any order"
    answer = brought(smi, "1g.5gb", "1g.5gb")
    assert answer.gone == (f"7/{captured.GPU}/mig-7-0", f"7/{captured.GPU}/mig-8-0")
    assert smi.profiles() == ["1g.5gb", "1g.5gb"]
    assert (smi.state / "asked").read_text().strip() == captured.GPU, "other GPUs of the host are left alone"
    answer = brought(smi)
    assert isinstance(answer, Ready)
    assert (smi.read()["mig"], smi.profiles()) == ("Disabled", [])


def test_a_layout_that_the_gpu_does_not_offer_is_refused_with_those_that_it_has(smi: FakeSmi) -> None:
    smi.can_be_split()
    answer = brought(smi, "1g.10gb", "7g.80gb")
    assert isinstance(answer, Failed)
    assert answer.message == (
        f"{captured.GPU} does not offer the MIG profiles 1g.10gb, 7g.80gb. It offers 1g.5gb, 1g.5gb+me, 3g.20gb. Its "
        "layout is off again, as before."
    )
    assert smi.read()["mig"] == "Disabled"
    smi.can_be_split("3g.20gb")
    answer = brought(smi, "2g.10gb")
    assert isinstance(answer, Failed)
    assert "Its layout is 3g.20gb again, as before." in answer.message
    assert smi.profiles() == ["3g.20gb"]


def test_slices_that_do_not_fit_leave_the_layout_as_it_was(smi: FakeSmi) -> None:
    smi.can_be_split("3g.20gb", "1g.5gb")
    smi.set(most="2")
    answer = brought(smi, "1g.5gb", "1g.5gb", "1g.5gb")
    assert isinstance(answer, Failed)
    assert "nvidia-smi said: Unable to create a GPU instance: Insufficient Resources" in answer.message
    assert answer.message.endswith("Its layout is 1g.5gb, 3g.20gb again, as before.")
    assert sorted(smi.profiles()) == ["1g.5gb", "3g.20gb"]


def test_a_gpu_that_is_in_use_is_left_alone(smi: FakeSmi) -> None:
    smi.can_be_split("3g.20gb")
    smi.set(processes=PROCESS)
    answer = brought(smi)
    assert isinstance(answer, Failed)
    assert f"1 processes compute on {captured.GPU}" in answer.message
    smi.set(processes="", in_use="")
    answer = brought(smi)
    assert isinstance(answer, Failed)
    assert "In use by another client" in answer.message
    assert smi.profiles() == ["3g.20gb"]


def test_a_mode_that_needs_a_reset_gets_one(smi: FakeSmi) -> None:
    smi.can_be_split()
    smi.set(needs_reset="")
    assert isinstance(brought(smi, "1g.5gb"), Ready)
    assert smi.read()["resets"] == "reset"
    assert smi.profiles() == ["1g.5gb"]


def test_a_mode_that_needs_a_restart_asks_for_maintenance_of_the_host(smi: FakeSmi) -> None:
    smi.can_be_split()
    smi.set(needs_reboot="")
    answer = brought(smi, "1g.5gb")
    assert isinstance(answer, Need)
    assert answer.maintenance is not None
    assert (answer.maintenance.relation, answer.maintenance.action) == ("parent", "alone")
    memo = {"slices": [], "profiles": [], "enabled": False, "changed": True, "reset": "in use"}
    alone = {"granted": ["parent:alone"], "memo": memo}
    hold = brought(smi, "1g.5gb", **alone)
    assert isinstance(hold, Hold)
    assert "Restart the host of gpu" in hold.what
    no = brought(smi, "1g.5gb", **alone, resolution=Resolution(yes=False, text="next week"))
    assert isinstance(no, Failed)
    assert no.message.endswith("is not to be restarted: next week")
    (smi.state / "needs_reboot").unlink()
    smi.set(mig="Enabled")
    assert isinstance(brought(smi, "1g.5gb", **alone, resolution=Resolution(yes=True)), Ready)


def test_a_gpu_without_mig_is_refused_if_it_is_to_be_split(smi: FakeSmi) -> None:
    answer = brought(smi, "1g.5gb")
    assert isinstance(answer, Failed)
    assert answer.message == f"{captured.GPU} has no MIG mode, so it cannot be split."
    assert brought(smi) == Ready()
