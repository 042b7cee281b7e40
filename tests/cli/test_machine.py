"""The machine of a lease from the shell."""

from __future__ import annotations


def test_a_machine_is_worked_on_from_the_shell(cli, fakes):
    pool = fakes()
    kept = cli.json("lease", "fake", "--blueprint", pool, "--exclusive", "--keep")
    lease = str(kept["leases"][0]["id"])
    assert "was rebooted" in cli("machine", "reboot", lease).stdout
    info = cli.json("machine", "resize", lease, "100")
    assert (info["outcome"], info["disk_gib"]) == ("done", 100)
    assert "can only grow" in cli("machine", "resize", lease, "50", code=2).stderr
    assert "team" in cli("machine", "tag", lease, "team=a").stdout
    assert "are reserved" in cli("machine", "tag", lease, "drydock-x=a", code=2).stderr
    assert "is off" in cli("machine", "stop", lease).stdout
    assert "is off" in cli("machine", "reboot", lease, code=4).stderr
    assert "is on" in cli("machine", "start", lease).stdout
    shown = cli("machine", "show", lease).stdout
    assert "reboot" in shown
    assert cli("machine", "console", lease).stdout == ""
    refused = cli.json("machine", "change-type", lease, "big", code=2)["error"]
    assert (refused["code"], refused["capability"]) == ("not_supported", "change-type")
    assert "cannot be reached by SSH" in cli("access", lease, code=2).stderr
    assert "Give one of" in cli("access", lease, "--known-hosts", "--ssh-config", code=2).stderr
    cli("release", lease)
    assert cli.json("machine", "reboot", lease, code=None)["error"]["code"] == "lease_ended"
