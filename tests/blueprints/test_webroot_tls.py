"""Web roots with TLS: each lease has a certificate of its own, which ends with it, and cannot lose TLS."""

from __future__ import annotations

import shutil
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import ValidationError

from blueprints.answers import Failed, NeededLock
from blueprints.specs import ResourceView
from drydock.core.errors import InvalidRequest
from interfaces.httpd import NginxHttpd, Site
from tests.blueprints.layered_peers import Machine, machine
from tests.blueprints.test_webroot import WebrootBench, _start, fetch, stranger

__all__ = ["machine"]


_WITHOUT_TLS = """#!/bin/sh
for each; do [ "$last" = -c ] && conf=$each; last=$each; done
! grep -q 'listen .* ssl;' "$conf" || { echo 'the "ssl" parameter requires ngx_http_ssl_module' >&2; exit 1; }
"""


def _tls(resource: ResourceView) -> Path:
    return Path(resource.facts["folder"]) / "nginx/tls"


def _key(resource: ResourceView) -> bytes:
    return (_tls(resource) / "key.pem").read_bytes()


@pytest.fixture
def bench(machine: Machine) -> WebrootBench:
    """How to look at web roots with TLS on this machine."""
    made = WebrootBench()
    made.machine, made.leased, made.tls = machine, {}, True
    return made


def test_with_tls_a_lease_has_a_certificate_that_proves_the_server(bench: WebrootBench) -> None:
    lease = bench.activated(bench.lease(bench.built()))
    uri, certificate = lease.facts["uri"], lease.facts["certificate"]
    assert uri == f"https://127.0.0.1:{lease.facts['port']}/"
    assert len(x509.load_pem_x509_certificates(certificate.encode())) == 1
    assert bench.httpd(lease).publish("page.html", "secured") == f"{uri}page.html"
    assert fetch(f"{uri}page.html", certificate) == (200, b"secured")
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(uri)
    bench.ready("check", lease.resource)
    bench._end(lease)


def test_without_tls_a_lease_has_no_certificate(bench: WebrootBench) -> None:
    bench.tls = False
    lease = bench.activated(bench.lease(bench.built()))
    assert "certificate" not in lease.facts
    assert not _tls(lease.resource).exists()
    bench._end(lease)


def test_a_build_leaves_no_key_and_no_lease_finds_the_key_of_another(bench: WebrootBench) -> None:
    resource = bench.built()
    assert not _tls(resource).exists()
    first = bench.activated(bench.lease(resource))
    key = _key(resource)
    (_tls(resource) / ".drydock-0123").write_text("what an interrupted write has left")
    bench.ready("deactivate", resource, first)
    assert not _tls(resource).exists()
    bench.ready("clean", resource, first)
    second = bench.activated(bench.lease(resource))
    assert _key(resource) != key
    assert second.facts["certificate"] != first.facts["certificate"]
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(second.facts["uri"], first.facts["certificate"])
    assert fetch(second.facts["uri"], second.facts["certificate"])[0] in (403, 404)
    bench._end(second)


def test_a_link_in_place_of_the_keys_is_removed_and_not_followed(bench: WebrootBench) -> None:
    lease = bench.activated(bench.lease(bench.built()))
    elsewhere = bench.machine.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "key.pem").write_text("of another")
    shutil.rmtree(_tls(lease.resource))
    _tls(lease.resource).symlink_to(elsewhere)
    bench.ready("deactivate", lease.resource, lease)
    assert not _tls(lease.resource).is_symlink()
    assert (elsewhere / "key.pem").read_text() == "of another"
    bench._end(lease)


def test_a_start_that_is_repeated_keeps_a_certificate_and_mends_half_a_pair(bench: WebrootBench) -> None:
    resource = bench.built()
    lease = bench.lease(resource)
    first = bench.activated(lease)
    pid = bench.httpd(first).status().pid
    again = bench.activated(first)
    assert again.facts["certificate"] == first.facts["certificate"]
    assert bench.httpd(again).status().pid == pid
    # A worker has died between the key and the certificate.
    (_tls(resource) / "certificate.pem").unlink()
    mended = bench.activated(first)
    assert mended.facts["certificate"] != first.facts["certificate"]
    assert (_tls(resource) / "key.pem").stat().st_mode & 0o777 == 0o600
    private = load_pem_private_key(_key(resource), password=None)
    made = x509.load_pem_x509_certificate(mended.facts["certificate"].encode())
    assert made.public_key() == private.public_key()
    assert fetch(mended.facts["uri"], mended.facts["certificate"])[0] in (403, 404)
    bench._end(mended)


def test_a_certificate_stays_when_its_site_takes_another_port(bench: WebrootBench) -> None:
    resource = bench.built()
    taken = bench.kind.Config.model_validate(bench.config()).ports(_start(resource))[0]
    written: list[bytes] = []

    def lock(needed: NeededLock) -> str:
        written.extend([_key(resource)] if _tls(resource).exists() else [])
        return needed.candidates[0]

    bench.lock = lock  # type: ignore[method-assign]
    with stranger(int(taken)):
        lease = bench.activated(bench.lease(resource))
    assert str(lease.facts["port"]) != taken
    assert written == [_key(resource)]
    assert fetch(lease.facts["uri"], lease.facts["certificate"])[0] in (403, 404)
    bench._end(lease)


@pytest.mark.parametrize("tls", [False, True])
def test_a_lease_cannot_switch_tls(bench: WebrootBench, tls: bool) -> None:
    bench.tls = tls
    lease = bench.activated(bench.lease(bench.built()))
    httpd = bench.httpd(lease)
    with pytest.raises(InvalidRequest, match="tls must be") as refused:
        httpd.configure(Site(address="127.0.0.1", port=lease.facts["port"], listing=True, tls=not tls))
    assert refused.value.field == "tls"
    httpd.configure(replace(httpd.site, listing=True))
    assert lease.facts["uri"].startswith("https:" if tls else "http:")
    assert fetch(lease.facts["uri"], lease.facts.get("certificate", ""))[0] == 200
    bench._end(lease)


def test_a_requirement_of_tls_is_met_by_the_config_only(bench: WebrootBench) -> None:
    for bench.tls in (False, True):
        config = bench.kind.Config.model_validate(bench.config())
        for wanted, expected in ((None, 1), (bench.tls, 1), (not bench.tls, 0)):
            asked = replace(bench.asked(), requirements=bench.kind.Requirements(tls=wanted))
            drafts = bench.kind.drafts(config, asked)
            assert len(drafts) == expected, (bench.tls, wanted)
            assert all(draft.attributes["tls"] is bench.tls for draft in drafts)


def test_a_site_on_all_addresses_has_no_tls_without_a_name(bench: WebrootBench) -> None:
    for address in ("0.0.0.0", "::"):
        with pytest.raises(ValidationError, match="public_host"):
            bench.kind.Config.model_validate({"address": address, "tls": True})
        config = bench.kind.Config.model_validate({"address": address, "tls": True, "public_host": "a.test"})
        assert config.site(8100).hosts == ("a.test",)
        bench.kind.Config.model_validate({"address": address})


@pytest.mark.parametrize("tls", [True, False])
def test_a_changed_blueprint_does_not_change_what_a_web_root_was_built_as(bench: WebrootBench, tls: bool) -> None:
    bench.tls = tls
    resource = bench.built()
    assert resource.attributes["tls"] is tls
    changed = resource.blueprint.config.model_copy(update={"tls": not tls})
    resource = replace(resource, blueprint=replace(resource.blueprint, config=changed))
    lease = bench.activated(bench.lease(resource))
    assert lease.facts["uri"].startswith("https:" if tls else "http:")
    assert ("certificate" in lease.facts) is tls
    bench._end(lease)


def test_an_nginx_without_tls_is_found_by_the_build(bench: WebrootBench) -> None:
    (bench.machine.folder / "nginx").write_text(_WITHOUT_TLS)
    (bench.machine.folder / "nginx").chmod(0o755)
    programs = {"programs": (str(bench.machine.folder / "nginx"),), "usage_check": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NginxHttpd.__init__, "__kwdefaults__", programs)
        answer = bench.run("build", bench.resource()).answer
    assert isinstance(answer, Failed)
    assert (answer.code, "ngx_http_ssl_module" in answer.message) == ("config_refused", True)
