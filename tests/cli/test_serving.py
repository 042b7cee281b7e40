"""A web site and its files from the shell."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

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
