"""A GPU is as before after its lease, or serves no one else: with a program that stands for nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.accelerators.kind import Accelerators
from blueprints.accelerators.nvidia import changed
from blueprints.answers import Failed, Wait
from blueprints.specs import HostView
from drydock.demo import captured
from drydock_agent.xml import parse
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.accelerators.fake_smi import PROCESS, FakeSmi
from tests.agent import captured as captures
from tests.blueprints import host_peers as peers

KIND = Accelerators()
BEFORE = {"compute_mode": "Default", "power_limit_watts": 250, "memory_used_mib": 2}


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    peers.needs_root()
    return FakeSmi(tmp_path / "tools")


def spec(smi: FakeSmi, *, before: Any = BEFORE, id: str = captured.GPU, **config: Any) -> Any:
    """What a step of cleaning gets, as far as it reads it."""
    whole = captured.GPU if "/" in id else ""
    known = {"id": id, "part_of": whole, "class": "gpu_slice" if whole else "gpu", "vendor": "10de", "captured": True}
    host = HostView(id=7, name="rack-7", blueprint="racks", connect=lambda: transport_to(ROOT))
    resource = SimpleNamespace(name=f"gpu {id}", facts={"device": known}, host=lambda: host)
    lease = SimpleNamespace(facts={"before": before} if before else {})
    found = KIND.Config.model_validate({"captured": "/nowhere", "tools": str(smi.folder), **config})
    return SimpleNamespace(phase="clean", resource=resource, lease=lease, deadline=30.0, config=found)


ROOT = LocalEndpoint(uid=0, gid=0, home="/")


def cleaned(smi: FakeSmi, **given: Any) -> Any:
    """The answer that ends the plan. Waits are not slept."""
    for step in KIND.clean():
        answer: Any = Wait()
        while isinstance(answer, Wait):
            answer = step.act(spec(smi, **given), answer.memo)
        if isinstance(answer, Failed):
            return answer
    return answer


def test_settings_are_as_before_the_lease_or_as_declared(smi: FakeSmi) -> None:
    for declared, wanted in (
        ({}, ("Default", "250.00")),
        ({"compute_mode": "Exclusive_Process", "power_limit_watts": 200}, ("Exclusive_Process", "200.00")),
    ):
        smi.set(compute_mode="Prohibited", power="100.00", locked="1410")
        assert not isinstance(cleaned(smi, **declared), Failed)
        assert (smi.read()["compute_mode"], smi.read()["power"]) == wanted
        assert "locked" not in smi.read()
    smi.set(locked="1410")
    cleaned(smi, clocks="keep", compute_mode="Exclusive_Process", power_limit_watts=200)
    assert "locked" in smi.read()


def test_a_setting_that_stays_is_a_failure_that_names_it(smi: FakeSmi) -> None:
    smi.set(power="100.00")
    program = smi.folder / "nvidia-smi"
    program.write_text(program.read_text().replace('-pl) echo "$2.00" >power', "-pl) :"))
    answer = cleaned(smi)
    assert (answer.code, answer.message) == ("settings", f"gpu {captured.GPU}: power limit watts is not 250.")


def test_memory_that_stays_in_use_is_ended_by_a_reset(smi: FakeSmi) -> None:
    smi.set(used="9000")
    assert not isinstance(cleaned(smi), Failed)
    assert smi.read()["resets"] == "reset"
    assert not isinstance(cleaned(smi), Failed)
    assert smi.read()["resets"] == "reset", "no reset without need"
    cleaned(smi, reset="always")
    assert smi.read()["resets"].split() == ["reset"] * 2


@pytest.mark.parametrize(
    ("state", "config", "code", "message"),
    [
        ({"used": "9000"}, {"reset": "never"}, "not_idle", "9000 MiB of memory are in use; before the lease it was 2"),
        ({"used": "9000", "in_use": ""}, {}, "not_reset", "The device cannot be reset: The following GPUs"),
        ({"processes": PROCESS, "in_use": ""}, {}, "not_reset", "1 processes compute on the GPU."),
        ({"in_use": ""}, {"reset": "always"}, "not_reset", "The device cannot be reset"),
    ],
)
def test_a_gpu_that_cannot_be_cleaned_says_why(smi: FakeSmi, state: Any, config: Any, code: str, message: str) -> None:
    smi.set(**state)
    answer = cleaned(smi, **config)
    assert (answer.code, message in answer.message) == (code, True), answer


def test_a_slice_is_never_reset_with_the_gpu_of_others(smi: FakeSmi) -> None:
    template = smi.state / "template"
    slices = (
        "<mig_devices><mig_device><index>0</index><gpu_instance_id>7</gpu_instance_id><compute_instance_id>0"
        "</compute_instance_id><fb_memory_usage><total>19968 MiB</total><used>@used@ MiB</used></fb_memory_usage>"
        "</mig_device></mig_devices><processes>"
    )
    whole = template.read_text().replace("<mig_devices>@slices@</mig_devices>", "")
    template.write_text(whole.replace("<processes>", slices))
    smi.set(used="9000", compute_mode="Prohibited")
    answer = cleaned(smi, id=f"{captured.GPU}/mig-7-0")
    assert (answer.code, "would end its other slices" in answer.message) == ("not_idle", True)
    assert "resets" not in smi.read()
    assert smi.read()["compute_mode"] == "Prohibited", "settings belong to the whole GPU"
    smi.set(used="2")
    assert not isinstance(cleaned(smi, id=f"{captured.GPU}/mig-7-0"), Failed)


@pytest.mark.parametrize(
    "forged",
    [
        {"id": f"{captured.GPU},0000:07:00.0"}, {"id": "0"}, {"id": "all"}, {"id": f" {captured.GPU}"},
        {"id": f"{captured.GPU}/mig-7-0"}, {"id": captured.GPU.replace(":", "", 1)},
        {"id": f"{captured.GPU}/mig-7-0", "class": "gpu_slice", "part_of": "0000:07:00.0"},
        {"id": f"{captured.GPU},0000:07:00.0/mig-7-0", "class": "gpu_slice", "part_of": f"{captured.GPU},0000:07:00.0"},
    ],
    ids=str,
)  # fmt: skip
def test_an_id_that_does_not_name_one_gpu_reaches_no_nvidia_smi(smi: FakeSmi, forged: dict[str, str]) -> None:
    smi.set(used="9000", compute_mode="Prohibited")
    made = spec(smi, reset="always")
    made.resource.facts["device"] |= forged
    for step in KIND.clean():
        answer = step.act(made, {"looks": 99})
        assert not isinstance(answer, Failed) or "does not name one GPU by its PCI address" in answer.message
    assert (smi.read()["compute_mode"], "resets" in smi.read()) == ("Prohibited", False)
    assert not (smi.state / "asked").exists()


def test_a_gpu_that_is_said_to_be_part_of_another_one_is_reset_alone(smi: FakeSmi) -> None:
    smi.set(used="9000")
    made = spec(smi)
    made.resource.facts["device"] |= {"part_of": "0000:07:00.0"}
    KIND.clean()[2].act(made, {"looks": 99})
    assert ((smi.state / "asked").read_text().strip(), smi.read()["resets"]) == (captured.GPU, "reset")


def test_without_a_state_from_before_the_lease_nothing_is_changed(smi: FakeSmi) -> None:
    smi.set(compute_mode="Prohibited", used="9000")
    assert not isinstance(cleaned(smi, before=None), Failed)
    assert smi.read()["compute_mode"] == "Prohibited"


def test_a_tool_that_is_gone_is_no_clean_gpu(smi: FakeSmi) -> None:
    (smi.folder / "nvidia-smi").unlink()
    assert cleaned(smi).code == "no_tool"


def test_only_settings_that_were_known_before_are_compared() -> None:
    assert changed({"compute_mode": "Default", "memory_used_mib": 2}, {"memory_used_mib": 99}) == {
        "compute_mode": "Default"
    }
    assert changed({}, {"compute_mode": "Prohibited"}) == {}


@captures.needed
def test_the_program_prints_elements_that_captures_have(smi: FakeSmi) -> None:
    """The fake is a subset of what real tools print, with texts of the same form."""
    ours = parse((smi.state / "template").read_text(), "nvidia_smi_log")
    real = [parse(path.read_text(), "nvidia_smi_log") for path in captures.nvidia_smi()]
    for element in ours.iter():
        known = [one for tree in real for one in tree.iter(element.tag)]
        # Named so from driver 535 on; the captures are older and have power_readings/power_limit.
        assert known or element.tag in ("gpu_power_readings", "current_power_limit"), element.tag
    modes = {one.text for tree in real for one in tree.iter("compute_mode")}
    assert modes == {"Default"}
