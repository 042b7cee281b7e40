"""Bare-metal hosts are imported, listed, acted on and removed by the shell alone. Their BMCs answer to nobody."""

from __future__ import annotations

import csv
import json

from interfaces.keys import new_key_pair


def test_hosts_of_a_spreadsheet_are_checked_then_registered_once_and_removed(cli, tmp_path):
    pair = new_key_pair()
    cli("credentials", "add", "import-key", "private_key=-", stdin=pair.private)
    (tmp_path / "user").write_text("drydock")
    cli("credentials", "add", "import-bmcs", "password=-", f"username=@{tmp_path / 'user'}", stdin="hush")
    config = ("credential=import-key", "bmc_credential=import-bmcs", "accounts=shared", "trusted=true")
    cli("blueprints", "add", "imported", "bare_metal", *config, "connect_timeout=1", "bmc_timeout=1")
    file = tmp_path / "hosts.csv"
    key = " ".join(pair.public.split()[:2])
    rows = [
        ("name", "address", "host_keys", "serial", "bmc.driver", "bmc.address", "attributes.rack"),
        ("r1-u1", "127.9.8.1", key, "SN-1", "redfish", "127.9.8.101", "R1"),
        ("r1-u2", "127.9.8.2", key, "SN-2", "telepathy", "127.9.8.102", "R1"),
        ("r1-u3", "127.9.8.3", key, "SN-1", "redfish", "127.9.8.103", "R1"),
    ]
    with file.open("w", newline="") as written:
        csv.writer(written).writerows(rows)

    args = ("hosts", "import", str(file), "--blueprint", "imported", "--json")

    def outcome(*more):
        """What became of each row, and the error after it, which are a JSON document each."""
        each, error = cli(*args, *more, code=1).stdout.splitlines()
        return {row["name"]: row for row in json.loads(each)}, json.loads(error)["error"]["message"]

    checked, error = outcome("--dry-run")
    assert error == "2 of 3 hosts cannot be registered."
    assert cli.json("hosts", "list", "--blueprint", "imported") == []
    assert checked["r1-u1"]["problem"] == ""
    assert "telepathy" in checked["r1-u2"]["problem"]
    assert "line 2 (r1-u1) has the same serial" in checked["r1-u3"]["problem"]

    first, _ = outcome()
    assert first["r1-u1"]["resource"]
    assert first["r1-u2"]["problem"] == checked["r1-u2"]["problem"]
    (listed,) = [one for one in cli.json("hosts", "list", "--blueprint", "imported") if one["name"] == "r1-u1"]
    assert (listed["status"], listed["attributes"]["rack"]) == ("enrolling", "R1")
    again, _ = outcome()
    assert again["r1-u1"]["problem"]

    assert "does not offer the act 'erase'" in cli("hosts", "erase", "r1-u1", "--yes", code=None).stderr
    assert cli.json("hosts", "records", "--host", "r1-u1") == []
    assert "Choose one of" in cli("hosts", "records", "--csv", "--jsonl", code=2).stderr
    for one in cli.json("hosts", "list", "--blueprint", "imported"):
        cli("resources", "destroy", str(one["id"]), "--force", "--reason", "made up")
    cli("sweep")
    cli("blueprints", "remove", "imported")
    cli("credentials", "remove", "import-key")
    cli("credentials", "remove", "import-bmcs")
