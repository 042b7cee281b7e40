"""Hostile paths, archives and words: they stay in the lease, and arrive as they are."""

from __future__ import annotations

import errno
import os
import tarfile
from pathlib import Path

from blueprints.fake.openers import fakes
from leases.engine.core import specs
from tests.rest.attempts import METACHARACTERS, Attempts, archive, entry

ESCAPES = ["../x", "a/../../x", "/etc/passwd", "..", "a/\0b", "x" * 5000, "../../../../etc/passwd"]


def test_paths_that_lead_out_of_the_lease(ada, held):
    files = fakes(specs.key("l", held)).filesystem
    files.write_text("inside", "mine")
    attempt = Attempts(ada)
    for path in ESCAPES:
        sent = path.replace("\0", "%00")
        for method, address in (("GET", "file"), ("PUT", "file"), ("DELETE", "file"), ("GET", "files"), ("GET", "tree"),
                                ("PUT", "tree")):  # fmt: skip
            given = {"content": archive(("tree", b"x")) if address == "tree" else b"x", "content_type": "x/y"}
            answer = ada.raw(method, f"leases/{held}/{address}?path={sent}", **(given if method == "PUT" else {}))
            if answer.status_code not in (400, 404, 409):
                attempt.wrong.append(f"{method} {address} {path[:60]!r}: {answer.status_code}")
    attempt("GET", f"leases/{held}/file", 400, "path")
    attempt("PUT", f"leases/{held}/file?path=", 400, "path", content=b"x")
    attempt.wrong += [] if files.read_text("inside") == "mine" else ["inside was changed"]
    assert not attempt.wrong, "\n".join(attempt.wrong)


def test_archives_that_mean_harm(ada, held, tmp_path, monkeypatch):
    passing = tmp_path / "passing"
    passing.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(passing))
    attempt = Attempts(ada)
    good = archive(("top/a", b"x" * 3000))
    for content in (
        b"", b"no archive at all", b"\0" * 2048, good[:700], good[:-1024][:2000], b"\x1f\x8b" + good,
        archive(("top/../../evil", b"x")), archive(("/top/evil", b"x")), archive(("../evil", b"x")),
        archive(("top/a", b"x"), ("other/b", b"x")), archive(("x" * 5000, b"x")),
        good.replace(b"00000005670", b"-0000005670", 1), good[:124] + b"\xff" * 12 + good[136:],
    ):  # fmt: skip
        attempt("PUT", f"leases/{held}/tree?path=in", 400, content=content, content_type="application/x-tar")
    through = archive(entry("top/l", tarfile.SYMTYPE, "d"), entry("top/d", tarfile.DIRTYPE), ("top/l/evil", b"x"))
    attempt("PUT", f"leases/{held}/tree?path=in", 409, content=through, content_type="application/x-tar")
    attempt.done()
    assert list(passing.iterdir()) == []

    odd = [entry("top/out", tarfile.SYMTYPE, "/etc/passwd"), entry("top/up", tarfile.SYMTYPE, "../../x")]
    odd += [entry("top/hard", tarfile.LNKTYPE, "/etc/passwd"), entry("top/pipe", tarfile.FIFOTYPE)]
    odd += [entry("top/device", tarfile.CHRTYPE), ("top/well", b"fine")]
    content = archive(entry("top", tarfile.DIRTYPE), *odd)
    done = ada("PUT", f"leases/{held}/tree?path=in", content=content, content_type="application/x-tar")
    assert (done["files"], done["bytes"]) == (1, 4)
    assert [one["name"] for one in ada("GET", f"leases/{held}/files?path=in")["results"]] == ["well"]
    assert not Path("/evil").exists()


def test_a_body_beyond_its_bound_is_cut_off(ada, held, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"file_limit_bytes": 2000, "tree_limit_bytes": 4000})
    attempt = Attempts(ada)
    attempt("PUT", f"leases/{held}/file?path=big", 413, content=b"x" * 2001, content_type="x/y")
    attempt("PUT", f"leases/{held}/tree?path=big", 413, content=archive(("a", b"x" * 9000)), content_type="x/y")
    chunks = {"Transfer-Encoding": "chunked", "Content-Length": ""}
    attempt("POST", "leases", 411, content=b"", headers=chunks)
    attempt.done()


def test_words_arrive_as_they_are(ada, held):
    jobs = fakes(specs.key("l", held)).command.jobs
    env = {"A": "$(id)'\"\n`x`"}
    given = {"command": METACHARACTERS, "env": env, "cwd": "a b;$(id)", "stdin": "AP8K"}
    ada("POST", f"leases/{held}/jobs", given, code=202)
    spec = jobs.started[-1]
    assert (list(spec.words), dict(spec.env), spec.cwd, spec.stdin) == (METACHARACTERS, env, "a b;$(id)", b"\0\xff\n")

    attempt = Attempts(ada)
    place = f"leases/{held}/jobs"
    attempt("POST", place, 400, body={"command": []})
    attempt("POST", place, 400, body={"command": ""})
    attempt("POST", place, 400, body={"command": {"a": 1}})
    attempt("POST", place, 400, body={"command": ["a", 5]})
    attempt("POST", place, 400, body={"command": ["a\0b"]})
    attempt("POST", place, 400, "stdin", {"command": ["cat"], "stdin": "no base64"})
    attempt("POST", place, 400, "stdin", {"command": ["cat"], "stdin": "AP8"})
    attempt("POST", place, 400, "ends_lease", {"command": ["cat"], "ends_lease": "no"})
    attempt("POST", place, 400, body={"command": ["env"], "env": {"A=B": "x"}})
    attempt("POST", place, 400, body={"command": ["env"], "env": {"A\nB": "x"}})
    attempt("GET", "jobs/999999/output", 404)
    attempt.done()
    assert len(jobs.started) == 1
    assert not os.path.exists("/tmp/hit")


def test_files_and_trees_take_only_some_of_the_threads(ada, held, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"web_threads": 2})
    ada("PUT", f"leases/{held}/file?path=a", content=b"x", code=204)
    ways = [("GET", f"{name}?path=a", {}) for name in ("file", "tree")]
    ways += [("PUT", "file?path=b", {"content": b"x"}), ("PUT", "tree?path=c", {"content": archive(("top", b"x"))})]
    for name in ("file", "tree"):
        slow = ada.raw("GET", f"leases/{held}/{name}?path=a")
        for method, address, given in ways:
            refused = ada.raw(method, f"leases/{held}/{address}", **given)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1"), address
        assert ada("GET", f"leases/{held}")["state"] == "active"
        slow.close()
        for method, address, given in ways:
            taken = ada.raw(method, f"leases/{held}/{address}", **given)
            assert taken.status_code in (200, 204), address
            taken.close()
    assert ada.raw("GET", f"leases/{held}/file?path=nothing").status_code == 404
    last = ada.raw("GET", f"leases/{held}/file?path=a")
    assert last.status_code == 200, "what failed has given its place back"
    last.close()


def test_a_full_folder_for_what_passes_through_is_said(ada, held, monkeypatch):
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    assert ada("GET", f"leases/{held}/tree", code=507)["code"] == "no_space"
