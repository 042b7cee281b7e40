"""A web site and its files from the shell."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request

import pytest

from drydock.cli.dpu.services import _values
from drydock.core.errors import InvalidRequest
from tests.blueprints.host_peers import eventually


def get(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


@pytest.fixture
def site(cli, host):
    """The number of a leased web site."""
    for name, kind in (("folders", "storage"), ("sites", "webroot")):
        cli("blueprints", "add", name, kind, code=None)
    lease = str(cli.json("lease", "webroot", "--keep")["leases"][0]["id"])
    yield lease
    cli("release", lease)

    def gone():
        """What is still being cleaned is not idle, and is reclaimed by another call."""
        cli("reclaim")
        return not {"webroot", "storage"} & {found["type"] for found in cli.json("resources", "list")}

    eventually(gone, 60)


def test_pages_are_published_and_the_server_is_steered(cli, site, tmp_path):
    (tmp_path / "index.html").write_text("<h1>Hello</h1>")
    address = cli("httpd", "publish", site, str(tmp_path / "index.html")).stdout.strip()
    assert get(address) == "<h1>Hello</h1>"
    assert cli("httpd", "uri", site, "index.html").stdout.strip() == address

    folder = tmp_path / "docs" / "deep"
    folder.mkdir(parents=True)
    (folder / "page.html").write_text("deep")
    there = cli.json("httpd", "publish", site, str(tmp_path / "docs"), "docs")
    assert (there["files"], there["bytes"]) == (1, 4)
    assert get(there["uri"].rstrip("/") + "/deep/page.html") == "deep"
    said = cli("httpd", "publish", site, "-", "note.txt", stdin="from a pipe").stdout.strip()
    assert get(said) == "from a pipe"
    cli("httpd", "unpublish", site, "note.txt")
    with pytest.raises(urllib.error.HTTPError):
        get(said)

    status = cli.json("httpd", "status", site)
    assert (status["state"], status["pid"] > 0) == ("running", True)
    assert address.startswith(status["uri"])
    assert "GET /index.html" in cli("httpd", "logs", site).stdout
    cli("httpd", "logs", site, "--error")
    for act, state in (("test", "running"), ("reload", "running"), ("stop", "stopped"), ("start", "running")):
        assert cli.json("httpd", act, site)["state"] == state, act
    assert cli("httpd", "restart", site).stdout.startswith("running http://127.0.0.1:")
    assert get(address) == "<h1>Hello</h1>"
    cli("httpd", "publish", site, str(tmp_path / "nothing"), code=2)
    cli("httpd", "publish", site, "-", stdin="x", code=2)


def test_files_are_listed_and_removed(cli, host, tmp_path):
    lease = str(cli.json("lease", host, "--keep")["leases"][0]["id"])
    (tmp_path / "a").write_text("12345")
    cli("cp", str(tmp_path / "a"), f"{lease}:deep/a")
    assert [(f["name"], f["kind"], f["size"]) for f in cli.json("ls", f"{lease}:deep")] == [("a", "file", 5)]
    assert "deep" in cli("ls", f"{lease}:").stdout
    cli("rm", f"{lease}:deep", code=4)
    cli("rm", "-r", f"{lease}:deep")
    assert "deep" not in cli("ls", f"{lease}:").stdout
    cli("rm", f"{lease}:deep")
    cli("ls", f"{lease}:nowhere", code=3)
    cli("ls", "nonsense", code=2)
    assert "does not provide the interface" in cli("httpd", "status", lease, code=2).stderr
    cli("release", lease)


CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall", "versions": ["1.2.0"]}
THERE = ("--repository", CHART["repository"], "--chart", "firewall", "--version", "1.2.0")


@pytest.fixture(scope="module")
def dpu(cli):
    """The number of a lease with services, as a DPU has."""
    cli("blueprints", "add", "dpus", "fake_activated", f"charts={json.dumps([CHART])}", 'chains={"vfs": 4}',
        'networks=["10.20.0.0/16"]', 'volumes={"policies": ["fast"]}',
        'vpcs={"isolations": ["ovn"], "subnets": ["10.30.0.0/16"], "vfs": 4}')  # fmt: skip
    lease = str(cli.json("lease", "fake_activated", "--blueprint", "dpus", "--keep")["leases"][0]["id"])
    yield lease
    cli("release", lease)
    cli("dpu", "services", "list", lease, code=4)


def test_a_service_is_applied_listed_shown_and_removed(cli, dpu, tmp_path):
    (tmp_path / "values.yaml").write_text("rules:\n- drop: true\nsince: 2026-01-31\n")
    more = ("--port", "metrics=9100", "--port", "dns=53/udp", "--label", "a=b")
    values = ("--values", str(tmp_path / "values.yaml"))
    applied = cli("dpu", "services", "apply", dpu, "edge", *THERE, *values, *more)
    assert applied.stdout == "edge ready (1 of 1 pods)\n"
    found = cli.json("dpu", "services", "show", dpu, "edge")
    assert found["values"] == {"rules": [{"drop": True}], "since": "2026-01-31"}
    ports = [(one["name"], one["port"], one["protocol"]) for one in found["ports"]]
    assert ports == [("metrics", 9100, "TCP"), ("dns", 53, "UDP")]
    shown = cli("dpu", "services", "show", dpu, "edge").stdout
    assert "oci://charts.example.org/doca/firewall 1.2.0" in shown
    assert "metrics=9100/TCP dns=53/UDP" in shown
    (row,) = cli("dpu", "services", "list", dpu).stdout.splitlines()[1:]
    assert row.split() == ["edge", "ready", "1/1", "firewall", "1.2.0"]
    changed = cli.json("dpu", "services", "apply", dpu, "edge", *THERE, "--values", "-", stdin='{"a": 1}')
    assert (changed["values"], changed["ports"]) == ({"a": 1}, [])
    assert cli.json("dpu", "services", "remove", dpu, "edge") == {"removed": "edge"}
    cli("dpu", "services", "remove", dpu, "edge")
    cli("dpu", "services", "show", dpu, "edge", code=3)


def test_a_chain_is_connected_listed_shown_and_removed(cli, dpu):
    cli("dpu", "services", "apply", dpu, "edge", *THERE, "--interface", "net1", "--interface", "net2")
    assert "net1 net2" in cli("dpu", "services", "show", dpu, "edge").stdout
    switches = ("--switch", "p0, edge:net1", "--switch", "edge:net2,pf0vf3")
    assert cli("dpu", "chains", "connect", dpu, "web", *switches).stdout == "web ready\n"
    found = cli.json("dpu", "chains", "show", dpu, "web")
    assert found["switches"] == [["p0", "edge:net1"], ["edge:net2", "pf0vf3"]]
    assert "switch  p0, edge:net1" in cli("dpu", "chains", "show", dpu, "web").stdout
    (row,) = cli("dpu", "chains", "list", dpu).stdout.splitlines()[1:]
    assert row.split() == ["web", "ready", "p0,edge:net1", "edge:net2,pf0vf3"]
    assert "used by chain web" in cli("dpu", "services", "remove", dpu, "edge", code=4).stderr
    refused = cli("dpu", "chains", "connect", dpu, "bad", "--switch", "p1,pf0vf4", code=2).stderr
    assert "switches.0.1" in refused
    assert cli.json("dpu", "chains", "remove", dpu, "web") == {"removed": "web"}
    cli("dpu", "chains", "remove", dpu, "web")
    cli("dpu", "chains", "show", dpu, "web", code=3)
    cli("dpu", "services", "remove", dpu, "edge")
    assert cli("dpu", "chains", "list", dpu).stderr.strip() == "No chains."


def test_a_volume_is_created_listed_shown_and_removed(cli, dpu):
    create = ("dpu", "volumes", "create", dpu)
    assert cli(*create, "data", "--policy", "fast", "--size", "20").stdout == "data ready\n"
    files = cli.json(*create, "files", "--policy", "fast", "--size", "1", "--mode", "filesystem", "--no-hotplug")
    assert (files["mode"], files["hotplug"]) == ("filesystem", False)
    rows = [line.split() for line in cli("dpu", "volumes", "list", dpu).stdout.splitlines()[1:]]
    assert rows == [["data", "ready", "20", "GiB", "fast"], ["files", "ready", "1", "GiB", "fast"]]
    assert "pf (plugged in)" in cli("dpu", "volumes", "show", dpu, "data").stdout
    assert "policy" in cli(*create, "bad", "--policy", "slow", "--size", "1", code=2).stderr
    for name in ("data", "files"):
        assert cli.json("dpu", "volumes", "remove", dpu, name) == {"removed": name}
    cli("dpu", "volumes", "show", dpu, "data", code=3)
    assert cli("dpu", "volumes", "list", dpu).stderr.strip() == "No volumes."


def test_a_vpc_is_created_listed_shown_and_removed(cli, dpu):
    create = ("dpu", "vpcs", "create", dpu, "lab", "--isolation", "ovn")
    parts = ("--network", "blue=10.30.1.0/24=pf0vf1,pf0vf2", "--network", "red=10.30.2.0/24=pf1")
    assert cli(*create, *parts, "--external", "red", "--no-masquerade", "red").stdout == "lab ready\n"
    (row,) = cli("dpu", "vpcs", "list", dpu).stdout.splitlines()[1:]
    assert row.split() == ["lab", "ready", "blue=10.30.1.0/24=pf0vf1,pf0vf2", "red=10.30.2.0/24=pf1"]
    assert "red=10.30.2.0/24=pf1 external no masquerade" in cli("dpu", "vpcs", "show", dpu, "lab").stdout
    assert [one["dhcp"] for one in cli.json("dpu", "vpcs", "show", dpu, "lab")["networks"]] == [True, True]
    for odd in (("--network", "blue"), (*parts, "--external", "green"), ("--network", "b=10.30.1.0/24=p0")):
        assert "network" in cli(*create, *odd, code=2).stderr
    assert cli.json("dpu", "vpcs", "remove", dpu, "lab") == {"removed": "lab"}
    cli("dpu", "vpcs", "show", dpu, "lab", code=3)
    assert cli("dpu", "vpcs", "list", dpu).stderr.strip() == "No VPCs."


def test_a_network_is_created_listed_shown_and_removed(cli, dpu):
    made = cli("dpu", "networks", "create", dpu, "blue", "--subnet", "10.20.1.0/24", "--addresses", "32")
    assert made.stdout == "blue ready\n"
    divided = ("--network", "10.20.16.0/22", "--prefix", "26", "--gateway-index", "1")
    assert cli.json("dpu", "networks", "create", dpu, "wide", *divided)["prefix"] == 26
    rows = [line.split() for line in cli("dpu", "networks", "list", dpu).stdout.splitlines()[1:]]
    assert rows == [["blue", "ready", "10.20.1.0/24"], ["wide", "ready", "10.20.16.0/22", "in", "/26"]]
    shown = cli("dpu", "networks", "show", dpu, "blue").stdout
    assert "10.20.1.1" in shown
    assert "32" in shown
    refused = cli("dpu", "networks", "create", dpu, "bad", "--subnet", "10.21.0.0/24", code=2).stderr
    assert "subnet" in refused
    for name in ("blue", "wide"):
        assert cli.json("dpu", "networks", "remove", dpu, name) == {"removed": name}
    cli("dpu", "networks", "show", dpu, "blue", code=3)
    assert cli("dpu", "networks", "list", dpu).stderr.strip() == "No networks."


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("a:\n", "values.a: Helm values cannot be null"), ("pod: {nodeName: x}\n", "values.pod.nodeName"),
        ("a: *b\n", "cannot be read"), ("- a\n", "must be an object"),
    ],
)  # fmt: skip
def test_bad_values_are_refused_before_they_are_sent(cli, dpu, values, said):
    refused = cli("dpu", "services", "apply", dpu, "bad", *THERE, "--values", "-", stdin=values, code=2)
    assert said in refused.stderr


def test_a_bad_option_or_chart_is_refused_with_its_field(cli, dpu):
    for odd in (("--port", "metrics"), ("--label", "dpu.nvidia.com/a=b"), ("--values", "/nowhere")):
        refused = cli("dpu", "services", "apply", dpu, "bad", *THERE, *odd, code=2)
        assert odd[0].strip("-") in refused.stderr
    other = ("--repository", "oci://elsewhere.example.org", *THERE[2:])
    assert "chart.repository" in cli("dpu", "services", "apply", dpu, "bad", *other, code=2).stderr
    assert cli("dpu", "services", "list", dpu).stderr.strip() == "No services."


def test_values_that_are_too_long_are_refused_not_cut_off(monkeypatch, tmp_path):
    long = "# \n" * (96 << 10) + "a: b\nlimit: 1\n"
    (tmp_path / "values.yaml").write_text(long)
    monkeypatch.setattr("sys.stdin", io.StringIO(long))
    for file in ("-", str(tmp_path / "values.yaml")):
        with pytest.raises(InvalidRequest, match="longer than 256 KiB"):
            _values(file)
