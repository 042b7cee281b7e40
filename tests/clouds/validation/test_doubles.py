"""The behaviour suite on the three emulated clouds: every check of it, and nothing left."""

from __future__ import annotations

import os

import pytest

from blueprints.cloud.client import capabilities
from blueprints.cloud.validation.suite import Suite
from blueprints.cloud.validation.values import Verdict
from tests.clouds.ec2.conftest import no_aws_of_ours  # noqa: F401
from tests.clouds.validation import emulated
from tests.peers import require

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="machines run as ourselves, and no account can become root"),
]


@pytest.mark.parametrize("name", emulated.CLOUDS)
def test_every_check_passes(name, tmp_path):
    require("sshd")
    require("sudo")
    with emulated.cloud(name) as cloud:
        environment = cloud.environment(tmp_path)
        report = Suite(environment).run()
        missing = {one.check: one.message for one in report.findings if one.verdict is Verdict.NOT_SUPPORTED}
        wrong = [one for one in report.findings if one.verdict not in (Verdict.PASSED, Verdict.NOT_SUPPORTED)]
        assert not wrong, "\n".join(f"{one.check}: {one.verdict}: {one.message}" for one in wrong)
        able = capabilities(type(environment.client))
        assert set(missing) == {"spot-refusal"} | ({"expiry"} if "server-side-expiry" not in able else set())
        assert report.ok
        assert cloud.machines.running == []
        assert cloud.double.objects() == {}
        assert not environment.journal.path.exists()
