"""Large folders, names that are no text, and what is no file, over REST: clear answers, nothing half done."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from blueprints.fake.openers import fakes
from drydock_client.errors import DrydockError
from drydock_client.http import HttpClient
from interfaces.fake import _Node
from leases.engine.core import specs
from leases.models import Lease
from leases.rest import files as views_of_files
from tests.rest.attempts import Attempts, archive, entry


@pytest.fixture
def lease(ada, held):
    """The fakes of the lease."""
    found = fakes(specs.key("l", held))
    found.filesystem.write_text("inside", "mine")
    return found


class Bridge:
    """What the client's files ask of a connection, given by the server in this process."""

    def __init__(self, ada, meanwhile):
        self.ada, self.meanwhile = ada, meanwhile

    def send(self, method, path, *, query):
        return self.ada(method, f"{path}?path={query['path']}&recursive=true", code=202)

    def get(self, path):
        self.meanwhile()
        return self.ada("GET", path)


def removal(root: Path, words) -> None:
    """Run a removing job's command, on a folder in place of the lease's own."""
    assert words[:2] == ["/bin/sh", "-c"]
    assert words[4] == "/fake/"
    subprocess.run([*words[:4], str(root), *words[5:]], check=True)


def test_what_takes_long_to_remove_is_removed_by_a_job(ada, held, lease, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(views_of_files, "REMOVE_AT_ONCE", 0)
    monkeypatch.setattr(type(lease.filesystem._files), "remove_tree", lambda *_: False)
    for path in ("big", "a%20b/$(id)%0A", "n%FFo", "."):
        lease.filesystem.mkdir({"a%20b/$(id)%0A": "a b/$(id)\n", "n%FFo": "n\udcffo"}.get(path, path))
        answer = ada.raw("DELETE", f"leases/{held}/file?path={path}&recursive=true")
        assert answer.status_code == 202, answer.content
        job = answer.json()
        assert answer.headers["Location"] == f"/api/v1/jobs/{job['id']}"
        assert ada("GET", f"jobs/{job['id']}")["state"] == "running"
    root = tmp_path / "root"
    for name in (b"big/x/y", b"a b/$(id)\n/z", b"n\xffo/z", b"more/z", b".drydock/jobs"):
        (root / name.decode("utf-8", "surrogateescape")).mkdir(parents=True)
    left = [{"big", "a b", "n\udcffo", "more"}, {"a b", "n\udcffo", "more"}, {"a b", "more"}]
    for spec, expected in zip(lease.command.jobs.started, [left[0] - {"big"}, left[1], left[2], set()], strict=True):
        removal(root, list(spec.words))
        assert {one.name for one in root.iterdir()} - {".drydock"} == expected
    assert not (root / "a b").exists()
    assert (root / ".drydock/jobs").exists(), "the job's own folder stays"


def test_the_client_waits_for_the_job(ada, held, lease, monkeypatch) -> None:
    monkeypatch.setattr(views_of_files, "REMOVE_AT_ONCE", 0)
    monkeypatch.setattr("drydock_client.http.interfaces._POLL", 0)
    monkeypatch.setattr(type(lease.filesystem._files), "remove_tree", lambda *_: False)
    jobs, codes, told = lease.command.jobs, iter([0, 1]), []
    client = object.__new__(HttpClient)  # without asking a server who we are
    client.http = Bridge(ada, lambda: len(told) % 2 or jobs.finish(jobs.started[-1].id, next(codes)))
    lease.filesystem.mkdir("big")
    client.remove_path(held, "big", recursive=True, on_job=told.append)
    assert [job.state for job in told] == ["running", "running"]
    with pytest.raises(DrydockError, match="exit code 1"):
        client.remove_path(held, "big", recursive=True, on_job=told.append)


def test_a_folder_with_a_name_that_is_no_text_is_listed_copied_and_emptied(ada, held, lease) -> None:
    lease.filesystem.write_text("a\udcffb", "odd")
    lease.filesystem.write_text("ü", "even")
    answer = ada.raw("GET", f"leases/{held}/files")
    assert b'"a\\udcffb"' in answer.content
    assert {one["name"] for one in json.loads(answer.content)["results"]} == {"a\udcffb", "inside", "ü"}
    got = ada.raw("GET", f"leases/{held}/file?path=a%FFb")
    assert b"".join(got.streaming_content) == b"odd"
    got.close()
    tree = ada.raw("GET", f"leases/{held}/tree?path=.")
    content = b"".join(tree.streaming_content)
    tree.close()
    with tarfile.open(fileobj=io.BytesIO(content)) as archived:
        assert "tree/a\udcffb" in archived.getnames()
    assert ada("PUT", f"leases/{held}/tree?path=up", content=content, content_type="application/x-tar")["files"] == 3
    assert lease.filesystem.read_text("up/a\udcffb") == "odd"
    ada("PUT", f"leases/{held}/file?path=%FE", content=b"x", code=204)
    for path in ("a%FFb", "%FE", "up"):
        ada("DELETE", f"leases/{held}/file?path={path}&recursive=true", code=204)
    assert [one["name"] for one in ada("GET", f"leases/{held}/files")["results"]] == ["inside", "ü"]
    assert ada("GET", "leases?name=a%FF", code=400)["field"] == "name"
    assert ada("GET", f"leases/{held}/files?path=%00", code=400)["field"] == "path"


def test_what_is_no_file_or_too_long_is_said_to_be(ada, held, lease) -> None:
    lease.filesystem._files._nodes["pipe"] = _Node("other", 0o644)
    attempt = Attempts(ada)
    for address in ("file", "tree", "files"):
        attempt("GET", f"leases/{held}/{address}?path=pipe", 409)
    tar = {"content_type": "application/x-tar"}
    for name in ("top/" + "x" * 300, "x" * 300, "top/" + "/".join(["y" * 200] * 20)):
        answer = attempt(
            "PUT", f"leases/{held}/tree?path=in", 400, content=archive(("top/a", b"1"), (name, b"2")), **tar
        )
        assert "bytes" in answer.json()["detail"]
    attempt.done()
    assert [one["name"] for one in ada("GET", f"leases/{held}/files")["results"]] == ["inside", "pipe"]


def test_what_was_left_out_of_a_tree_is_named(ada, held, lease) -> None:
    odd = [entry("top", tarfile.DIRTYPE), entry("top/out", tarfile.SYMTYPE, "/etc"), entry("top/d", tarfile.CHRTYPE)]
    odd += [entry("top/pipe", tarfile.FIFOTYPE), entry("top/hard", tarfile.LNKTYPE, "/etc/passwd"), ("top/well", b"f")]
    tar = {"content": archive(*odd), "content_type": "application/x-tar"}
    for address in ("tree", "pages"):
        done = ada("PUT", f"leases/{held}/{address}?path=in", **tar)
        assert done == {"files": 1, "bytes": 1, "skipped": ["top/out", "top/d", "top/pipe", "top/hard"]}


def test_a_tree_that_is_too_large_is_refused_by_its_sizes(ada, held, lease, settings, monkeypatch) -> None:
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"tree_limit_bytes": 4096})
    lease.filesystem.write_bytes("tree-a", b"x")
    lease.filesystem.mkdir("tree")
    for name in "ab":
        lease.filesystem.write_bytes(f"tree/{name}", bytes(3000))
    read: list[object] = []
    monkeypatch.setattr("interfaces.fake._MemoryFile.read", lambda *given: read.append(given) or b"")
    assert ada("GET", f"leases/{held}/tree?path=tree", code=413)["code"] == "too_large"
    assert read == [], "nothing was copied before it was refused"
    assert Lease.objects.get(pk=held).state == "active"
