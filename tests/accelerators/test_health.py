"""The health of accelerators: what is wrong now, and the errors since a reference. Errors are hand-written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.accelerators import actions, cleaning, drafts, health, nvidia, xids
from blueprints.accelerators.config import Config
from blueprints.accelerators.kind import Accelerators
from blueprints.answers import Failed, Ready, Wait
from blueprints.hostshell import HostShell
from blueprints.specs import HostView
from drydock.demo import captured
from drydock_agent import Device, Hardware, Readiness
from drydock_agent.drivers.nvidia import NO_ACTION
from drydock_agent.facts import Health as Condition
from drydock_agent.facts import Host, LoggedError
from drydock_agent.kernel_log import RESET
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.accelerators.fake_smi import FakeSmi
from tests.blueprints import host_peers as peers

KIND = Accelerators()
GPU = captured.GPU
ROOT = LocalEndpoint(uid=0, gid=0, home="/")


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


def host(boot: str = "one", *, counters: Mapping[str, int] | None = None, errors: tuple[LoggedError, ...] = (),
         **more: Any) -> Hardware:  # fmt: skip
    """The hardware of a host with one GPU and a slice of it, in this boot."""
    whole = Device(id=GPU, device_class="gpu", counters=counters or {}, errors=errors, **more)
    part = Device(id=f"{GPU}/mig-5-0", part_of=GPU, device_class="gpu_slice")
    return Hardware(host=Host(attributes={"boot_id": boot}), devices=(whole, part))


def xid(number: int, at: float = 100.0, *, part: str = "") -> LoggedError:
    return LoggedError(code=f"xid {number}", at=at, part=part)


def said(found: Hardware, before: Hardware, id: str = GPU) -> tuple[str, str]:
    """The state of a device, and the reason, from its errors since another report."""
    now = health.judged(health.since(found, id, health.reference(before, id)))
    return now.state, now.reason


@pytest.mark.parametrize(
    ("counters", "before", "state", "reason"),
    [
        ({}, {}, "ok", ""),
        ({"pcie_fatal": 3}, {"pcie_fatal": 3}, "ok", ""),
        ({"pcie_fatal": 3}, {"pcie_fatal": 1}, "failed", "2 fatal PCIe errors."),
        ({"pcie_nonfatal": 1}, {}, "degraded", "1 uncorrectable PCIe errors."),
        ({"pcie_nonfatal": 1}, {"pcie_nonfatal": 9}, "degraded", "1 uncorrectable PCIe errors."),
        ({"pcie_correctable": 100_000}, {}, "ok", ""),
        ({"media_errors": 5}, {"media_errors": 2}, "degraded", "3 errors of the disk's media."),
        ({"remapped_rows": 5, "ecc_correctable": 7}, {}, "ok", ""),
        ({"pcie_fatal": 1, "pcie_nonfatal": 1}, {}, "failed", "1 fatal PCIe errors."),
    ],
)
def test_only_a_rise_of_a_counter_counts(counters, before, state, reason) -> None:
    assert said(host(counters=counters), host(counters=before)) == (state, reason)


def test_a_restart_begins_the_count_again_and_a_disk_counts_for_life() -> None:
    old = {"pcie_nonfatal": 2, "media_errors": 4}
    assert said(host("two"), host(counters=old, errors=(xid(79),))) == ("ok", "")
    assert said(host("two", counters={"pcie_nonfatal": 2}), host(counters=old))[0] == "degraded"
    assert said(host("two", counters={"media_errors": 4}), host(counters=old)) == ("ok", "")


@pytest.mark.parametrize(
    ("number", "state", "repair"),
    [
        (13, "ok", ""), (31, "ok", ""), (43, "ok", ""), (45, "ok", ""), (63, "ok", ""), (94, "ok", ""), (154, "ok", ""),
        (48, "failed", "reset"), (64, "failed", "reset"), (79, "failed", "restart"), (95, "failed", "reset"),
        (119, "failed", "reset"), (74, "degraded", ""), (92, "degraded", ""), (150, "degraded", ""),
        (9999, "degraded", ""),
    ],
)  # fmt: skip
def test_an_xid_says_what_nvidia_recommends(number, state, repair) -> None:
    found, sentence, needed = xids.verdict(f"xid {number}")
    assert (found, needed) == (state, repair)
    assert bool(sentence) == (state != "ok")
    assert (f"(Xid {number})" in sentence) == (state != "ok")


def test_an_old_xid_does_not_count_again_and_a_later_one_of_its_code_does() -> None:
    old = host(errors=(xid(48, 50.0),))
    assert said(old, old) == ("ok", "")
    assert said(host(errors=(xid(48, 51.0),)), old) == (
        "failed",
        "The GPU found an uncorrectable memory error. (Xid 48)",
    )
    assert said(host(), old) == ("ok", ""), "the kernel log has forgotten it"
    assert said(host("two", errors=(xid(48, 20.0),)), old)[0] == "failed", "it was logged after the restart"


def test_a_gpu_whose_driver_needs_nothing_is_degraded_at_most() -> None:
    found = host(errors=(xid(119),), attributes={"recovery_action": NO_ACTION})
    state, reason = said(found, host())
    assert (state, "The driver reports that nothing has to be done." in reason) == ("degraded", True)


def test_a_slice_has_the_errors_of_its_gpu_but_not_those_of_its_neighbours() -> None:
    part = f"{GPU}/mig-5-0"
    for error, state in ((xid(79), "failed"), (xid(95, part="mig-5"), "failed"), (xid(95, part="mig-7"), "ok"),
                         (xid(95, part="mig-50"), "ok")):  # fmt: skip
        assert said(host(errors=(error,)), host(), part)[0] == state, error
        assert said(host(errors=(error,)), host())[0] == "failed", "the GPU itself"


def test_conditions_count_whatever_happened_before_and_the_worst_one_decides() -> None:
    found = host(health=Condition.DEGRADED, problems=("The PCIe link has 8 lanes; 16 are possible.",))
    now = health.judged(health.conditions(found, f"{GPU}/mig-5-0"))
    assert (now.state, now.reason) == ("degraded", "The PCIe link has 8 lanes; 16 are possible.")
    assert health.judged(health.conditions(host(health=Condition.OK), GPU)).state == "ok"
    assert (
        health.judged(health.conditions(host(health=Condition.FAILED), GPU)).reason
        == f"{GPU} reports that it is failed."
    )


def test_a_report_says_what_is_wrong_now_and_nothing_where_the_driver_knows_nothing() -> None:
    def drafted(**more: Any) -> Any:
        found = host(readiness=Readiness.READY, role="lease_candidate", **more)
        return drafts.drafts(Config(classes=("gpu",)), 7, found)[0].health

    assert drafted() is None
    assert drafted(health=Condition.OK).state == "ok"
    degraded = drafted(health=Condition.DEGRADED, problems=("A page waits.",))
    assert (degraded.state, degraded.reason) == ("degraded", "A page waits.")
    assert drafted(counters={"pcie_fatal": 1}, errors=(xid(79),)) is None, "a report cannot compare"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    peers.needs_root()
    captured.write(tmp_path / "captured")
    return tmp_path / "captured"


LINE = "[  {at:.6f}] NVRM: Xid (PCI:{gpu}): {number}\n"


def log(tree: Path, *numbers: int, at: float = 100.0, end: str = "") -> None:
    text = "".join(LINE.format(at=at, gpu=GPU.removesuffix(".0"), number=number) for number in numbers)
    (tree / "drydock-tools/kernel-log.out").write_text(text + end)


def spec(tree: Path, *, errors: Any = None, leases: tuple[Any, ...] = (), facts: Any = None, lease: Any = None,
         **config: Any) -> Any:  # fmt: skip
    """What a step gets, as far as it reads it."""
    known: dict[str, Any] = {
        "id": GPU, "class": "gpu", "vendor": "10de", "part_of": "", "nodes": [], "captured": True,
        "identities": {"uuid": captured.UUID},
    }  # fmt: skip
    given = {"device": known} | ({"errors": errors} if errors is not None else {}) | (facts or {})
    there = HostView(id=7, name="rack-7", blueprint="racks", connect=lambda: transport_to(ROOT))
    resource = SimpleNamespace(name=f"gpu {GPU}", facts=given, host=lambda: there, lease_facts=lambda: leases)
    found = KIND.Config.model_validate({"captured": str(tree), **config})
    return SimpleNamespace(resource=resource, deadline=20.0, config=found, lease=SimpleNamespace(facts=lease or {}))


def checked(tree: Path, **given: Any) -> Any:
    return actions.check_health(spec(tree, **given), {})


@pytest.fixture
def begun(tree: Path) -> Any:
    """The errors that a lease notes when it begins."""
    answer = actions.begin(spec(tree), {})
    assert isinstance(answer, Ready)
    return answer.facts["errors"]


def test_the_first_check_takes_what_it_finds_as_the_reference(tree: Path) -> None:
    log(tree, 48)
    answer = checked(tree)
    assert (answer.health.state, list(answer.facts["errors"]["errors"])) == ("ok", [f"{GPU} xid 48 "])
    assert checked(tree, errors=answer.facts["errors"]).health.state == "ok"
    assert "errors" not in checked(tree, errors=answer.facts["errors"]).facts


def test_an_error_of_its_time_breaks_a_lease_or_is_told_to_its_owner(tree: Path, begun: Any) -> None:
    log(tree, 13)
    assert checked(tree, errors=begun, leases=({"errors": begun},)).health.state == "ok", "the fault of the application"
    log(tree, 13, 48)
    answer = checked(tree, errors=begun, leases=({"errors": begun},))
    assert (answer.health.state, answer.health.reason) == (
        "failed",
        "The GPU found an uncorrectable memory error. (Xid 48)",
    )
    answer = checked(tree, errors=begun, leases=({"errors": begun},), on_failure="tell")
    assert (answer.health.state, answer.facts["leaving"]) == ("degraded", answer.health.reason)
    assert checked(tree, errors=begun, on_failure="tell").health.state == "failed", "no lease holds it any more"


def test_an_error_before_its_beginning_does_not_end_a_lease(tree: Path, begun: Any) -> None:
    log(tree, 48)
    later = health.reference(host(errors=(xid(48),)), GPU) | {"boot": ""}
    answer = checked(tree, errors=begun, leases=({"errors": later},))
    assert (answer.health.state, "leaving" in answer.facts) == ("degraded", False)


def test_an_error_before_the_first_check_of_a_leased_device_is_not_lost(tree: Path, begun: Any) -> None:
    log(tree, 48)
    assert checked(tree, leases=({"errors": begun},)).health.state == "failed"


def test_a_device_returns_after_its_repair_its_reset_or_a_restart(tree: Path, begun: Any) -> None:
    log(tree, 48)
    assert checked(tree, errors=begun).health.state == "failed"
    log(tree, 48, end=f"[  101.000000] {RESET} {GPU}\n")
    assert checked(tree, errors=begun).health.state == "ok"
    log(tree, 48)
    repaired = actions.forget_errors(spec(tree, errors=begun), {})
    assert isinstance(repaired, Ready)
    assert checked(tree, errors=repaired.facts["errors"]).health.state == "ok"
    (tree / "drydock-tools/kernel-log.out").unlink()
    boot = tree / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("5b1e9f8a-7a35-4a56-9a36-3a0a7dd1c1f2\n")
    assert checked(tree, errors=begun).health.state == "ok"


def test_a_lease_does_not_begin_on_a_device_that_has_failed_since_its_last_check(tree: Path, begun: Any) -> None:
    log(tree, 79)
    answer = actions.begin(spec(tree, errors=begun), {})
    assert isinstance(answer, Failed)
    assert (answer.scope, "fallen off the bus" in answer.message) == ("offer", True)
    assert isinstance(actions.begin(spec(tree), {}), Ready), "without a reference nothing is known about the time"


def test_an_fpga_that_an_operator_left_half_programmed_serves_no_lease(tree: Path) -> None:
    answer = checked(tree, facts={"programming": "undefined"})
    assert (answer.health.state, answer.health.reason) == (
        "failed", "The FPGA was left half-programmed. Program it again.",
    )  # fmt: skip


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    peers.needs_root()
    return FakeSmi(tmp_path / "tools")


def cleaned(tree: Path, smi: FakeSmi, begun: Any, **given: Any) -> Any:
    answer: Any = Wait()
    for _ in range(3):
        answer = cleaning.repair(spec(tree, lease={"errors": begun}, tools=str(smi.folder), **given), answer.memo)
        if not isinstance(answer, Wait):
            break
    return answer


def test_a_gpu_is_reset_after_a_lease_if_its_errors_need_that(tree: Path, smi: FakeSmi, begun: Any) -> None:
    for number in (13, 74):
        log(tree, number)
        assert cleaned(tree, smi, begun) == Ready()
        assert "resets" not in smi.read()
    log(tree, 95)
    assert cleaned(tree, smi, begun) == Ready()
    assert smi.read()["resets"] == "reset"


def test_a_gpu_that_a_reset_does_not_repair_is_left_to_an_operator(tree: Path, smi: FakeSmi, begun: Any) -> None:
    log(tree, 79, 95)
    answer = cleaned(tree, smi, begun)
    assert (answer.health.state, "fallen off the bus" in answer.health.reason) == ("failed", True)
    assert "resets" not in smi.read()
    log(tree, 95)
    assert cleaned(tree, smi, begun, reset="never").health.state == "failed"
    smi.set(in_use="yes")
    answer = cleaned(tree, smi, begun)
    assert (answer.health.state, "in use by another client" in answer.health.reason) == ("failed", True)


def test_a_reset_is_noted_in_the_kernel_log_of_a_real_host(smi: FakeSmi, tmp_path: Path, monkeypatch) -> None:
    noted = tmp_path / "kmsg"
    monkeypatch.setattr(nvidia, "_KERNEL_LOG", str(noted))
    known = {"id": GPU, "part_of": "", "captured": False}
    assert nvidia.Gpu(HostShell(transport_to(ROOT), 20.0), str(smi.folder), known).reset() == ""
    assert noted.read_text() == f"{RESET} {GPU}\n"
    noted.unlink()
    smi.set(in_use="yes")
    assert "in use" in nvidia.Gpu(HostShell(transport_to(ROOT), 20.0), str(smi.folder), known).reset()
    assert not noted.exists()
