"""What the kinds of clouds say of themselves without their SDK is what their clients say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from blueprints import registry
from blueprints.cloud.client import CAPABILITIES, capabilities
from blueprints.cloud.kind import CloudHost

CLOUDS = ("azure", "ec2", "gce")


@pytest.mark.parametrize("name", CLOUDS)
def test_the_intervals_are_the_client_s(name):
    kind = registry.kind(name)
    assert isinstance(kind, CloudHost)
    client = kind.client_class()
    assert (kind.inventory_every, kind.status_every) == (client.types_every, client.status_every)
    assert client.provider == name


@pytest.mark.parametrize("name", CLOUDS)
def test_every_cloud_can_do_what_the_fleet_needs(name):
    kind = registry.kind(name)
    assert isinstance(kind, CloudHost)
    able = capabilities(kind.client_class())
    assert able <= {one.name for one in CAPABILITIES}
    assert {"create", "idempotent-create", "terminate", "stop-start", "user-data", "firewall", "spot", "tags"} <= able


def test_no_sdk_is_loaded_before_a_cloud_is_used():
    program = (
        "import sys; from blueprints import registry;"
        "kinds = [registry.kind(name) for name in ('azure', 'ec2', 'gce')];"
        "kinds[0].Config.model_validate({'credential': 'x'});"
        "print([m for m in ('boto3', 'botocore', 'google.cloud', 'azure.core') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
