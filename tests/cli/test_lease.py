"""`drydock lease` and what one does with a lease."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest


def until(done, seconds=90, what="it"):
    end = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.1)
    return found


def test_a_command_runs_with_its_own_output_and_exit_code_and_all_is_released(cli, host):
    done = cli(
        "lease", host, "--vcpus", "0.1", "--ttl", "2h", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7
    )
    assert done.stdout == "out\n"
    assert "err\n" in done.stderr
    assert "is being built" in done.stderr or "active (on" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert cli.json("leases") == []


def test_a_lease_is_kept_worked_on_extended_and_released(cli, host, tmp_path):
    kept = cli.json(
        "lease", host, "--keep", "--name", "mine", "--label", "team=a", "--ttl", "1h", "--heartbeat-limit", "1h"
    )
    lease = str(kept["leases"][0]["id"])
    assert [(found["id"], found["state"]) for found in cli.json("leases", "--label", "team=a")] == [
        (int(lease), "active")
    ]

    assert cli("run", lease, "--", "echo", "a b").stdout == "a b\n"
    assert cli("run", lease, "--stdin", "--", "cat", stdin="hello").stdout == "hello"
    assert cli("run", lease, "--shell", "--env", "X=1", "--", "exit $X", code=1).stdout == ""
    assert cli.json("run", lease, "--", "pwd")["exit_code"] == 0

    site = tmp_path / "site"
    (site / "deep").mkdir(parents=True)
    (site / "deep" / "page.txt").write_text("page")
    cli("cp", str(site), f"{lease}:")
    assert cli("run", lease, "--", "cat", "site/deep/page.txt").stdout == "page"
    cli("cp", f"{lease}:site", str(tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "page.txt").read_text() == "page"
    cli("cp", f"{lease}:site/deep/page.txt", str(tmp_path))
    assert (tmp_path / "page.txt").read_text() == "page"
    assert "outside the folder" in cli("cp", f"{lease}:../../etc/passwd", str(tmp_path), code=1).stderr

    cli("heartbeat", lease)
    assert "lasts until" in cli("extend", lease, "5h").stdout
    assert "already lasts until" in cli("extend", lease, "1m", code=4).stderr

    job = cli("job", "start", lease, "--", "sh", "-c", "echo begun; sleep 0.3; echo done; exit 5").stdout.strip()
    followed = cli("job", "output", job, "--follow", code=5)
    assert followed.stdout == "begun\ndone\n"
    assert cli.json("job", "show", job)["state"] == "ended"

    shown = cli.json("show", lease)
    assert [event["to_state"] for event in shown["events"] if event["to_state"]][-1] == "active"
    assert cli.json("release", lease)["state"] == "destroyed"
    assert cli("run", lease, "--", "true", code=4).stderr.startswith("drydock: ")
    cli("access", lease, code=4)
    cli("release", lease)


def test_a_name_goes_wherever_a_number_does(cli, host, tmp_path):
    lease = cli.json("lease", host, "--keep", "--name", "by-name", "--ttl", "1h")["leases"][0]["id"]
    refused = cli("lease", host, "--name", "by-name", "--", "true", code=4)
    assert f"Lease {lease} already has the name 'by-name' and is active." in refused.stderr
    assert cli.json("leases", "--name", "by-name")[0]["id"] == lease
    (tmp_path / "a:b").write_text("page")
    cli("cp", str(tmp_path / "a:b"), "by-name:page")
    assert cli("run", "by-name", "--", "cat", "page").stdout == "page"
    cli("cp", "by-name:page", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "page"
    assert "page" in cli("ls", "by-name:").stdout
    job = cli("job", "start", "by-name", "--", "true").stdout.strip()
    assert [one["id"] for one in cli.json("job", "list", "--lease", "by-name")] == [int(job)]
    assert "lasts until" in cli("extend", "by-name", "5h").stdout
    assert "lease.extended" in cli("events", "--lease", "by-name", "--json").stdout
    held = cli("hold", "by-name", "--ttl", "1h")
    assert "you can continue to use it" in held.stderr
    assert "held" in cli("release", "by-name").stdout
    assert cli("run", "by-name", "--", "cat", "page").stdout == "page"
    cli("unhold", "by-name")
    cli("wait", "by-name", "--for", "ended")
    cli("run", "by-name", "--", "true", code=4)
    assert cli.json("show", "by-name")["id"] == lease
    unknown = cli("run", "nothing-such", "--", "true", code=3)
    assert "'nothing-such' is not a lease number or name." in unknown.stderr
    assert cli.json("show", "nothing-such", code=3)["error"]["exit_code"] == 3
    names = {one["name"] for one in cli.json("lease", host, "--keep", "--count", "2", "--name", "pair")["leases"]}
    assert names == {"pair-1", "pair-2"}
    cli("release", "pair-1", "pair-2")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_releases_and_ends_what_runs_there(cli, host, number, code):
    mark = f"29{os.getpid()}{int(number)}"
    running = cli.start("lease", host, "--", "sleep", mark)
    until(lambda: _sleeping(mark), what="the command")
    running.send_signal(number)
    _, err = running.communicate(timeout=90)
    assert running.returncode == code, err
    assert "Traceback" not in err
    assert "The request was released." in err
    assert not _sleeping(mark)
    assert cli.json("leases") == []


def _sleeping(mark):
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", mark]]


def test_what_a_killed_command_leaves_is_ended_by_the_next(cli, host):
    running = cli.start("lease", host)
    assert running.stderr is not None
    until(lambda: "drydock run" in running.stderr.readline(), what="the lease")
    running.kill()
    running.communicate()
    left = cli.json("leases")
    assert [lease["state"] for lease in left] == ["active"]
    cli("release", str(left[0]["id"]))
    assert cli.json("leases") == []


@pytest.mark.slow
def test_a_killed_command_gives_its_lease_up_by_its_heartbeat(cli, host):
    """Without --keep there is a limit, and it is shown."""
    usual = cli("lease", host, "--name", "usual", "--", "true")
    assert "released when this program ends, or 1 min after it was killed" in usual.stderr
    assert cli.json("show", "usual")["heartbeat_limit"] == 60.0
    kept = cli.json("lease", host, "--keep")["leases"][0]
    assert (kept["heartbeat_limit"], kept["ttl"] is None) == (None, False)
    cli("release", str(kept["id"]))
    cli("lease", host, "--name", "unbound", "--heartbeat-limit", "none", "--", "true")
    assert cli.json("show", "unbound")["heartbeat_limit"] is None

    running = cli.start("lease", host, "--name", "killed", "--heartbeat-limit", "2s", "--", "sleep", "600")
    until(lambda: [one["state"] for one in cli.json("leases", "--name", "killed")] == ["active"], what="the lease")
    time.sleep(3)
    assert [one["state"] for one in cli.json("leases", "--name", "killed")] == ["active"], "its heart beats"
    running.kill()
    running.communicate()
    until(lambda: cli("sweep") and cli.json("leases") == [], what="the end of the lease")


def test_a_second_lease_waits_is_explained_and_takes_over(cli, fakes):
    pool = fakes("--max", "1")
    first = cli.json("lease", "fake", "--blueprint", pool, "--keep")["leases"][0]["id"]
    assert cli.json("explain", "fake", "--blueprint", pool)["outcome"] == "wait"
    assert "is full (" in cli("explain", "fake", "--blueprint", pool).stdout

    late = cli("lease", "fake", "--blueprint", pool, "--wait", "2s", "--", "true", code=5)
    assert "still pending after 2 s" in late.stderr
    assert "The request was released." in late.stderr

    waiting = cli.start("lease", "fake", "--blueprint", pool, "--", "true")
    assert waiting.stderr is not None
    said = next((line for line in waiting.stderr if "in the queue" in line), "")
    assert "1st in the queue" in said
    until(lambda: "Waits because " in str(cli.json("leases", "--state", "pending")), what="the second lease")
    cli("release", str(first))
    _, err = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, err
    assert cli.json("leases") == []


def test_what_cannot_be_had_is_refused_with_what_everybody_said(cli, fakes):
    pool = fakes()
    refused = cli.json("lease", "fake", "--blueprint", pool, "--slots", "3", "--", "true", code=6)["error"]
    assert refused["exit_code"] == 6
    assert "3 slots requested" in refused["verdicts"][0]["sentence"]
    assert cli("explain", "fake", "--blueprint", pool, "--slots", "3", code=6).stdout.startswith("refuse: ")


def test_a_group_is_leased_together(cli, fakes):
    pool = fakes()
    words = ("lease", "fake", "--blueprint", pool, "--count", "2", "--different", "resource", "--", "true")
    leases = cli.json(*words)["leases"]
    assert len({lease["resource"] for lease in leases}) == 2
    assert len({lease["group"] for lease in leases}) == 1


def test_mistakes_end_with_codes_one_can_script_on(cli, host):
    assert "not a valid duration" in cli("lease", host, "--ttl", "soon", code=2).stderr
    assert cli.json("lease", host, "--ttl", "soon", code=2)["error"]["field"] == "ttl"
    assert "Resource type 'boat' does not exist" in cli("lease", "boat", code=2).stderr
    cli("lease", host, "-r", "wings=2", code=2)
    cli("lease", host, "-r", "novalue", code=2)
    cli("show", "999999", code=3)
    cli("release", "999999", code=3)
    cli("nonsense", code=2)
    cli("cp", "a", "b", code=2)


def test_help_and_version_start_nothing(cli, tmp_path):
    fresh = cli.also(DRYDOCK_STATE=str(tmp_path / "none"))
    for words in (("--help",), ("lease", "--help"), ("blueprints", "add", "--help"), ("--version",)):
        assert fresh(*words).stdout
    assert not Path(tmp_path / "none").exists()


def test_a_note_is_found_and_a_lease_transferred(cli, host):
    """The shell's user is an operator, so that the lease is still theirs to see; its owner is another."""
    kept = cli.json("lease", host, "--keep", "--name", "noted", "--ttl", "1h")
    lease = str(kept["leases"][0]["id"])
    cli("note", "noted", "for the Friday talk")
    assert [str(one["id"]) for one in cli.json("leases", "--search", "friday")] == [lease]
    cli("run", lease, "--", "sh", "-c", "echo kept >file")
    cli("users", "add", "heir")
    assert "heir may not use this" in cli("transfer", lease, "heir", code=7).stderr
    cli("authorizations", "allow", "this", "--user", "heir")
    assert cli("transfer", lease, "heir").stdout == f"lease {lease} belongs to heir\n"
    found = until(
        lambda: [one for one in cli.json("leases", "--all") if str(one["id"]) == lease and one["owner"] == "heir"]
    )
    assert found[0]["state"] == "active"
    assert "heir" in cli("events", "--lease", lease).stdout
    cli("release", lease)
