"""`drydock lease --run`, `--container`, and `drydock watch`."""

from __future__ import annotations

import json


def test_a_lease_does_its_work_and_ends_with_it(cli, host):
    done = cli("lease", host, "--run", "echo out of $WHAT; exit 7", "--env", "WHAT=it", "--ttl", "1h", code=7)
    assert done.stdout == "out of it\n"
    assert "failed with exit code 7" in done.stderr
    assert cli.json("leases") == []
    (last,) = [one for one in cli.json("leases", "--all") if one["workload"]][:1]
    assert (last["workload"]["outcome"], last["workload"]["exit_code"]) == ("exited", 7)
    assert last["metrics"]["complete"]
    shown = cli("show", str(last["id"])).stdout
    assert "The workload has failed with exit code 7." in shown
    assert "core-seconds" in shown
    assert cli("watch", str(last["id"]), code=7).stdout == "out of it\n"
    assert cli("job", "output", str(last["workload"]["job"])).stdout == "out of it\n"


def test_one_that_is_kept_is_watched_later(cli, host):
    kept = cli.json("lease", host, "--keep", "--run", "sleep 1; echo done", "--ttl", "1h")
    lease = str(kept["leases"][0]["id"])
    assert kept["workloads"] == []
    assert cli("watch", lease).stdout == "done\n"
    assert cli.json("watch", lease)["outcome"] == "exited"


def test_what_could_not_begin_is_refused_or_says_why(cli, host):
    done = cli("lease", host, "--container", "localhost/no-such-image:1", "--ttl", "1h", code=6)
    assert "could not be started" in done.stderr
    assert "image" in cli("lease", host, "--container", "No Image", code=2).stderr
    assert "--run" in cli("lease", host, "--run", "a", "--", "b", code=2).stderr
    assert "1024" in cli("lease", host, "--container", "alpine", "--port", "80", code=2).stderr
    assert "ports require" in cli("lease", host, "--run", "true", "--port", "8080", code=2).stderr
    done = cli("lease", host, "--archive", 64 * "a", "--ttl", "1h", code=6)
    assert "need a host that has systemd" in done.stderr
    said = json.loads(cli("lease", host, "--run", " ", "--json", code=2).stdout)
    assert said["error"]["field"].startswith("workload")


def test_a_lease_without_a_workload_is_not_watched(cli, host):
    lease = str(cli.json("lease", host, "--keep", "--ttl", "1h")["leases"][0]["id"])
    assert "has no workload" in cli("watch", lease, code=2).stderr
    cli("release", lease)
