"""The exit codes: one table in the program, the same one in the docs and in the help."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from drydock.cli.toolkit import exits
from drydock.core import errors
from drydock_client.errors import LeaseFailed, NoWorker
from drydock_client.http.failures import failure
from interfaces import errors as of_interfaces
from leases.engine.core.database import InsideTransaction

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

TABLE = [
    (RuntimeError("x"), 1),
    (OSError("x"), 1),
    (errors.DrydockError("x"), 1),
    (of_interfaces.Unreachable("x"), 1),
    (of_interfaces.ConfigRefused("x"), 1),
    (errors.InvalidRequest("x"), 2),
    (errors.NotSupported("x"), 2),
    (errors.NotFound("x"), 3),
    (of_interfaces.PathMissing("x"), 3),
    (errors.Conflict("x"), 4),
    (InsideTransaction("x"), 4),
    (of_interfaces.PortTaken("x"), 4),
    (errors.TimedOut("x"), 5),
    (errors.Busy("x"), 5),
    (of_interfaces.DeadlineExceeded("x"), 5),
    (LeaseFailed("x", state="broken", reason="refused"), 6),
    (errors.NotAllowed("x"), 7),
    (of_interfaces.PermissionRefused("x"), 7),
    (NoWorker("x"), 8),
]


@pytest.mark.parametrize(("error", "code"), TABLE, ids=lambda value: getattr(value, "code", type(value).__name__))
def test_every_error_has_its_code(error, code, capsys):
    assert exits.code_of(error) == code

    @exits.guarded
    def command(*, as_json=False):
        raise error

    with pytest.raises(exits.typer.Exit) as ended:
        command()
    assert ended.value.exit_code == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("drydock: ")


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 130), (exits.Stopped(143), 143)])
def test_signals_have_theirs(raised, code):
    @exits.guarded
    def command():
        raise raised

    with pytest.raises(exits.typer.Exit) as ended:
        command()
    assert ended.value.exit_code == code


def test_the_docs_list_every_code_and_no_other():
    section = DOCS.read_text().split("## Exit codes")[1].split("\n## ")[0]
    documented = {int(n) for row in re.findall(r"^\| ([\d, ]+) \|", section, re.M) for n in row.split(",")}
    assert documented == {0, *(code for _, code in TABLE), exits.INTERRUPTED, exits.TERMINATED}


def test_the_help_says_them(cli):
    said = " ".join(cli("--help").stdout.split())
    codes = ("0 success", "2 bad request", "3 not found", "4 conflict", "5 timed out", "7 not allowed", "8 no worker")
    assert [code for code in codes if code not in said] == []


def test_all_mistakes_are_told_each_with_its_field(cli):
    words = ("lease", "fake", "--ttl", "soon", "--ram", "much", "-r", "wings=2")
    told = cli(*words, code=2).stderr
    assert "drydock: ttl: " in told
    assert "drydock: ram: " in told
    found = cli.json(*words, code=2)["error"]
    assert {problem["field"] for problem in found["problems"]} == {"ttl", "ram"}
    assert (found["code"], found["exit_code"]) == ("invalid", 2)


def test_a_group_lists_as_json_and_says_where_json_goes(cli):
    for group in ("blueprints", "resources", "credentials", "authorizations", "quotas"):
        assert isinstance(cli.json(group), list)
        assert "goes after `list`" in " ".join(cli(group, "--json", "list", code=2).stderr.split())


def test_several_errors_are_told_by_the_first():
    group = ExceptionGroup("2 of 9 hints failed", [errors.Busy("the lock is held"), RuntimeError("x")])
    assert exits.described(group)[0] == "the lock is held"


def test_an_ended_lease_that_a_server_tells_of_ends_the_program_as_one_here():
    """A server names an interface's error by its code: the client cannot know the class."""
    said = {"code": "lease_ended", "detail": "Lease 1 has ended.", "is_a": ["interface", "error"]}
    told = failure(409, json.dumps(said).encode(), "http://localhost")
    assert (exits.code_of(told), exits.code_of(of_interfaces.LeaseEnded(told.message))) == (
        exits.CONFLICT,
        exits.CONFLICT,
    )
    assert exits.is_a(told, of_interfaces.LeaseEnded)
    assert not exits.is_a(told, of_interfaces.Unreachable)
