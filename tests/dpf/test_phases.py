"""What the status of a DPU means."""

from __future__ import annotations

import json

import pytest

from blueprints.dpf.phases import BY_HAND, HOLD, PERCENT, REBOOT, Blame, Task, blame, progress, progress_in, reported
from tests.dpf.objects import condition, made

WAITS = [condition("Rebooted", "False", BY_HAND)]
ASKED = {"annotations": {REBOOT: ""}}


def dpu(phase: str, *conditions: dict[str, str], status=None, **meta):
    return made(
        "DPU", "h1-0000-04-00", status={"phase": phase, "conditions": list(conditions), **(status or {})}, **meta
    )


@pytest.mark.parametrize(
    ("phase", "task"),
    [("Ready", Task.DONE), ("Error", Task.FAILED), ("OS Installing", Task.WAIT), ("Brand New Phase", Task.WAIT)],
)
def test_each_phase_has_a_task_and_an_unknown_one_is_shown_by_its_name(phase, task):
    now = progress(dpu(phase), None, ())
    assert now.task is task
    assert phase in now.sentence


def test_no_dpu_yet_is_waited_for():
    assert progress(None, None, ()).task is Task.WAIT


def test_a_dpu_that_is_being_deleted_is_not_ready_whatever_its_status_says():
    now = progress(dpu("Ready", deletionTimestamp="2026-01-01T00:00:00Z"), None, ())
    assert (now.task, now.phase) == (Task.WAIT, "Deleting")


def test_ready_of_an_older_generation_is_not_ready():
    assert progress(dpu("Ready", status={"observedGeneration": 0}), None, ()).task is Task.WAIT


def test_the_sentence_has_reason_and_message_of_a_false_condition():
    now = progress(dpu("OS Installing", condition("OSInstalled", "False", "Installing", "41 %")), None, ())
    assert "OSInstalled: Installing 41 %." in now.sentence


@pytest.mark.parametrize("where", ["dpu", "maintenance"])
def test_a_hold_is_seen_wherever_it_stands_and_only_until_it_is_false(where):
    def seen(value: str) -> Task:
        meta = {"annotations": {HOLD: value}}
        if where == "dpu":
            return progress(dpu("Node Effect", **meta), None, ()).task
        return progress(dpu("Node Effect"), None, (made("DPUNodeMaintenance", "h1-hold", **meta),)).task

    assert seen("true") is Task.HOLD
    assert seen("false") is Task.WAIT


def test_a_reboot_is_due_only_when_the_node_asks_for_it_and_the_dpu_waits_for_it():
    pending = {"rebootStatus": {"phase": "Pending", "reason": BY_HAND}}
    asking, silent = made("DPUNode", "h1", **ASKED), made("DPUNode", "h1")
    assert progress(dpu("Rebooting", status=pending), asking, ()).task is Task.REBOOT
    assert progress(dpu("Rebooting", status=pending), silent, ()).task is Task.WAIT
    done = {"rebootStatus": {"phase": "Succeeded", "reason": ""}}
    assert progress(dpu("Rebooting", status=done), asking, ()).task is Task.WAIT


def test_a_server_without_nodes_of_dpus_asks_by_the_condition_alone():
    assert progress(dpu("Rebooting", *WAITS), None, ()).task is Task.REBOOT
    assert progress(dpu("Rebooting"), None, ()).task is Task.WAIT


READ = ("Pending", "Node Effect", "Ready")
"""Phases in which a step must look at more than the DPU, or is over."""


@pytest.mark.parametrize("phase", [one for one in PERCENT if one not in READ])
def test_a_watch_reports_the_progress_that_a_read_of_the_dpu_shows(phase):
    one = dpu(phase, condition("OSInstalled", "False", "Installing", "41 %"))
    assert progress_in(reported(one)) == progress(one, None, ())


@pytest.mark.parametrize(
    "one",
    [
        *map(dpu, (*READ, "Error", "Brand New Phase")),
        dpu("OS Installing", deletionTimestamp="2026-01-01T00:00:00Z"),
        dpu("OS Installing", annotations={HOLD: "true"}),
        dpu("Rebooting", *WAITS),
        dpu("Checking Host Reboot Required", *WAITS),
        dpu("Rebooting", status={"rebootStatus": {"phase": "Pending", "reason": BY_HAND}}),
    ],
    ids=lambda one: one.phase,
)
def test_no_progress_is_reported_of_a_dpu_that_may_need_us(one):
    assert reported(one) is None
    assert progress_in(None) is None


def test_ready_of_an_older_generation_is_reported():
    assert progress_in(reported(dpu("Ready", status={"observedGeneration": 0}))).task is Task.WAIT


def test_a_report_is_short_whatever_a_status_says():
    wrong = (condition(f"Type{number}", "False", "Installing", "x" * 1_000_000) for number in range(100))
    assert len(json.dumps(reported(dpu("OS Installing", *wrong)))) < 4096


NAMES = ("dd-abc-1-r3", "hbn")


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        (("BFBReady", "BFBNotReady", "BFB dd-abc-1-r3 is Error"), Blame.IMAGE),
        (("BFBReady", "ClusterAllocationFailed", "no DPUCluster is Ready and has room"), Blame.OTHER),
        (("Pending", "DPUFlavorNotFound", "DPUFlavor hbn not found"), Blame.IMAGE),
        (("DPUConfig", "Failed", "DPUFlavor 'hbn' cannot be rendered"), Blame.IMAGE),
        (("DPUConfig", "Failed", "DPUFlavor hbn-2 cannot be rendered"), Blame.CARD),
        (("OSInstalled", "FailToInstallOS", "Invalid FW Package: not for this board"), Blame.IMAGE),
        (("OSInstalled", "FailToInstallOS", "cannot push /bfb/dpf-dd-abc-1-r3.bfb"), Blame.CARD),
        (("OSInstalled", "INTEGRITY_FAIL", ""), Blame.CARD),
        (("NodeEffectReady", "DrainFailed", ""), Blame.OTHER),
        (("Initialized", "DPUDeviceNotFound", "gone"), Blame.OTHER),
    ],
)
def test_a_failure_is_blamed_on_what_its_conditions_name(said, blamed):
    type_, reason, message = said
    assert blame(dpu("Error", condition(type_, "False", reason, message)), "Error", NAMES) is blamed


@pytest.mark.parametrize(
    ("phase", "blamed"),
    [("Pending", Blame.OTHER), ("Rebooting", Blame.OTHER), ("Deleting", Blame.OTHER), ("OS Installing", Blame.CARD),
     ("DPU Config", Blame.CARD), ("Brand New Phase", Blame.CARD)],
)  # fmt: skip
def test_a_phase_that_lasts_too_long_is_blamed_on_the_card_once_dpf_has_reached_it(phase, blamed):
    assert blame(dpu(phase), phase, NAMES) is blamed


def test_a_phase_that_waits_for_the_image_is_blamed_on_the_image():
    waits = condition("BFBReady", "False", "BFBNotReady", "BFB dd-abc-1-r3 is Downloading")
    assert blame(dpu("Pending", waits), "Pending", NAMES) is Blame.IMAGE
