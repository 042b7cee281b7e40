"""Credentials: what the config takes, and whom the double lets in."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt, jwt
from pydantic import ValidationError

from blueprints.cloud.faults import Meaning
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential, Image
from tests.clouds.gce.conftest import USUAL, made, refused
from tests.clouds.gce.double import Double
from tests.clouds.gce.tokens import AUDIENCE, problem, service_account

KEY = service_account("drydock-test")


def test_nothing_of_a_key_shows() -> None:
    credential = Credential(project="drydock-test", service_account=KEY)
    assert "PRIVATE" not in repr(credential) + str(credential) + credential.model_dump_json()
    assert credential.key() == KEY
    assert Credential(project="drydock-test", service_account=json.dumps(KEY)).key() == KEY
    with pytest.raises(ValidationError) as caught:
        Credential(project="drydock-test", service_account={**KEY, "type": "authorized_user"})
    assert "PRIVATE" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({}, "give either service_account or environment"),
        ({"service_account": KEY, "environment": True}, "give either service_account or environment"),
        ({"service_account": "no json"}, "service_account is not valid JSON"),
        ({"service_account": "[]"}, "must be the JSON object"),
        ({"service_account": {"type": "service_account"}}, "lacks client_email, private_key, token_uri"),
        ({"environment": True, "endpoint": "compute.example"}, "endpoint"),
        ({"environment": True, "project": "Bad Project"}, "project"),
        ({"environment": True, "region": "x"}, "region"),
    ],
)
def test_a_credential_that_is_none(said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        Credential(**{"project": "drydock-test", **said})


def test_images_are_said_in_three_ways() -> None:
    assert Image().wanted() == {"project": "ubuntu-os-cloud", "family": "ubuntu-2404-lts-amd64"}
    assert Image(project="p", name="n").wanted() == {"project": "p", "name": "n"}
    link = "projects/p/global/images/n"
    assert Image(link=link).wanted() == {"link": link}
    for wrong in ({"family": "f"}, {"project": "p"}, {"link": link, "name": "n"}, {"link": "n"}):
        with pytest.raises(ValidationError):
            Image(**wrong)


def test_a_key_of_another_is_not_let_in(double: Double) -> None:
    other = service_account("drydock-test", rsa.generate_private_key(public_exponent=65537, key_size=2048))
    gce = Gce(Credential(**{**double.credential, "service_account": other}))
    error = refused(Meaning.CREDENTIALS, gce.identity)
    assert error.provider_code == "authError"
    refused(Meaning.CREDENTIALS, gce.create, USUAL, {})
    assert double.seen == []


def test_a_key_that_is_broken_is_told_without_it(double: Double) -> None:
    broken = {**KEY, "private_key": "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n"}
    gce = Gce(Credential(**{**double.credential, "service_account": broken}))
    error = refused(Meaning.CREDENTIALS, gce.identity)
    assert "secret" not in str(error)


def test_another_project_is_not_ours(double: Double) -> None:
    gce = Gce(Credential(**{**double.credential, "project": "another-project"}))
    refused(Meaning.CREDENTIALS, gce.identity)


def test_without_default_credentials(double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    gce = Gce(Credential(project="drydock-test", environment=True, endpoint=double.endpoint))
    error = refused(Meaning.CREDENTIALS, gce.identity)
    assert "default credentials" in str(error)


def test_default_credentials(double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps(double.service_account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    gce = Gce(Credential(project="drydock-test", environment=True, endpoint=double.endpoint))
    assert gce.identity() == "projects/drydock-test"


def test_nobody_but_the_endpoint_is_ever_asked(double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """google-auth and the SDK both have calls of their own that go to Google whatever the endpoint is."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def noted(host: Any, *args: Any, **options: Any) -> Any:
        asked.append(str(host))
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    key = tmp_path / "key.json"
    key.write_text(json.dumps(double.service_account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    before = set(threading.enumerate())
    made(Gce(Credential(**double.credential)))
    found = Gce(Credential(project="drydock-test", environment=True, endpoint=double.endpoint)).find(USUAL)
    assert found is not None
    left = [one for one in set(threading.enumerate()) - before if type(one).__module__.startswith("google")]
    for thread in left:
        thread.join(10)
    assert left == []
    assert set(asked) == {"127.0.0.1"}


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    with Double(tls=context) as double:
        trusting = Gce(Credential(**double.credential, ca_bundle=str(bundle)))
        assert trusting.identity() == "projects/drydock-test"
        error = refused(Meaning.CREDENTIALS, Gce(Credential(**double.credential)).identity)
        assert "certificate" in str(error)


GOOD = {"iss": KEY["client_email"], "sub": KEY["client_email"], "aud": AUDIENCE}


def signed(seconds: float = 0, **claims: Any) -> str:
    """An Authorization with these claims in place of the good ones."""
    now = int(time.time() + seconds)
    said = {**GOOD, "iat": now, "exp": now + 3600, **claims}
    signer = crypt.RSASigner.from_service_account_info(KEY)
    return "Bearer " + jwt.encode(signer, {name: it for name, it in said.items() if it is not None}).decode()


def test_good_tokens() -> None:
    assert problem(signed(), "drydock-test") == ""
    assert problem(signed(aud=None, scope="https://www.googleapis.com/auth/compute"), "drydock-test") == ""


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer abc",
        "Basic a.b.c",
        "Bearer a.b.c",
        signed(iss="someone@else.iam.gserviceaccount.com"),
        signed(sub=None),
        signed(aud="https://storage.googleapis.com/"),
        signed(aud=None, scope="https://www.googleapis.com/auth/devstorage.read_only"),
        signed(-4000),
        signed(+4000),
        signed(exp=int(time.time()) + 86_400),
    ],
)
def test_bad_tokens(authorization: str) -> None:
    assert problem(authorization, "drydock-test")
    assert problem(signed(), "another-project")
