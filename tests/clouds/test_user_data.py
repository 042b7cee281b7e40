"""The cloud-config of a lease: read, laid over the operator's, and given only to a machine of the lease's own."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from blueprints import registry
from blueprints.amounts import Amounts
from blueprints.cloud.config import CloudRequirements
from blueprints.matching import misses
from blueprints.offers import Offer
from blueprints.specs import Asked
from blueprints.userdata import LIMIT, READY_MARK, user_data
from drydock.core.errors import InvalidRequest
from interfaces.keys import new_key_pair

OURS = new_key_pair()
GIT = {"packages": ["git"], "runcmd": ["echo lease"]}


def made(**more):
    text = user_data(user="drydock", public_key=OURS.public, host_key=OURS, **more)
    return json.loads(text.removeprefix("#cloud-config\n"))


def test_what_a_lease_adds_comes_after_the_operator_s_and_before_the_mark():
    said = made(also={"runcmd": ["echo operator"], "packages": ["curl"]}, asked=GIT)
    assert said["runcmd"] == ["echo operator", "echo lease", ["touch", READY_MARK]]
    assert said["packages"] == ["curl", "git"]


@pytest.mark.parametrize(
    ("also", "asked", "field"),
    [
        ({}, {"ssh_keys": {}}, "user_data.ssh_keys"),
        ({}, {"users": "root"}, "user_data.users"),
        ({"timezone": "UTC"}, {"timezone": "Asia/Tokyo"}, "user_data.timezone"),
        ({}, {"write_files": ["x" * LIMIT]}, "user_data"),
    ],
)
def test_a_lease_says_nothing_that_is_said_already(also, asked, field):
    with pytest.raises(InvalidRequest) as refused:
        made(also=also, asked=asked)
    assert refused.value.field == field


def test_a_cloud_config_is_read_as_people_write_it():
    wanted = CloudRequirements(user_data="#cloud-config\npackages: [git]\nruncmd:\n  - echo lease\n")
    assert wanted.user_data == GIT == CloudRequirements(user_data=json.dumps(GIT)).user_data


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("packages: [git", "not a valid cloud-config"),
        ("- git", "a mapping"),
        ("1: git", "a mapping"),
        ("when: 2026-01-01", "not a valid cloud-config"),
        ("a: &a [x]\nb: [*a, *a]", "alias"),
        ("a: !!python/object/apply:os.getpid []", "not a valid cloud-config"),
        ("a: " + "x" * LIMIT, "bytes"),
        ("[" * 8000, "not a valid cloud-config"),
        ("ssh_pwauth: true", "Drydock's own"),
    ],
)
def test_what_is_none_is_refused_with_its_reason(text, why):
    with pytest.raises(ValidationError, match=why):
        CloudRequirements(user_data=text)


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ({}, True),
        ({"user_data": {"packages": ["curl"]}}, True),
        ({"lease_sudo": False}, False),
        ({"lease_sudo": True, "ready_by": "ssh", "host_key": "console"}, False),
        ({"user_data": {"packages": {"git": "1"}}}, False),
    ],
    ids=["by itself", "with the operator's", "no root", "no cloud-init", "not with the operator's"],
)
def test_only_a_machine_of_its_own_can_have_it(said, fits):
    kind = registry.kind("ec2")
    config = kind.Config.model_validate({"credential": "x", "image": {"name": "debian-12-*"}, **said})
    asked = Asked(type="host", amounts=Amounts(), requirements=kind.Requirements(user_data=GIT))
    offer = Offer(location="us-east-1", type="t3.micro", zone="us-east-1a", vcpus=2, ram_mib=1024, arch="x86_64")
    draft = kind.draft(config, asked, offer)
    missed = misses(kind.matches, draft.attributes, asked.requirements.model_dump(mode="json", exclude_none=True))
    assert (missed == []) is fits, missed
    assert "user_data" not in kind.draft(config, None, offer).attributes
