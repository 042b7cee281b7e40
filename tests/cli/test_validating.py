"""`drydock validate host`: an operator tries a blueprint of hosts, and is told what survived."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blueprints import host_peers as peers
from tests.cli.conftest import ROOT

pytestmark = pytest.mark.timeout(300)
BROKEN = """
from blueprints.hostshell import HostShell
HostShell.sweep_account = lambda *_, **__: True
from drydock.cli import main
main()
"""
"""The command line, with hosts on which nobody cleans /tmp."""
FEW = [word for row in ("background", "daemon", "tmp", "home-file", "immutable") for word in ("--only", row)]


def test_a_host_is_validated_and_what_was_seen_is_told(cli, host):
    told = cli("validate", "host", "this", *FEW)
    lines = [line.split() for line in told.stdout.splitlines()]
    assert lines[0][:2] == ["ROW", "VERDICT"]
    verdicts = {line[0]: line[1] for line in lines[1:]}
    assert verdicts.pop("tmp") in ("ok", "shared")
    assert verdicts == {"home-file": "ok", "immutable": "not", "background": "ok", "daemon": "ok"}
    assert "SURVIVED" not in told.stderr


def test_it_is_told_as_json(cli, host):
    report = cli.json("validate", "host", "this", "--only", "background")
    assert report["ok"]
    assert [(one["row"], one["verdict"]) for one in report["rows"]] == [("background", "ok")]


def test_what_survives_fails_and_is_named(cli, host):
    peers.needs_root()
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, "validate", "host", "this", *FEW], env=cli.environment, cwd=ROOT, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    verdicts = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:]}
    assert (verdicts["tmp"], verdicts["background"], verdicts["home-file"]) == ("SURVIVED", "ok", "ok")
    assert "SURVIVED: tmp." in done.stderr
    token = re.search(r"dd-left-[0-9a-f]+", done.stderr)[0]
    assert not list(Path("/tmp").glob(f"{token}*")), "it removes what it has found"


def test_what_is_asked_wrongly_is_said_before_anything_is_leased(cli, host):
    assert "Row 'nonsense' does not exist" in cli("validate", "host", "this", "--only", "nonsense", code=2).stderr
    assert "Blueprint 'nowhere' does not exist" in cli("validate", "host", "nowhere", code=3).stderr
    assert json.loads(cli("validate", "host", "nowhere", "--json", code=3).stdout)["error"]["code"] == "not_found"
