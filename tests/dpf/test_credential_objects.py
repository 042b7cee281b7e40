"""The requests of credentials as objects: what both versions of DPF accept, and what their status says. Pure."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pytest

from blueprints.dpf import credentials as objects
from blueprints.dpf.services import LEASE
from blueprints.kube import Object
from blueprints.kube.dialect import bundled
from drydock.core import clock

PROOF = {"drydock-installation": "i1", "drydock-resource": "7"}
VERSIONS = ("24.10", "26.4")


def written(version: str = "26.4", **changed: Any) -> dict[str, Any]:
    made = objects.manifest(
        bundled()[f"dpf-{version}"], "metrics", 600, lease="d-l1", namespace="dpf", secrets="apart", proof=PROOF,
        cluster={"name": "tenant", "namespace": "dpf"},
    )  # fmt: skip
    made["metadata"] |= {"uid": "u1", "resourceVersion": "1", "generation": 1}
    return {**made, **changed}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_for_the_dpu_cluster_and_its_secret_and_account_are_set_apart(version: str) -> None:
    made = written(version)
    dialect = bundled()[f"dpf-{version}"]
    findings = dialect.missing(made)
    assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
    assert made["metadata"]["namespace"] == "dpf"
    assert made["metadata"]["labels"] == {**PROOF, LEASE: "d-l1", objects.NAME: "metrics"}
    there = {"name": "d-l1-metrics", "namespace": "apart"}
    assert made["spec"] == {
        "type": "kubeconfig", "duration": "600s", "serviceAccount": there, "secret": there,
        "targetCluster": {"name": "tenant", "namespace": "dpf"},
    }  # fmt: skip
    found = Object.of(made)
    assert objects.made_for(found) == objects.Made(name="d-l1-metrics", namespace="apart")
    assert dt.timedelta(seconds=595) < objects.until(found) - clock.now() <= dt.timedelta(seconds=600)


def test_a_request_that_somebody_points_at_another_secret_or_account_is_not_followed() -> None:
    made = written(status={"secret": "dpf/tenant-admin-kubeconfig"})
    made["spec"]["secret"] = {"name": "tenant-admin-kubeconfig", "namespace": "dpf"}
    assert objects.made_for(Object.of(made)) is None
    assert objects.found_credential(Object.of(made)) is None


def test_names_of_different_leases_and_credentials_differ_and_are_dns_labels() -> None:
    names = {objects.name_of(lease, one) for lease in ("d-l1", "d-l12") for one in ("a", "2-a", "a" * 40)}
    assert len(names) == 6
    assert max(map(len, names)) <= 63


def test_a_credential_is_issued_once_its_secret_is_noted() -> None:
    found = objects.found_credential(Object.of(written()))
    assert found is not None
    assert (found.issued, found.shown, found.messages) == (False, False, ("DPF has not reported on it yet.",))
    condition = {"type": "SecretReconciled", "status": "False", "reason": "Error", "message": "x" * 900}
    found = objects.found_credential(Object.of(written(status={"conditions": [condition]})))
    assert found is not None
    assert (found.issued, len(found.messages[0])) == (False, 500)
    done = written(status={"secret": "apart/d-l1-metrics", "conditions": []})
    done["metadata"]["annotations"] |= objects.shown_now()
    found = objects.found_credential(Object.of(done))
    assert found is not None
    assert (found.issued, found.shown, found.messages) == (True, True, ())
    other = objects.found_credential(Object.of(written(status={"secret": "kube-system/admin"})))
    assert other is not None
    assert not other.issued


@pytest.mark.parametrize("time", ["", "soon", "2026-13-01T00:00:00Z"])
def test_a_time_that_cannot_be_read_is_over(time: str) -> None:
    made = written()
    made["metadata"]["annotations"][objects.UNTIL] = time
    assert objects.until(Object.of(made)) < clock.now()


def test_garbled_requests_are_no_credentials() -> None:
    assert objects.found_credential(Object.of(written(spec={"secret": []}))) is None
    assert objects.found_credential(Object.of(written(spec={"secret": {"name": 1}}))) is None
    unnamed = written()
    del unnamed["metadata"]["labels"][objects.NAME]
    assert objects.found_credential(Object.of(unnamed)) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"kubeconfig": base64.b64encode(b"text").decode()}, "text"), ({}, ""), (None, ""), ([], ""),
        ({"kubeconfig": "***"}, ""), ({"kubeconfig": base64.b64encode(b"\xff").decode()}, ""), ({"kubeconfig": 1}, ""),
    ],
)  # fmt: skip
def test_a_secret_without_a_readable_kubeconfig_is_told(data: Any, text: str) -> None:
    secret = {"metadata": {"name": "a", "namespace": "apart", "uid": "u", "resourceVersion": "1"}, "data": data}
    assert objects.kubeconfig(Object.of(secret)) == text
