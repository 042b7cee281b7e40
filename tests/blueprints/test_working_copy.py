"""The kind working_copy: conformance with a real git, hostile addresses, refs and repositories, and reuse."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from blueprints.answers import Failed, Json, Wait
from blueprints.layered.workingcopy.kind import WorkingCopy
from blueprints.layered.workingcopy.names import prompts_of
from blueprints.layered.workingcopy.scripts import GIT
from blueprints.layered.workingcopy.work import _progress
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import Outside
from interfaces.command import Command, JobSpec
from interfaces.errors import PathEscape
from interfaces.filesystem import Filesystem
from tests.blueprints.layered_peers import Machine, OnMachine, machine

__all__ = ["machine"]

ENV = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    """git here, as ourselves."""
    done = subprocess.run(["git", *words], cwd=folder, env=ENV, capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


class Upstream:
    """A repository with a branch more, a tag, odd names, a link out of it, and hooks in its content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "upstream"
        self.folder.mkdir(mode=0o755)
        git(self.folder, "init", "-q", "-b", "main")
        for name in ("readme", "ünï ☃", "two\nlines", "-dash", "empty"):
            (self.folder / name).write_text("" if name == "empty" else name)
        (self.folder / "out").symlink_to("/etc/passwd")
        (self.folder / "up").symlink_to("../..")
        (self.folder / ".gitattributes").write_text("readme filter=evil\n")
        self.first = self.commit("first")
        git(self.folder, "tag", "v1")
        git(self.folder, "branch", "topic/one")
        (self.folder / "readme").write_text("second")
        self.second = self.commit("second")

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def commit(self, message: str) -> str:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "-m", message)
        return git(self.folder, "rev-parse", "HEAD")


class WorkingCopyBench(OnMachine):
    """How to look at working copies on this machine."""

    kind = WorkingCopy()
    pace = 0.1
    more: Json = {}
    asks: Json = {}

    @pytest.fixture(autouse=True)
    def _upstream(self, _machine: None) -> None:
        self.upstream = Upstream(self.machine.folder)

    def config(self) -> Json:
        return {"protocols": ["file", "https", "ssh"], "author_name": "Ann", "author_email": "ann@x.org", **self.more}

    def requirements(self) -> Json:
        return {"repository": self.upstream.url, **self.asks}

    def impossible(self) -> Json:
        return {"repository": "git://example.com/x"}

    def outside(self) -> Sequence[Outside]:
        found = [str(each) for home in self.machine.homes for each in home.glob("conf-*/git/mirror")]
        return [Outside(name=name) for name in sorted(found)]

    def kill(self, resource: ResourceView) -> None:
        subprocess.run(["rm", "-rf", f"{resource.facts['folder']}.control/git/mirror"], check=True)

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        return self.machine.processes()

    def litter(self, lease: LeaseView) -> None:
        command = self.command(lease)
        command.check("echo x >litter; mkdir shut; touch shut/x; chmod 0 shut; echo x >~/beside; echo x >>readme")
        command.check("mkdir -p .git/hooks; printf '#!/bin/sh\ntouch ~/hooked' >.git/hooks/post-checkout")
        command.check("chmod +x .git/hooks/post-checkout; git config core.fsmonitor 'touch ~/fsmonitor'")
        command.check("git commit -q --allow-empty -m mine; git tag mine; git branch mine")
        command.check("(setsid sleep 1000 &) >/dev/null 2>&1")

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        folder = Path(lease.resource.facts["folder"])
        ours = {f"{folder.name}.control", ".ssh"}
        return [each.name for each in folder.parent.iterdir() if each.name not in ours] + self.machine.processes()

    def command(self, lease: LeaseView) -> Command:
        found = lease.interface("command")
        assert isinstance(found, Command)
        return found

    def files(self, lease: LeaseView) -> Filesystem:
        found = lease.interface("filesystem")
        assert isinstance(found, Filesystem)
        return found


class TestWorkingCopy(WorkingCopyBench):
    """Over file://, read with the rights of the lease's account."""

    def test_refs_are_branches_tags_and_commits(self) -> None:
        resource, upstream = self.built(), self.upstream
        expected = {
            "": (upstream.second, "main"), "main": (upstream.second, "main"), "v1": (upstream.first, ""),
            "topic/one": (upstream.first, "topic/one"), "refs/heads/main": (upstream.second, "main"),
            "refs/tags/v1": (upstream.first, ""), upstream.first: (upstream.first, ""),
        }  # fmt: skip
        for ref, (commit, branch) in expected.items():
            self.asks = {"ref": ref} if ref else {}
            lease = self.activated(self.lease(resource))
            assert (lease.facts["commit"], lease.facts["branch"]) == (commit, branch), ref
            assert self.command(lease).check("git rev-parse HEAD; git status --porcelain").text == f"{commit}\n"
            self.ready("deactivate", resource, lease)
        self.destroyed(resource)

    def test_what_is_not_there_is_said_in_gits_words(self) -> None:
        resource = self.built()
        self.asks = {"ref": "no-such"}
        answer = self.run("activate", resource, self.lease(resource)).answer
        assert isinstance(answer, Failed)
        assert "no branch, tag or commit no-such" in answer.message
        self._end(self.lease(resource))
        self.asks = {"repository": "file:///no/such/repository"}
        outcome = self.run("build", self.resource())
        assert isinstance(outcome.answer, Failed)
        assert "does not appear to be a git repository" in outcome.answer.message
        assert len(outcome.answer.message) <= 400
        self.destroyed(outcome.spec.resource)

    def test_the_next_lease_finds_nothing_of_the_one_before_and_what_is_new_upstream(self) -> None:
        resource = self.built()
        lease = self.activated(self.lease(resource))
        self.litter(lease)
        for phase in ("deactivate", "clean"):
            self.ready(phase, resource, lease)
        (self.upstream.folder / "readme").write_text("third")
        third = self.upstream.commit("third")
        after = self.activated(self.lease(resource))
        command = self.command(after)
        assert after.facts["commit"] == third
        assert command.check("git status --porcelain; git tag; git branch --format='%(refname)'").text == (
            "v1\nrefs/heads/main\n"
        )
        assert "mine" not in command.check("git log --all --format=%s").text
        assert "fsmonitor" not in command.check("git config --list").text
        assert command.check("ls -A ~").text == ""
        self._end(after)

    def test_objects_that_a_lease_forged_do_not_survive(self) -> None:
        resource = self.built()
        lease = self.activated(self.lease(resource))
        command = self.command(lease)
        command.check("git unpack-objects -q <$(mv .git/objects/pack/*.pack ~/p; echo ~/p); rm -f .git/objects/pack/*")
        forged = "import zlib,sys; open(sys.argv[1],'wb').write(zlib.compress(b'blob 6\\0forged'))"
        blob = command.check("git rev-parse HEAD:readme").text.strip()
        path = f".git/objects/{blob[:2]}/{blob[2:]}"
        command.check(["sh", "-c", f'rm -f {path}; python3 -c "$1" {path}', "sh", forged])
        for phase in ("deactivate", "clean"):
            self.ready(phase, resource, lease)
        after = self.activated(self.lease(resource))
        assert self.files(after).read_text("readme") == "second"
        assert self.command(after).run("git fsck --full").ok
        self._end(after)

    def test_nothing_that_a_repository_brings_is_executed(self) -> None:
        marker = self.machine.folder / "marker"
        hooks = self.upstream.folder / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        for name in ("post-checkout", "reference-transaction", "post-upload-pack", "pre-receive"):
            (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}\n")
            (hooks / name).chmod(0o755)
        git(self.upstream.folder, "config", "uploadpack.packObjectsHook", f"touch {marker};")
        lease = self.activated(self.lease(self.built()))
        assert not marker.exists()
        self._end(lease)

    def test_links_in_a_repository_do_not_lead_file_operations_out(self) -> None:
        lease = self.activated(self.lease(self.built()))
        files = self.files(lease)
        for path in ("out", "up/x", "../x"):
            with pytest.raises(PathEscape):
                files.read_bytes(path)
        assert {"ünï ☃", "two\nlines", "-dash", "empty"} <= {entry.name for entry in files.list()}
        assert files.read_bytes("empty") == b""
        self._end(lease)

    def test_a_private_repository_of_another_account_stays_closed(self) -> None:
        if not self.machine.own_account:
            pytest.skip("needs accounts")
        self.upstream.folder.chmod(0o700)
        outcome = self.run("build", self.resource())
        assert isinstance(outcome.answer, Failed)
        self.destroyed(outcome.spec.resource)

    def test_jobs_begin_in_the_copy_and_git_does_not_see_them(self) -> None:
        lease = self.activated(self.lease(self.built()))
        jobs = self.command(lease).jobs
        jobs.start(JobSpec(id="here", words="pwd; git status --porcelain"))
        jobs.wait("here", timeout=30, every=0.05)
        assert jobs.output("here").content.decode() == f"{lease.facts['folder']}\n"
        self._end(lease)

    def test_the_author_is_known(self) -> None:
        lease = self.activated(self.lease(self.built()))
        self.command(lease).check("git commit -q --allow-empty -m x")
        assert self.command(lease).check("git log -1 --format='%an %ae'").text == "Ann ann@x.org\n"
        self._end(lease)

    def test_another_repository_is_another_working_copy(self) -> None:
        config, asked = self.blueprint().config, self.asked({"repository": "https://example.com/a"})
        (draft,) = self.kind.drafts(config, asked)
        assert draft.attributes == {"repository": "https://example.com/a"}
        assert not list(self.kind.drafts(config, None))


class TestShallowWorkingCopy(WorkingCopyBench):
    """With one commit only."""

    more = {"depth": 1}
    asks = {"ref": "main"}

    def test_only_so_much_is_fetched_also_again(self) -> None:
        resource = self.built()
        for _ in range(2):
            lease = self.activated(self.lease(resource))
            assert self.command(lease).check("git rev-list --count HEAD").text == "1\n"
            for phase in ("deactivate", "clean"):
                self.ready(phase, resource, lease)
        self.destroyed(resource)


def test_a_credential_is_used_and_shown_nowhere(machine: Machine) -> None:
    bench = WorkingCopyBench()
    bench.machine, bench.leased = machine, {}
    secrets = {"private_key": "PRIVATE-KEY-" + "x" * 40, "username": "u", "password": "pass-word-12345"}
    bench.credentials = lambda: {"deploy": secrets}  # type: ignore[method-assign]
    bench.config = lambda: {"credential": "deploy", "protocols": ["ssh"], "repositories": ["ssh://git@127.0.0.1:1/*"]}  # type: ignore[method-assign]
    bench.requirements = lambda: {"repository": "ssh://git@127.0.0.1:1/x"}  # type: ignore[method-assign]
    outcome = bench.run("build", bench.resource())
    assert isinstance(outcome.answer, Failed)
    expected = "Connection refused" if machine.own_account else "not given to this host"
    assert expected in outcome.answer.message
    left = subprocess.run(["grep", "-rlE", "PRIVATE-KEY|pass-word", str(machine.folder)], capture_output=True)
    assert not left.stdout
    bench.destroyed(outcome.spec.resource)


HOSTILE = (
    "-oProxyCommand=touch /tmp/x", "ext::sh -c touch% /tmp/x", "fd::17", "ssh://-oProxyCommand=x/y", "-x@host:path",
    "host:-x", "file://host/etc", "/etc", "../etc", "file:///a/../../etc", "file:///a/%2e%2e/b", "https://u:p@example.com/x",
    "https://u@example.com/x", "https://example.com/a b", "https://example.com/a\nb", "https://example.com/a\x00b",
    "ext::ssh://x/y", "transport::https://x/y", "https://example.com", "user@-host:x", "https://example.com/$(x)`", "",
    "ssh://git@host/srv/team/..%2fother/secret.git", "https://example.com/team/%252e%252e/x", "https://example.com/a%5c..%5cb",
    "https://example.com/team%2fx", "https://example.com/a%00b", "https://example.com/a%",
)  # fmt: skip


@pytest.mark.parametrize("repository", HOSTILE)
def test_what_is_no_plain_address_is_refused(repository: str) -> None:
    with pytest.raises(ValidationError):
        WorkingCopy.Requirements(repository=repository)


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=touch /tmp/x", "-x", "a..b", "a~1", "HEAD^", "@{-1}", "HEAD", "@", "a b", "a\nb", ":x", "a:b",
        "x.lock", ".x", "a/.b", "a//b", "/a", "a/", "a.", "", "\\x", "x" * 251,
    ],
)  # fmt: skip
def test_what_is_no_plain_ref_is_refused(ref: str) -> None:
    with pytest.raises(ValidationError):
        WorkingCopy.Requirements(ref=ref)


def test_protocols_and_patterns_say_what_is_allowed() -> None:
    def drafted(repository: str, **config: Any) -> bool:
        bench = WorkingCopyBench()
        bench.config = lambda: config  # type: ignore[method-assign]
        asked = bench.asked({"repository": repository})
        return bool(list(bench.kind.drafts(bench.blueprint().config, asked)))

    assert drafted("https://example.com/a")
    assert drafted("git@example.com:a/b.git")
    assert not drafted("file:///srv/a")
    assert drafted("file:///srv/a", protocols=["file"])
    assert drafted("https://example.com/team/x", repositories=["https://example.com/team/*"])
    assert not drafted("https://example.com/other", repositories=["https://example.com/team/*"])
    assert not drafted("ssh://example.com/team/x", repositories=["https://example.com/team/*"])
    assert drafted("https://example.com/team/a%20b/c", repositories=["https://example.com/team/*"])
    assert drafted("https://A.example.com/team/x", repositories=["https://*.example.com/*/x"])
    assert drafted("git@host:team/x", repositories=["git@host:team/*"])
    assert drafted("file:///srv/team/x", protocols=["file"], repositories=["file:///srv/*"])
    for other, pattern in (
        ("https://evil.net/a.example.com/x.git", "https://*.example.com/*"),
        ("https://a.b.example.com/x", "https://*.example.com/*"),
        ("ssh://git@evil.net/@host/team/x", "ssh://*@host/team/*"),
        ("https://host:8443/x", "https://host/*"),
        ("https://host:44/3/x", "https://host:44*/x"),
        ("ssh://root@host/x", "ssh://host/*"),
        ("host:x/team/y", "git@host:*"),
        ("https://example.com/x", "*"),
    ):
        assert not drafted(other, repositories=[pattern]), other


def test_a_credential_needs_repositories_it_is_for() -> None:
    bench = WorkingCopyBench()
    asked = bench.asked({"repository": "https://evil.example/x.git"})
    for more, field in (({}, "repositories"), ({"repositories": ["*"]}, "repositories")):
        config = {"credential": "deploy", "known_hosts": ["x"], **more}
        bench.config = partial(dict, config)  # type: ignore[method-assign]
        (problem,) = bench.kind.check_blueprint(bench.blueprint())
        assert (problem.field, problem.fatal) == (field, True)
        assert not list(bench.kind.drafts(bench.blueprint().config, asked))


class Asking(BaseHTTPRequestHandler):
    """Wants a name and a password whatever one asks for, and keeps what it is told."""

    told: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.told.append(self.headers.get("Authorization", ""))
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def asking() -> Iterator[str]:
    Asking.told.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Asking) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _told(tmp_path: Path, url: str, secrets: dict[str, str], prompts: tuple[str, ...]) -> list[str]:
    """What the server was told when git fetched from it with the secrets."""
    asked = "".join(f"{each}\n" for each in prompts)
    words = ["/bin/sh", "-c", GIT, "sh", str(tmp_path), "http:https:ssh", "false", "", asked]
    given = f"{secrets['username']}\n{secrets['password']}\n".encode()
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([*words, url, "0", "fetch"], env=env, input=given, capture_output=True, timeout=60, cwd="/")
    assert done.returncode == 1
    assert not (tmp_path / "secret").exists()
    return [each for each in Asking.told if each]


@pytest.mark.parametrize("username", ["deploy", "a b@c"])
def test_secrets_are_told_to_the_repositorys_own_server(tmp_path: Path, asking: str, username: str) -> None:
    url, secrets = f"http://{asking}/team/x.git", {"username": username, "password": "pass-word"}
    expected = "Basic " + base64.b64encode(f"{username}:pass-word".encode()).decode()
    assert _told(tmp_path, url, secrets, prompts_of(url, username)) == [expected]


@pytest.mark.parametrize("other", ["https://{}/x", "http://localhost/x", "http://{}1/x", "ssh://{}/x"])
def test_secrets_are_told_to_no_other_server(tmp_path: Path, asking: str, other: str) -> None:
    prompts = prompts_of(other.format(asking), "deploy")
    assert not _told(tmp_path, f"http://{asking}/x", {"username": "deploy", "password": "pass-word"}, prompts)
    assert Asking.told


def test_progress_is_read_off_what_git_says() -> None:
    said = "remote: Counting objects: 100% (9/9)\rReceiving objects:  50% (5/10), 1 KiB\r"
    assert _progress(said, {}) == Wait(after=1.0, percent=40, sentence="Receiving objects.")
    assert _progress("", {"a": 1}).memo == {"a": 1}
