"""`drydock provider validate` against an emulated cloud: what is spent is asked for, and what comes of it is told."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.conftest import ROOT
from tests.clouds.machines import USER, Machines
from tests.leases.emulated import Emulated, ec2
from tests.peers import require

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the machines of emulated clouds are entered as root"),
    pytest.mark.timeout(900),
]
BROKEN = """
from blueprints.ec2.kind import Ec2Host
from tests.clouds.validation.broken import BROKEN
sound = Ec2Host.client_class
Ec2Host.client_class = lambda self: BROKEN["create"](sound(self))
from drydock.cli import main
main()
"""
"""The command line with a client that tells of no tags."""


@pytest.fixture
def amazon() -> Iterator[Emulated]:
    require("sshd")
    machines = Machines()
    try:
        with ec2(machines) as found:
            yield found
    finally:
        machines.close()


@pytest.fixture
def account(cli, amazon):
    """A credential of it, and the words that validate it."""
    secrets = {**amazon.secrets, "regions": ["us-east-1"]}
    cli("credentials", "add", "amazon", "--file", "-", stdin=json.dumps(secrets))
    wish = {"--type": "t3.micro", "--user": USER, "--ssh-port": str(amazon.machines.port), "--kind": "ec2"}
    yield "provider", "validate", "amazon", *(word for pair in wish.items() for word in pair)
    cli("credentials", "remove", "amazon")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Where somebody types: our end of it, and that of a program."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def run(cli, words, stdin=subprocess.DEVNULL, begin=("-m", "drydock")):
    """Run it with more patience than for others: machines are made and ended."""
    return subprocess.run(
        [sys.executable, *begin, *words], env=cli.environment, cwd=ROOT, text=True, stdin=stdin, capture_output=True,
        timeout=400,
    )  # fmt: skip


def test_it_says_what_it_would_spend_and_asks(cli, amazon, account, terminal):
    os.write(terminal[0], b"n\n")
    done = run(cli, [*account, "--only", "boot"], stdin=terminal[1])
    assert done.returncode == 1
    for words in (
        "The validation creates up to 1 machines",
        "t3.micro in us-east-1",
        "per hour, without disks and addresses",
        "Continue?",
        "Aborted",
    ):
        assert words in done.stderr, words
    refused = cli(*account, "--only", "boot", code=2)
    assert "Give --yes to confirm the cost" in refused.stderr
    assert amazon.double.asked("RunInstances") == []
    assert amazon.double.objects() == {}


@pytest.mark.slow
def test_what_was_agreed_to_is_tried_and_reported(cli, amazon, account):
    done = run(cli, [*account, "--only", "ssh", "--only", "tags", "--yes"])
    assert done.returncode == 0, done.stderr
    assert "boot ... " in done.stderr
    assert done.stdout.splitlines()[0].split()[:3] == ["CHECK", "VERDICT", "SECONDS"]
    said = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:]}
    passed = {name for name, verdict in said.items() if verdict == "passed"}
    assert passed == {"create", "boot", "ssh", "tags", "nothing-left"}
    assert len(amazon.double.asked("RunInstances")) == 1
    assert amazon.double.objects() == {}
    assert amazon.machines.running == []
    assert "Credential amazon as ec2: All checks passed." in cli("events", "--limit", "20").stdout


def test_what_makes_nothing_is_not_asked_about(cli, amazon, account):
    done = cli(*account, "--only", "prices", "--json")
    assert "These checks create nothing." in done.stderr
    report = json.loads(done.stdout)
    assert (report["provider"], report["ok"], report["left"]) == ("ec2", True, [])
    verdicts = {one["check"]: one["verdict"] for one in report["checks"]}
    assert verdicts["prices"] == "passed"
    assert verdicts["create"] == "skipped"


def test_a_check_that_fails_is_told_by_the_exit_code_and_leaves_nothing(cli, amazon, account):
    done = run(cli, [*account, "--only", "boot", "--yes", "--json"], begin=("-c", BROKEN))
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    findings = {one["check"]: one for one in report["checks"]}
    assert (report["ok"], findings["create"]["verdict"], findings["boot"]["verdict"]) == (False, "failed", "not run")
    assert "lacks these tags" in findings["create"]["message"]
    assert amazon.double.asked("RunInstances")
    assert amazon.double.objects() == {}


def test_what_is_no_cloud_is_said_clearly(cli):
    assert "nowhere" in cli("provider", "validate", "nowhere", "--yes", code=3).stderr
    cli("credentials", "add", "key", "private_key=-", stdin="no key of a cloud")
    assert (
        "The credential does not match any kind of blueprint that orders hosts from a cloud. Specify the kind."
        in cli("provider", "validate", "key", "--yes", code=2).stderr
    )
    refused = cli.json("provider", "validate", "key", "--kind", "local_host", "--yes", code=2)["error"]
    assert refused["message"] == "local_host is not a kind of blueprint that orders hosts from a cloud."
    assert refused["field"] == "kind"
    assert "ec2" in refused["hint"]
    missing = cli("provider", "validate", "key", "--kind", "ec2", "--yes", code=2).stderr
    assert "The credential is invalid" in missing
    assert "no key of a cloud" not in missing
    assert "pong" in cli("provider", "validate", "key", "--only", "pong", code=2).stderr
    cli("credentials", "remove", "key")
