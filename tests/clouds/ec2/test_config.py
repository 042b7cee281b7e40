"""Credentials: one source, said in sentences, and nothing secret in an error."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.ec2.config import Credential, Image


@pytest.mark.parametrize(
    "given",
    [
        {"access_key_id": "AKIA", "secret_access_key": "s"},
        {"access_key_id": "ASIA", "secret_access_key": "s", "session_token": "t"},
        {"profile": "ours"},
        {"environment": True},
        {"environment": True, "role_arn": "arn:aws-us-gov:iam::123456789012:role/path/drydock", "external_id": "e"},
        {"environment": True, "endpoint": "https://cloud.example:8773/", "ca_bundle": "/etc/ca.pem"},
    ],
)
def test_one_source(given: dict[str, Any]) -> None:
    credential = Credential(**given)
    assert credential.region == "us-east-1"
    assert hash(credential) == hash(Credential(**given))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one of"),
        ({"access_key_id": "AKIA"}, "given together"),
        ({"secret_access_key": "s3cret"}, "given together"),
        ({"profile": "ours", "session_token": "s3cret"}, "session_token requires"),
        ({"profile": "ours", "environment": True}, "exactly one of"),
        ({"access_key_id": "AKIA", "secret_access_key": "s3cret", "profile": "ours"}, "exactly one of"),
        ({"environment": True, "external_id": "s3cret"}, "external_id requires role_arn"),
        ({"environment": True, "ca_bundle": "ca.pem"}, "absolute path"),
        ({"environment": True, "role_arn": "drydock"}, "role_arn"),
        ({"environment": True, "endpoint": "cloud.example"}, "endpoint"),
        ({"environment": True, "rate": 0}, "rate"),
        ({"environment": True, "secret_acess_key": "s3cret"}, "secret_acess_key"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Credential(**given)
    assert words in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_images() -> None:
    assert Image(id="ami-0123456789abcdef0").wanted()["id"] == "ami-0123456789abcdef0"
    for wrong in ({"id": "debian"}, {"owner": "somebody"}, {"name": ""}):
        with pytest.raises(ValidationError):
            Image(**wrong)
