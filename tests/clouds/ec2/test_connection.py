"""What a call does when nobody answers, when nobody is let in, and what it never says."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueprints.cloud.client import capabilities
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.ec2.client import Ec2
from blueprints.ec2.config import Credential
from tests.clouds.ec2.double import KEY, SECRET, Double
from tests.clouds.ec2.orders import made, order

SECRET_TEXT = "the-host-key-in-the-user-data"
PREPARED = {"group": "sg-1", "subnet": "subnet-1", "root_device": "/dev/xvda", "disk_gib": "8"}


@pytest.fixture
def deaf() -> Iterator[str]:
    """A port that takes what is sent and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def _credential(endpoint: str) -> Credential:
    return Credential(access_key_id=KEY, secret_access_key=SECRET, endpoint=endpoint)


def _meaning(ec2: Ec2, call: str) -> Meaning:
    with pytest.raises(CloudError) as caught:
        ec2.create(order(), PREPARED) if call == "create" else ec2.identity()
    return caught.value.meaning


@pytest.mark.parametrize(("call", "meaning"), [("create", Meaning.AMBIGUOUS), ("read", Meaning.UNAVAILABLE)])
def test_no_answer_within_the_deadline(deaf: str, call: str, meaning: Meaning) -> None:
    assert _meaning(Ec2(_credential(deaf), deadline=0.6), call) is meaning


@pytest.mark.parametrize("call", ["create", "read"])
def test_nothing_was_sent_where_nobody_listens(closed: str, call: str) -> None:
    assert _meaning(Ec2(_credential(closed), deadline=2.0), call) is Meaning.UNAVAILABLE


@pytest.mark.parametrize("call", ["create", "read"])
def test_no_credentials(double: Double, call: str) -> None:
    assert _meaning(Ec2(Credential(environment=True, endpoint=double.url)), call) is Meaning.CREDENTIALS
    assert _meaning(Ec2(Credential(profile="nobody", endpoint=double.url)), call) is Meaning.CREDENTIALS


@pytest.mark.parametrize("call", ["create", "read"])
def test_credentials_that_are_refused(double: Double, call: str) -> None:
    wrong = Credential(access_key_id="AKIAWRONG", secret_access_key="x", endpoint=double.url)
    assert _meaning(Ec2(wrong), call) is Meaning.CREDENTIALS


def test_a_profile_and_the_environment(double: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(f"[ours]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
    assert Ec2(Credential(profile="ours", endpoint=double.url)).identity() == double.account
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert Ec2(Credential(environment=True, endpoint=double.url)).identity() == double.account


def test_a_role_is_assumed_once(double: Double) -> None:
    role = "arn:aws:iam::123456789012:role/drydock"
    ec2 = Ec2(double.credential(role_arn=role, external_id="ours"))
    made(ec2, order())
    (asked,) = double.asked("AssumeRole")
    assert (asked.parameters["RoleArn"], asked.parameters["ExternalId"]) == (role, "ours")
    double.keys.clear()
    assert made(ec2, order()).id


def test_a_read_is_repeated_and_a_change_is_not(double: Double, ec2: Ec2) -> None:
    given = order()
    double.plan.throttle("DescribeImages")
    double.plan.fail("DescribeVpcs")
    double.plan.lose("DescribeSubnets")
    prepared = ec2.prepare(given)
    double.plan.throttle("RunInstances")
    with pytest.raises(CloudError) as caught:
        ec2.create(given, prepared)
    assert caught.value.meaning is Meaning.THROTTLED
    assert len(double.asked("RunInstances")) == 1
    assert ec2.create(given, prepared).key == given.key


def test_our_own_limit_is_told_before_anything_is_sent(double: Double) -> None:
    ec2 = Ec2(double.credential(rate=0.001, role_arn=""), deadline=10.0)
    ec2.connection.call("describe_regions", "us-east-1")
    with pytest.raises(CloudError) as caught:
        ec2.connection.call("describe_regions", "us-east-1")
    assert caught.value.meaning is Meaning.THROTTLED
    assert caught.value.after > 1.0
    assert len(double.asked("DescribeRegions")) == 1
    ec2.connection.call("describe_regions", "eu-west-1")


def test_no_secret_is_logged_or_said(double: Double, ec2: Ec2, caplog: pytest.LogCaptureFixture) -> None:
    given = order(user_data=SECRET_TEXT)
    with caplog.at_level(logging.DEBUG):
        made(ec2, given)
        with pytest.raises(CloudError) as caught:
            ec2.connection.call("run_instances", "us-east-1", BlockDeviceMappings=SECRET_TEXT)
    assert caught.value.meaning is Meaning.INVALID
    assert "BlockDeviceMappings" in caught.value.message
    assert SECRET_TEXT not in caught.value.message
    assert SECRET_TEXT not in caplog.text
    assert SECRET not in caplog.text
    assert SECRET not in repr(double.credential())


def test_what_ec2_can_do() -> None:
    assert capabilities(Ec2) == {
        "create", "idempotent-create", "terminate", "stop-start", "reboot", "resize-volume", "change-type",
        "tags", "list-remains",
        "user-data", "machine-image", "firewall", "spot", "confidential", "console-output", "quota",
        "permission-check", "network-check",
    }  # fmt: skip
