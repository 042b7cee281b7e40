"""Credentials: three sources, everything else refused before anything is run, read or sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from blueprints.kube import Credential, CredentialInvalid, read
from blueprints.kube.credential import Source, certificates_end, in_cluster
from blueprints.kube.kubeconfig import KubeconfigRefused, parse
from tests.kube.double import ca, kubeconfig

SERVER = "https://198.18.0.1:6443"
SECRET = "a-secret-that-no-message-has"


def text(**changes: Any) -> str:
    return yaml.safe_dump(kubeconfig(SERVER) | changes)


def with_user(**user: Any) -> str:
    return yaml.safe_dump(kubeconfig(SERVER, user={"token": SECRET} | user))


def with_cluster(**cluster: Any) -> str:
    return yaml.safe_dump(kubeconfig(SERVER, cluster=cluster))


def test_a_kubeconfig_gives_server_ca_certificate_and_namespace():
    access = Credential(kubeconfig=text()).access()
    assert (access.server, access.namespace, access.token) == (SERVER, "dpf", "")
    assert "BEGIN CERTIFICATE" in access.ca
    assert "PRIVATE KEY" in access.key
    assert certificates_end(access) is not None


def test_a_kubeconfig_in_json_works_too():
    assert Credential(kubeconfig=json.dumps(kubeconfig(SERVER))).access().server == SERVER


def test_the_namespace_of_the_credential_wins():
    assert Credential(kubeconfig=text(), namespace="other").access().namespace == "other"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (with_user(exec={"command": "/bin/touch", "args": ["/tmp/never"]}), "`exec` runs a program"),
        (with_user(**{"auth-provider": {"name": "gcp"}}), "`auth-provider`"),
        (with_user(tokenFile="/etc/shadow"), "`tokenFile` is the path of a file"),
        (with_user(**{"client-key": "/etc/key"}), "`client-key` is the path"),
        (with_user(**{"client-certificate": "/etc/cert"}), "`client-certificate` is the path"),
        (with_user(username="admin", password=SECRET), "`password` is not supported"),
        (with_user(**{"as": "root"}), "`as` is not supported"),
        (with_user(token=f"{SECRET}\r\nX-Evil: 1"), "one word"),
        (with_cluster(**{"certificate-authority": "/etc/ca"}), "`certificate-authority` is the path"),
        (with_cluster(**{"insecure-skip-tls-verify": True}), "`insecure-skip-tls-verify` is not allowed"),
        (with_cluster(**{"proxy-url": "http://198.18.0.2"}), "`proxy-url` is not supported"),
        (with_cluster(server="http://198.18.0.1"), "must begin with https://"),
        (with_cluster(server=f"https://me:{SECRET}@198.18.0.1"), "must not contain a user"),
        (with_cluster(server="https://198.18.0.1:99999"), "not a valid address"),
        (with_cluster(server="https://"), "not a valid address"),
        (with_cluster(**{"certificate-authority-data": "AAAA"}), "`certificate-authority-data`"),
        (with_cluster(**{"certificate-authority-data": "%%%"}), "not valid base64"),
        (text(**{"current-context": "", "contexts": [{"name": n, "context": {}} for n in "ab"]}), "2 contexts"),
        (text(**{"current-context": "gone"}), "no such context"),
        (text(contexts=[]), "no such context"),
        (text(users=[]), "the user of the current context is not"),
        (text(clusters="x"), "must be a list"),
        (text(kind="Secret"), "kind of a kubeconfig"),
        ("a: &x [1]\nb: *x\n", "anchors or aliases"),
        ("a: 1\na: 2\n", "occurs twice"),
        ("[" * 5000, "nested more than"),
        ("a: !!python/object/apply:os.system ['touch /tmp/never']", "not valid YAML"),
        ("- a\n", "one YAML mapping"),
        (": : :", "not valid YAML"),
        ("x" * 600_000, "longer than 512 KiB"),
    ],
)
def test_a_kubeconfig_that_does_more_than_describe_access_is_refused(given: str, said: str):
    with pytest.raises(CredentialInvalid) as caught:
        read({"kubeconfig": given})
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_refused_user_counts_although_the_current_context_uses_another_one():
    config = kubeconfig(SERVER)
    config["users"].append({"name": "other", "user": {"exec": {"command": "x"}}})
    with pytest.raises(KubeconfigRefused, match="exec"):
        parse(yaml.safe_dump(config))


def test_one_context_needs_no_current_context():
    assert parse(text(**{"current-context": ""})).namespace == "dpf"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "exactly one of"),
        ({"server": SERVER, "token": "x", "in_cluster": True}, "exactly one of"),
        ({"server": SERVER}, "requires token"),
        ({"server": "http://198.18.0.1", "token": "x"}, "https://"),
        ({"server": SERVER, "token": "two words"}, "one word"),
        ({"server": SERVER, "token": "x", "ca": "/etc/ca.crt"}, "not a PEM text"),
        ({"in_cluster": True, "ca": "-----BEGIN CERTIFICATE-----"}, "with server only"),
        ({"server": SERVER, "token": "x", "namespace": "a/b"}, "pattern"),
        ({"token": SECRET, "unknown": SECRET}, "unknown"),
    ],
)
def test_a_credential_has_exactly_one_source(fields: dict[str, Any], said: str):
    with pytest.raises(CredentialInvalid) as caught:
        read(fields)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_no_representation_of_a_credential_shows_its_secrets():
    credential = Credential(server=SERVER, token=SECRET, ca=ca())
    for shown in (repr(credential), str(credential), repr(credential.access()), repr(Source(credential))):
        assert SECRET not in shown


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text(ca())
    (tmp_path / "namespace").write_text("dpf")
    return tmp_path


def test_the_account_of_a_pod_is_read_again_when_its_token_is_renewed(pod: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("blueprints.kube.credential.IN_CLUSTER", pod)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "198.18.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    source = Source(Credential(in_cluster=True))
    assert (source.access().server, source.access().token) == ("https://198.18.0.1:443", "first")
    assert source.rotates
    assert not source.renewed()
    (pod / "token").write_text("second\n")
    assert source.renewed()
    assert source.access().token == "second"


def test_outside_a_pod_the_message_says_so(pod: Path):
    with pytest.raises(CredentialInvalid, match="does not run in a pod"):
        in_cluster(pod, {})
    (pod / "token").unlink()
    with pytest.raises(CredentialInvalid, match="cannot be read: No such file"):
        in_cluster(pod, {"KUBERNETES_SERVICE_HOST": "198.18.0.1", "KUBERNETES_SERVICE_PORT": "443"})


def test_an_ipv6_address_of_the_service_is_put_in_brackets(pod: Path):
    found = in_cluster(pod, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
    assert found.server == "https://[fd00::1]:443"
