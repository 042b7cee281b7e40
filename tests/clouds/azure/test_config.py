"""Credentials and images: what may be said, and how it is told that it may not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from azure.identity import ClientSecretCredential, DefaultAzureCredential, ManagedIdentityCredential
from pydantic import ValidationError

from blueprints.azure.client import Azure
from blueprints.azure.config import Credential, Image
from tests.clouds.azure.conftest import until

PLACE = {"subscription_id": "s", "resource_group": "g"}
PRINCIPAL = {"tenant_id": "00000000-0000-0000-0000-000000000001", "client_id": "c", "client_secret": "very-secret"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "no way to authenticate"),
        ({"tenant_id": "t", "client_id": "c"}, "tenant_id, client_id and client_secret"),
        ({"token": "t", "environment": True}, "more than one way"),
        ({"token": "t", "endpoint": "http://127.0.0.1"}, "https://"),
        ({"token": "t", "resource_group": "a/b"}, "resource_group"),
        ({"token": "t", "resource_group": "ends."}, "resource_group"),
        ({"token": "t", "colour": "red"}, "colour"),
    ],
)
def test_what_a_credential_may_not_say(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Credential(**{**PLACE, **fields})


def test_secrets_are_in_no_text_of_it() -> None:
    for fields in (PRINCIPAL, {"token": "very-secret"}):
        assert "very-secret" not in f"{Credential(**PLACE, **fields)!r} {Credential(**PLACE, **fields)}"


@pytest.mark.parametrize(
    ("fields", "sort"),
    [
        (PRINCIPAL, ClientSecretCredential),
        ({**PRINCIPAL, "authority": "https://login.invalid"}, ClientSecretCredential),
        ({"managed_identity": "true"}, ManagedIdentityCredential),
        ({"managed_identity": "00000000-0000-0000-0000-000000000002"}, ManagedIdentityCredential),
        ({"environment": "true"}, DefaultAzureCredential),
    ],
)
def test_ways_to_log_in(fields: dict[str, Any], sort: type) -> None:
    azure = Azure(Credential(**PLACE, **fields))
    assert isinstance(azure._connection._who, sort)
    azure.close()


def test_words_of_a_form() -> None:
    assert Credential(**PLACE, managed_identity="yes").managed_identity is True
    assert Credential(**PLACE, managed_identity="false", token="t").managed_identity is False


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": "golden"}, "resource id"),
        ({"id": "a:b:c"}, "resource id"),
        ({"publisher": "Canonical", "offer": "ubuntu"}, "requires a sku"),
        ({"publisher": ""}, "publisher, offer, sku and version"),
    ],
)
def test_what_an_image_may_not_say(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Image(**fields)


def test_the_double_as_a_program(tmp_path: Path) -> None:
    told = tmp_path / "double.json"
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.clouds.azure.double", "--port-file", str(told)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    try:
        until(lambda: told.exists() or program.poll() is not None)
        fields = json.loads(told.read_text())
        fields.pop("port")
        azure = Azure(Credential(**fields))
        assert azure.identity() == f"{fields['subscription_id']}/{fields['resource_group']}"
        azure.close()
    finally:
        program.send_signal(signal.SIGTERM)
        program.wait(20)
    assert program.returncode == 0
    assert not Path(fields["ca_bundle"]).exists()
