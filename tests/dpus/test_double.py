"""The double of DPF's controllers keeps to what is known of DPF, on real API servers with the CRDs of two versions."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from kubernetes.client.exceptions import ApiException

from tests.dpus.api import (
    BFB,
    CLUSTER,
    DEVICE,
    DPU,
    DPU_NODE,
    FLAVOR,
    MAINTENANCE,
    MANAGER,
    NODE,
    POD,
    SECRET,
    SERVICE,
    SET,
    FieldsPruned,
    Kind,
    annotations_of,
    labels_of,
)
from tests.dpus.clusterlinks import secret_of
from tests.dpus.conditions import find, is_true
from tests.dpus.generations import ERROR, HOLD, INSTALLING, READY, REBOOT, REBOOTING, V24_10, V26_4, WAITING
from tests.dpus.images import Image
from tests.dpus.user import URL

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SERIAL, OTHER = "MT2400X00001", "MT2400X00002"


def test_a_dpu_of_26_4_goes_through_every_phase_to_ready(new):
    card = new.double.world.host("h1", [SERIAL]).cards[0]

    seen = new.build(card)

    documented = [one.name for one in V26_4.phases if one.name != "Host Network Configuration"]
    assert seen == documented
    dpu = new.dpu()
    assert all(is_true(dpu, one) for one in ("Initialized", "BFBReady", "OSInstalled", "Rebooted", "Ready"))
    assert dpu["status"]["observedGeneration"] == dpu["metadata"]["generation"]
    assert (card.imaged, card.running) == ([URL], URL)
    assert new.members() == [dpu["metadata"]["name"]]


def test_a_dpu_of_24_10_goes_through_every_phase_to_ready(old):
    card = old.double.world.host("h1", [SERIAL]).cards[0]

    seen = old.build(card)

    assert seen == [one.name for one in V24_10.phases]
    assert is_true(old.dpu(), "Rebooted")
    assert old.members() == [old.dpu()["metadata"]["name"]]
    assert old.all(SET)[0]["status"]["dpuStatistics"] == {READY: 1}


def test_deleting_a_set_leaves_nothing_of_it_but_the_running_system(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.build(card)
    assert labels_of(dpf.dpu())["drydock"] == "lease-1"

    dpf.api.delete(SET, "lease-1")
    dpf.double.settle()

    assert dpf.left() == []
    assert card.running == URL


def test_a_hold_waits_for_the_annotation(new):
    host = new.double.world.host("h1", [SERIAL])
    new.prepare()
    new.dpu_set(host.cards[0], effect={"hold": True})
    new.double.settle()
    [maintenance] = new.all(MAINTENANCE)
    assert maintenance["metadata"]["name"] == f"{host.name}-hold"
    assert annotations_of(maintenance)[HOLD] == "true"
    assert new.phase() == "Node Effect"
    assert find(new.dpu()["status"], "NodeEffectReady")["reason"] == "NodeEffectProcessing"
    assert not is_true(new.api.get(DPU_NODE, host.name), "Ready")

    new.release_hold()
    new.double.settle()

    assert new.phase() == REBOOTING
    host.reboot()
    new.confirm_reboot(host)
    new.double.settle()
    assert new.phase() == READY
    assert new.all(MAINTENANCE) == []


def test_an_external_reboot_is_asked_for_before_the_dpu_is_told(new):
    host = new.double.world.host("h1", [SERIAL])
    new.prepare()
    new.dpu_set(host.cards[0])
    new.until(REBOOTING)
    while not new.is_asked_to_reboot(host):
        assert find(new.dpu()["status"], "Rebooted") is None
        new.double.tick()
    new.double.settle()

    assert find(new.dpu()["status"], "Rebooted")["reason"] == WAITING
    assert is_true(new.api.get(DPU_NODE, host.name), "DPUNodeRebootInProgress")
    host.reboot()
    new.double.settle()
    assert new.phase() == REBOOTING  # until the annotation is removed
    new.confirm_reboot(host)
    new.double.settle()
    assert new.phase() == READY


def test_a_host_with_two_cards_is_rebooted_once_for_both(new):
    host = new.double.world.host("h1", [SERIAL, OTHER])
    new.double.dwell[INSTALLING] = 3
    new.prepare()
    new.dpu_set(host.cards[0], "lease-1")
    new.double.tick(4)
    new.dpu_set(host.cards[1], "lease-2")
    new.double.settle()

    assert new.is_asked_to_reboot(host)
    assert {dpu["status"]["phase"] for dpu in new.all(DPU)} == {REBOOTING}
    host.reboot()
    new.confirm_reboot(host)
    new.double.settle()
    assert {dpu["status"]["phase"] for dpu in new.all(DPU)} == {READY}
    assert len(host.reboots) == 1


def test_dpfs_agent_reboots_a_host_of_kubernetes_by_itself(new):
    host = new.double.world.host("h1", [SERIAL], kubernetes=True, reboot="hostAgent")
    new.prepare()
    new.dpu_set(host.cards[0], effect={"drain": True})

    seen = new.until(READY)

    assert seen == [one.name for one in V26_4.phases]
    assert host.reboots == [MANAGER]
    assert not any(node["spec"].get("unschedulable") for node in new.double.world.nodes(new.api))


def test_24_10_reboots_by_itself_where_the_set_says_so(old):
    host = old.double.world.host("h1", [SERIAL])
    old.prepare()
    spec = old.spec(host.cards[0], {"drain": {"automaticNodeReboot": True}})
    old.api.create(SET, {"metadata": {"name": "lease-1"}, "spec": spec})

    old.until(READY)

    assert host.reboots == [MANAGER]


def test_a_deletion_during_the_installation_waits_for_its_end(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.double.dwell[INSTALLING] = 5
    dpf.prepare()
    dpf.dpu_set(card)
    dpf.until(INSTALLING)

    dpf.api.delete(SET, "lease-1")
    dpf.double.tick(2)
    assert dpf.phase() == INSTALLING

    dpf.double.settle()
    assert dpf.left() == []
    assert card.imaged == [URL]


# Images, clusters, sets


def test_an_image_that_does_not_exist_ends_in_error(dpf):
    dpf.api.create(BFB, {"metadata": {"name": "bundle"}, "spec": {"url": URL.replace("3.2.0", "9")}})
    dpf.double.images[URL] = Image(size=10, served=9)
    dpf.api.create(BFB, {"metadata": {"name": "short"}, "spec": {"url": URL}})

    dpf.double.settle()

    assert [bfb["status"]["phase"] for bfb in dpf.all(BFB)] == [ERROR, ERROR]
    if dpf.double.generation.devices:
        messages = [find(bfb["status"], "Downloaded")["message"] for bfb in dpf.all(BFB)]
        assert "404" in messages[0]
        assert messages[1] == "downloaded file size mismatch: expected 10 bytes, got 9 bytes"


def test_an_image_is_downloaded_once_and_tells_its_versions(new):
    new.api.create(BFB, {"metadata": {"name": "bundle"}, "spec": {"url": URL}})
    new.double.settle()
    new.double.settle()

    [bfb] = new.all(BFB)
    assert bfb["status"]["versions"]["doca"] == Image().doca
    assert new.double.downloads == [URL]
    new.api.delete(BFB, "bundle")
    new.double.settle()
    assert new.all(BFB) == []


def test_a_static_cluster_is_ready_once_its_secret_is_there(dpf):
    spec = {"type": "static", "kubeconfig": "mine"}
    if not dpf.double.generation.devices:
        spec["version"] = "v1.30.0"
    dpf.api.create(CLUSTER, {"metadata": {"name": "tenant"}, "spec": spec})
    dpf.double.settle()
    assert not is_true(dpf.all(CLUSTER)[0], READY)

    dpf.api.create(SECRET, secret_of("mine", "text"))
    dpf.double.settle()
    assert is_true(dpf.all(CLUSTER)[0], READY)


def test_a_full_cluster_takes_no_dpu(dpf):
    host = dpf.double.world.host("h1", [SERIAL])
    dpf.prepare()
    dpf.api.change(CLUSTER, "tenant", lambda body: body["spec"].update(maxNodes=1))
    other = dpf.double.world.host("h2", [OTHER])
    dpf.dpu_set(host.cards[0], "lease-1")
    dpf.double.settle()
    dpf.dpu_set(other.cards[0], "lease-2")
    dpf.double.settle()

    assert sorted(dpu["status"]["phase"] for dpu in dpf.all(DPU)) == ["Pending", REBOOTING]


def test_a_rolling_update_images_the_card_again(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    newer = URL.replace("3.2.0", "3.3.0")
    dpf.double.images[newer] = Image("3.3.0")
    dpf.build(card, strategy="RollingUpdate")
    before = dpf.dpu()["metadata"]["uid"]
    dpf.api.create(BFB, {"metadata": {"name": "newer"}, "spec": {"url": newer}})

    def update(body):
        body["spec"]["dpuTemplate"]["spec"]["bfb"]["name"] = "newer"

    dpf.api.change(SET, "lease-1", update)
    dpf.double.settle()

    assert dpf.dpu()["metadata"]["uid"] != before
    assert card.imaged == [URL, newer]


def test_labels_of_the_node_change_without_disruption(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.build(card, strategy="RollingUpdate")

    def update(body):
        body["spec"]["dpuTemplate"]["spec"]["cluster"]["nodeLabels"] = {"drydock": "yes", "more": "1"}

    dpf.api.change(SET, "lease-1", update)
    dpf.double.settle()

    [api] = dpf.double.state.links.apis
    assert labels_of(api.get(NODE, dpf.members()[0]))["more"] == "1"
    assert card.imaged == [URL]


def test_hosts_and_cards_may_be_registered_by_others(new):
    host = new.double.world.host("h1", [f" {SERIAL} "], register=False)
    new.api.create(DEVICE, {"metadata": {"name": "card-1"}, "spec": {"serialNumber": SERIAL}})
    spec = {"dpus": [{"name": "card-1"}], "nodeRebootMethod": {"external": {}}}
    new.api.create(DPU_NODE, {"metadata": {"name": "mine"}, "spec": spec})
    new.double.settle()

    device = new.api.get(DEVICE, "card-1")
    assert is_true(device, READY)
    assert labels_of(device)["provisioning.dpu.nvidia.com/dpunode-name"] == "mine"
    assert device["status"]["pciAddress"] == host.cards[0].pci
    new.api.delete(DPU_NODE, "mine")
    new.double.settle()
    assert (new.all(DPU_NODE), new.all(DEVICE)) == ([], [])


# Faults


@pytest.mark.parametrize("phase", ["Initializing", "Pending", INSTALLING, REBOOTING, "DPU Cluster Config"])
def test_a_dpu_can_be_stuck_and_fail_in_a_phase(dpf, phase):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.double.faults.stick(phase)
    dpf.prepare()
    dpf.dpu_set(card)
    if phase == "DPU Cluster Config":
        _past_reboot(dpf, card)
    else:
        dpf.until(phase)
    dpf.double.settle()
    assert dpf.phase() == phase

    dpf.double.faults.fail(phase, message="INTEGRITY_FAIL: image refused")
    dpf.double.settle()

    assert dpf.phase() == ERROR
    condition = dpf.double.generation.phase(phase).condition
    if condition:
        assert find(dpf.dpu()["status"], condition)["reason"] == "INTEGRITY_FAIL"
    dpf.double.faults.release(phase)
    dpf.double.settle()
    assert dpf.phase() == ERROR  # which is final
    dpf.api.delete(SET, "lease-1")
    dpf.double.settle()
    assert dpf.left() == []


def _past_reboot(dpf, card):
    host = dpf.double.world.host_of(card)
    dpf.until(REBOOTING)
    dpf.double.settle()
    host.reboot()
    if dpf.double.generation.devices:
        dpf.confirm_reboot(host)


def test_an_image_for_other_cards_fails_in_the_installation(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.double.images[URL] = Image(models=("BlueField2",))
    dpf.prepare()
    dpf.dpu_set(card)

    dpf.until(ERROR)

    assert "Invalid FW Package" in find(dpf.dpu()["status"], "OSInstalled")["message"]
    assert (card.imaged, card.installing) == ([], "")


def test_a_finalizer_can_stay_for_ever(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.build(card)
    dpf.double.faults.keep_finalizer("DPU")

    dpf.api.delete(SET, "lease-1")
    dpf.double.tick(6)
    assert dpf.phase() == "Deleting"

    dpf.double.faults.finalizers.clear()
    dpf.double.settle()
    assert dpf.left() == []


def test_a_deleted_dpu_can_look_ready_for_a_while(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.build(card)
    name = dpf.dpu()["metadata"]["name"]
    dpf.double.faults.stay_stale(name, ticks=3)

    dpf.api.delete(DPU, name)
    dpf.double.tick(2)

    assert dpf.dpu()["metadata"]["deletionTimestamp"]
    assert dpf.phase() == READY


def test_someone_can_create_an_object_again_under_its_name(dpf):
    dpf.prepare()
    dpf.double.settle()
    before = dpf.all(BFB)[0]["metadata"]["uid"]
    dpf.double.faults.recreate("BFB", "bundle")

    dpf.api.delete(BFB, "bundle")
    dpf.double.settle()

    assert dpf.all(BFB)[0]["metadata"]["uid"] != before


def test_a_strangers_set_can_be_on_the_card(dpf):
    card = dpf.double.world.host("h1", [SERIAL]).cards[0]
    dpf.prepare()
    dpf.double.tick()
    dpf.double.stranger_set(card)
    dpf.double.tick(2)
    dpf.dpu_set(card)
    dpf.double.settle()

    assert labels_of(dpf.dpu())["provisioning.dpu.nvidia.com/dpuset-name"] == "stranger"
    if dpf.double.generation.devices:
        ours = dpf.api.get(SET, "lease-1")
        assert "already exists" in find(ours["status"], READY)["message"]


def test_a_reboot_can_be_requested_twice(new):
    host = new.double.world.host("h1", [SERIAL])
    new.double.faults.request_reboot_again()
    new.prepare()
    new.dpu_set(host.cards[0])
    for _ in range(2):
        new.double.settle()
        assert new.is_asked_to_reboot(host)
        host.reboot()
        new.confirm_reboot(host)
    new.double.settle()

    assert new.phase() == READY
    assert len(host.reboots) == 2


def test_a_phase_can_be_unknown(dpf):
    host = dpf.double.world.host("h1", [SERIAL])
    dpf.double.allow_phase("Quantum Alignment")
    dpf.double.faults.insert_phase("Quantum Alignment", after=INSTALLING)
    dpf.double.faults.stick("Quantum Alignment")
    dpf.prepare()
    dpf.dpu_set(host.cards[0])
    dpf.until("Quantum Alignment", most=300)

    dpf.double.faults.release("Quantum Alignment")
    dpf.double.settle()

    assert dpf.phase() == REBOOTING


# Violations


def test_writes_that_the_controllers_do_not_expect_are_recorded(new):
    card = new.double.world.host("h1", [SERIAL]).cards[0]
    new.build(card)
    name = new.dpu()["metadata"]["name"]

    new.api.change(DPU, name, lambda body: body["status"].update(phase="Error"), status=True)
    new.api.change(DPU, name, lambda body: body["spec"].update(bfb="other"))
    new.api.change(FLAVOR, "flavor", lambda body: body["spec"].update(bfcfgParameters=["X=1"]))
    new.api.change(BFB, "bundle", lambda body: body["spec"].update(url=URL + ".bfb"))
    new.double.tick()

    assert new.double.violations.take() == [
        "BFB bundle: spec.url is immutable, and drydock changed it",
        "DPUFlavor flavor: spec is immutable, and drydock changed it",
        f"DPU {name}: drydock wrote status.phase",
        f"DPU {name}: drydock wrote spec.bfb",
    ]


def test_a_removed_finalizer_is_recorded(dpf):
    dpf.prepare()
    dpf.double.settle()

    dpf.api.change(BFB, "bundle", lambda body: body["metadata"].update(finalizers=[]))
    dpf.double.tick()
    assert dpf.double.violations.take() == [
        "BFB bundle: someone else removed its finalizer provisioning.dpu.nvidia.com/bfb-protection"
    ]
    dpf.api.delete(BFB, "bundle")
    dpf.api.change(BFB, "bundle", lambda body: body["metadata"].update(finalizers=[]))
    dpf.double.tick()
    assert dpf.double.violations.take() == ["BFB bundle is gone: someone else removed its finalizer"]


def test_a_set_without_a_selector_is_recorded_and_takes_every_card(dpf):
    dpf.double.world.host("h1", [SERIAL])
    host = dpf.double.world.host("h2", [OTHER])
    dpf.prepare()
    dpf.double.settle()
    spec = dpf.spec(host.cards[0])
    for key in ("nodeSelector", "dpuSelector", "dpuNodeSelector", "dpuDeviceSelector"):
        spec.pop(key, None)
    dpf.api.create(SET, {"metadata": {"name": "wide"}, "spec": spec})

    dpf.double.tick(2)

    assert len(dpf.all(DPU)) == 2
    absent, wide = dpf.double.violations.take()
    assert "has no selector" in absent
    assert "selects 2 cards" in wide


def test_a_reboot_during_an_installation_is_recorded(dpf):
    host = dpf.double.world.host("h1", [SERIAL])
    dpf.double.dwell[INSTALLING] = 3
    dpf.prepare()
    dpf.dpu_set(host.cards[0])
    dpf.until(INSTALLING)
    dpf.double.tick()

    host.power_cycle(by="drydock")

    [violation] = dpf.double.violations.take()
    assert violation.startswith(f"drydock rebooted host {host.name} during OS Installing")


def test_a_reboot_that_is_only_claimed_is_recorded(new):
    host = new.double.world.host("h1", [SERIAL])
    new.prepare()
    new.dpu_set(host.cards[0])
    new.double.settle()

    new.confirm_reboot(host)
    new.double.settle()

    assert new.double.violations.take() == [f"DPUNode {host.name}: {REBOOT} was removed before the host was rebooted"]


def test_the_end_of_a_test_refuses_violations(new):
    new.double.violations.add("anything")
    with pytest.raises(AssertionError, match="anything"):
        new.double.violations.refuse()
    new.double.violations.clear()


def test_the_double_has_the_rights_of_its_own_account_only(dpf):
    with pytest.raises(ApiException) as refused:
        dpf.double.state.api.create(Kind("ConfigMap", "configmaps", "", "v1"), {"metadata": {"name": "x"}})
    assert refused.value.status == 403
    dpf.prepare()
    dpf.double.settle()
    managers = {entry["manager"] for entry in dpf.all(BFB)[0]["metadata"]["managedFields"]}
    assert managers == {"drydock", MANAGER}


def test_a_field_that_the_version_does_not_have_is_an_error_of_the_double(dpf):
    dpf.prepare()
    dpf.double.settle()
    with pytest.raises(FieldsPruned, match=r"status\.colour"):
        dpf.double.state.change_status(BFB, dpf.all(BFB)[0], lambda status: status.update(colour="green"))


# Pace


def test_a_thread_provisions_at_its_own_pace(new):
    host = new.double.world.host("h1", [SERIAL])
    new.prepare()
    new.dpu_set(host.cards[0])
    new.double.start(seconds=0.01)
    _wait(lambda: new.is_asked_to_reboot(host) and find(new.dpu()["status"], "Rebooted"))
    host.reboot()
    new.confirm_reboot(host)
    _wait(lambda: new.phase() == READY)
    new.double.stop()

    assert new.double.errors == []


def test_it_runs_as_a_process(new, servers, tmp_path):
    files = {}
    for name, server in servers.items():
        files[name] = tmp_path / name
        files[name].write_text(server.kubeconfig)
    command = [
        sys.executable, "-m", "tests.dpus", "--kubeconfig", files[V26_4.name], "--cluster", files[V24_10.name],
        "--namespace", new.api.namespace, "--host", f"p1={SERIAL}", "--image", URL, "--seconds", "0.01",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        _wait(lambda: new.all(DEVICE) and is_true(new.all(DEVICE)[0], READY))
        process.stdin.write("reboot p1\nreboot p2\nshow\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ok\n"
        assert process.stdout.readline() == "unknown command or name: reboot p2\n"
        shown = json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(60) == 0
    assert list(shown["reboots"].values()) == [["operator"]]
    assert shown["violations"] == []


def _wait(done):
    until = time.monotonic() + 300
    while not done():
        assert time.monotonic() < until
        time.sleep(0.1)


def _service(dpf, name="svc", **spec):
    source = {"repoURL": "oci://charts.example.org/doca", "chart": "firewall", "version": "1.2.0", "releaseName": name}
    node = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "drydock", "operator": "In", "values": ["yes"]}]}]}
    given = {
        "helmChart": {"source": source},
        "serviceDaemonSet": {"nodeSelector": node, "labels": {"app": name}},
        **spec,
    }
    return dpf.api.create(SERVICE, {"metadata": {"name": name}, "spec": given})


def _pods(dpf):
    return [pod for api in dpf.double.state.pod_links.apis for pod in api.all(POD)]


def test_a_service_has_pods_on_the_nodes_that_it_selects_until_it_is_removed(dpf):
    dpf.build(dpf.double.world.host("h1", [SERIAL]).cards[0])
    _service(dpf)
    dpf.double.settle()
    (pod,) = _pods(dpf)
    assert [pod["spec"]["nodeName"]] == dpf.members()
    assert (labels_of(pod)["app"], pod["status"]["phase"]) == ("svc", "Running")
    service = dpf.api.get(SERVICE, "svc")
    assert is_true(service, "Ready")
    assert service["status"]["observedGeneration"] == service["metadata"]["generation"]

    dpf.api.change(SERVICE, "svc", lambda body: body["spec"]["serviceDaemonSet"]["labels"].update(app="new"))
    dpf.double.settle()
    (after,) = _pods(dpf)
    assert (labels_of(after)["app"], after["metadata"]["uid"] != pod["metadata"]["uid"]) == ("new", True)

    dpf.api.delete(SERVICE, "svc")
    dpf.double.settle()
    assert (dpf.all(SERVICE), _pods(dpf)) == ([], [])


def test_services_that_would_run_elsewhere_are_violations(dpf):
    _service(dpf, "everywhere", serviceDaemonSet={"labels": {}})
    _service(dpf, "host", deployInCluster=True)
    _service(dpf, "x" * 60)
    dpf.double.settle()
    assert dpf.double.violations.take() == [
        "DPUService everywhere selects all nodes",
        "DPUService host has spec.deployInCluster",
        f"DPUService {'x' * 60}: the release has no name, or one that Helm refuses",
    ]
