"""A double and a client on it, new for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blueprints.ec2.client import Ec2
from tests.clouds.ec2.double import Double


@pytest.fixture(autouse=True)
def no_aws_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Whoever runs the tests may have an AWS account: it is not seen here."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{tmp_path}/credentials")


@pytest.fixture
def double() -> Iterator[Double]:
    """An account of its own."""
    with Double() as double:
        yield double


@pytest.fixture
def ec2(double: Double) -> Ec2:
    """A client of that account."""
    return Ec2(double.credential())
