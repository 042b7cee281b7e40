"""The kind webroot: conformance with a real nginx, ports that strangers have, and what is left after a lease."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from blueprints.answers import Failed, Json, NeededLock
from blueprints.layered.webroot.kind import Webroot
from blueprints.layered.within import Within
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import Outside
from drydock.core.errors import InvalidRequest
from interfaces.errors import ConfigRefused, PathEscape, QuotaExceeded
from interfaces.filesystem import Filesystem
from interfaces.httpd import HttpdState, NginxHttpd, Site
from interfaces.httpd.nginx import packaged_program
from tests.blueprints.layered_peers import Machine, OnMachine, machine

__all__ = ["machine"]

FIRST = 21_000 + (os.getpid() * 7) % 8_000


def fetch(uri: str, trusted: str = "") -> tuple[int, bytes]:
    """Status and body; by HTTPS, from a server with this certificate."""
    context = ssl.create_default_context(cadata=trusted) if trusted else None
    try:
        with urllib.request.urlopen(uri, timeout=10, context=context) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@contextmanager
def stranger(port: int) -> Iterator[None]:
    """Somebody else listens on the port."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        yield


class WebrootBench(OnMachine):
    """How to look at web roots on this machine."""

    kind = Webroot()
    ports = (FIRST, FIRST + 5)
    tls = False

    def config(self) -> Json:
        config = {"first_port": self.ports[0], "last_port": self.ports[1], "headers": {"X-From": "drydock"}}
        return config | ({"tls": True} if self.tls else {})

    def requirements(self) -> Json:
        return {"address": "127.0.0.1", **({"tls": True} if self.tls else {})}

    def impossible(self) -> Json:
        return {"address": "10.0.0.1"}

    def outside(self) -> Sequence[Outside]:
        folders = [home / "folder" for home in self.machine.homes]
        return sorted(
            (Outside(name=each.name) for one in folders if one.exists() for each in one.iterdir()), key=lambda o: o.name
        )

    def kill(self, resource: ResourceView) -> None:
        folder = Path(resource.facts["folder"])
        shutil.rmtree(folder)

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        return [line for line in self.machine.processes() if "nginx" in line]

    def litter(self, lease: LeaseView) -> None:
        files = self.files(lease)
        for name in ("zero", "ünï ☃", "two\nlines", "-rf", "sub/folder/page.html"):
            files.mkdir("sub/folder")
            files.write_bytes(name, b"")
        files.chmod("sub/folder", 0)

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        folder = Path(lease.resource.facts["folder"])
        return [str(each) for each in folder.rglob("*") if each != folder / "www"]

    def use(self, interface: object) -> None:
        if isinstance(interface, NginxHttpd):
            interface.publish("index.html", "page")
            assert fetch(interface.uri("/")) == (200, b"page")
        else:
            super().use(interface)  # type: ignore[arg-type]

    def files(self, lease: LeaseView) -> Filesystem:
        found = lease.interface("filesystem")
        assert isinstance(found, Filesystem)
        return found

    def httpd(self, lease: LeaseView) -> NginxHttpd:
        found = lease.interface("httpd")
        assert isinstance(found, NginxHttpd)
        return found


class TestWebroot(WebrootBench):
    """With the nginx that is found."""

    def test_an_empty_site_answers_and_pages_come_and_go(self) -> None:
        lease = self.activated(self.lease(self.built()))
        httpd = self.httpd(lease)
        assert fetch(httpd.uri("/"))[0] in (403, 404)
        assert httpd.publish("sub/page.html", "hello") == f"{lease.facts['uri']}sub/page.html"
        assert fetch(httpd.uri("sub/page.html")) == (200, b"hello")
        self.files(lease).write_bytes("ünï.html", b"file")
        assert fetch(httpd.uri("ünï.html")) == (200, b"file")
        assert httpd.restart().state is HttpdState.RUNNING
        httpd.unpublish("sub")
        assert fetch(httpd.uri("sub/page.html"))[0] == 404
        self._end(lease)
        with pytest.raises(urllib.error.URLError):
            fetch(lease.facts["uri"])

    @pytest.mark.slow
    def test_a_port_that_a_stranger_has_is_passed_over(self) -> None:
        locked: list[NeededLock] = []
        self.lock = lambda needed: locked.append(needed) or needed.candidates[0]  # type: ignore[method-assign,func-returns-value]
        resource = self.built()
        first = self.kind.Config.model_validate(self.config()).ports(_start(resource))[:2]
        with stranger(int(first[0])), stranger(int(first[1])):
            lease = self.activated(self.lease(resource))
            assert [needed.name for needed in locked] == ["port", "port_2", "port_3"]
            assert str(lease.facts["port"]) not in first
            assert fetch(lease.facts["uri"])[0] in (403, 404)
            self._end(lease)

    def test_without_a_free_port_it_fails_clearly(self) -> None:
        self.ports = (FIRST, FIRST)
        resource = self.built()
        with stranger(FIRST):
            answer = self.run("activate", resource, self.lease(resource)).answer
        assert isinstance(answer, Failed)
        assert str(FIRST) in answer.message
        self._end(self.lease(resource))

    def test_a_lease_cannot_move_its_site_to_another_port(self) -> None:
        lease = self.activated(self.lease(self.built()))
        with pytest.raises(InvalidRequest, match="port"):
            self.httpd(lease).configure(Site(address="127.0.0.1", port=FIRST + 100))
        changed = self.httpd(lease).configure(Site(address="127.0.0.1", port=lease.facts["port"], listing=True))
        assert changed.state is HttpdState.RUNNING
        assert fetch(lease.facts["uri"])[0] == 200
        self._end(lease)

    def test_pages_are_confined_and_links_out_of_them_are_not_read(self) -> None:
        lease = self.activated(self.lease(self.built()))
        for path in ("../nginx/nginx.conf", "/etc/passwd"):
            with pytest.raises(PathEscape):
                self.files(lease).write_bytes(path, b"")
            with pytest.raises(PathEscape):
                self.httpd(lease).publish(path, b"")
        self._end(lease)

    def test_what_the_storage_allows_holds_for_pages_too(self) -> None:
        written = []

        def full(size: int) -> None:
            written.append(size)
            if sum(written) > 1 << 20:
                raise QuotaExceeded("More than the storage holds.")

        self.machine.usage_check = full
        lease = self.activated(self.lease(self.built()))
        httpd, files = self.httpd(lease), self.files(lease)
        httpd.publish("small.html", "small")
        with pytest.raises(QuotaExceeded):
            httpd.publish("big.html", bytes(2 << 20))
        with pytest.raises(QuotaExceeded):
            files.write_bytes("big.html", b"x")
        assert [each.name for each in files.list()] == ["small.html"]
        written.clear()
        self._end(lease)

    def test_a_bad_configuration_is_refused_and_the_old_one_serves(self) -> None:
        lease = self.activated(self.lease(self.built()))
        (Path(lease.resource.facts["folder"]) / "nginx" / "nginx.conf").write_text("nonsense;")
        with pytest.raises(ConfigRefused, match="nonsense"):
            self.httpd(lease).reload()
        assert fetch(lease.facts["uri"])[0] in (403, 404)
        self._end(lease)

    def test_the_check_finds_a_server_that_died_but_not_one_that_was_stopped(self) -> None:
        lease = self.activated(self.lease(self.built()))
        self.ready("check", lease.resource)
        httpd = self.httpd(lease)
        httpd.stop()
        self.ready("check", lease.resource)
        os.kill(httpd.start().pid, 9)
        answer = self.run("check", lease.resource).answer
        assert isinstance(answer, Failed)
        self._end(lease)

    def test_the_next_lease_finds_nothing_of_the_one_before(self) -> None:
        resource = self.built()
        lease = self.activated(self.lease(resource))
        self.httpd(lease).publish("secret.html", "secret")
        fetch(f"{lease.facts['uri']}secret.html")
        for phase in ("deactivate", "clean"):
            self.ready(phase, resource, lease)
        after = self.activated(self.lease(resource))
        assert fetch(f"{after.facts['uri']}secret.html")[0] == 404
        assert b'GET /secret.html HTTP/1.1" 200' not in self.httpd(after).logs("access").content
        assert self.kind.reusable_after(after) is self.machine.own_account
        self._end(after)


def test_nginx_is_brought_to_a_host_without_one(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    if packaged_program() is None:
        pytest.skip("the wheel has no nginx for this machine")
    monkeypatch.setattr(NginxHttpd.__init__, "__kwdefaults__", {"programs": ("/no/such/nginx",), "usage_check": None})
    bench = WebrootBench()
    bench.machine, bench.leased = machine, {}
    lease = bench.activated(bench.lease(bench.built()))
    assert (Path(lease.resource.facts["folder"]) / "nginx/bin/nginx").is_file()
    assert fetch(lease.facts["uri"])[0] in (403, 404)
    bench._end(lease)


def _start(resource: ResourceView) -> int:
    return zlib.crc32(resource.key.encode())


def test_a_transport_within_another_never_ends_in_a_slash() -> None:
    class Outer:
        asked: list[str] = []

        def files(self, root: str) -> str:
            self.asked.append(root)
            return root

    within = Within(Outer(), "/a")  # type: ignore[arg-type]
    assert (within.files(""), within.files("b")) == ("/a", "/a/b")  # type: ignore[comparison-overlap]
