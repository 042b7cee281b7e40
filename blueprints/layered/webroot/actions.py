"""Step actions for a web root, in the leased storage."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLease, NeededLock, Ready, Scope
from blueprints.hosts import HOST
from blueprints.layered.account import Account, account, in_stages
from blueprints.layered.frame import Below
from blueprints.layered.webroot import server
from blueprints.specs import LeaseView, Spec
from drydock.core.errors import NotSupported
from interfaces.command import Command
from interfaces.errors import ConfigRefused, PathMissing, PortTaken
from interfaces.httpd import TLS_FOLDER, HttpdState, Site, keep_certificate

_ATTEMPTS = 16
_CLEARING = "Files of the site are being removed."

# Left from the folder itself, in which no process of the account is any more: a link in its place is not followed.
# The folder `tls` goes as a whole, because a write that was interrupted leaves the key under another name.
_FORGET = r"""
cd -P -- "$1/nginx" 2>/dev/null && [ "$(pwd -P)" = "$1/nginx" ] || exit 0
rm -f -- wanted nginx.pid site.json && rm -rf -- tls
"""
_PAGES = r"""
mkdir -m 755 -- "$1" 2>/dev/null
[ -z "$2" ] || chown -h "$2:$3" -- "$1"
"""
BELOW = Below(server.STORAGE)


def have_storage(spec: Spec, memo: Json) -> Answer:
    """Lease storage for pages, logs and nginx's own files. The storage's account runs the server."""
    if server.STORAGE in spec.parents:
        return Ready()
    config, size = spec.config, Amounts(disk_mib=spec.resource.capacity.disk_mib)
    wanted = NeededLease(
        name=server.STORAGE, type="storage", requirements=dict(config.storage), amounts=size, exclusive=True
    )
    return Need(leases=(wanted,))


def _prepare(spec: Spec, memo: Json, storage: LeaseView) -> Answer:
    files = server.files_of(storage)
    httpd = server.httpd_of(storage, _site(spec, spec.config.first_port))
    _certificate(storage, httpd.site)
    try:
        httpd.configure(httpd.site)
    except (ConfigRefused, NotSupported) as error:
        return Failed(scope=Scope.OFFER, code=error.code, message=str(error))
    files.remove(f"{server.OWN}/nginx.conf")
    files.remove(TLS_FOLDER, recursive=True)
    return Ready(facts={"folder": files.root, "root": f"{files.root}/{server.PAGES}", "storage": storage.resource.name})


prepare = BELOW.needed(_prepare)


def _start(spec: Spec, memo: Json, storage: LeaseView) -> Answer:
    held = [spec.locks[name] for name in _lock_names() if name in spec.locks]
    if not held:
        return _ask_for_port(spec, storage, held)
    site = _site(spec, int(held[-1]))
    certificate = _certificate(storage, site)
    try:
        _serve(storage, site)
    except PortTaken as error:
        return _ask_for_port(spec, storage, held, str(error))
    command = storage.interface("command")
    assert isinstance(command, Command)
    if not server.answers(command, site, spec.deadline / 2):
        return Failed(scope=Scope.STEP, code="no_answer", message=f"The web server does not answer on {site.listen}.")
    root = f"{server.files_of(storage).root}/{server.PAGES}"
    facts = {"uri": site.uri(), "address": site.address, "port": site.port, "root": root, "site": site.to_json()}
    facts |= {"certificate": certificate} if certificate else {}
    return Ready(facts=json.loads(json.dumps(facts)))


start = BELOW.needed(_start)


def _site(spec: Spec, port: int) -> Site:
    """Return the site on a port, with or without TLS as the web root was built.

    Leases were matched with that attribute, so a changed blueprint applies to web roots that are built after it.
    """
    site: Site = spec.config.site(port)
    return replace(site, tls=bool(spec.resource.attributes.get("tls")))


def _certificate(storage: LeaseView, site: Site) -> str:
    """Return the certificate of a site, which is made once for each lease; empty if the site has no TLS."""
    return keep_certificate(server.files_of(storage), TLS_FOLDER, site.hosts) if site.tls else ""


def _serve(storage: LeaseView, site: Site) -> None:
    """Configure and start the web server. Raises PortTaken."""
    files, httpd = server.files_of(storage), server.httpd_of(storage, site)
    if _kept(storage) != site:
        httpd.stop()
    httpd.configure(site)
    files.write_text(server.KEPT, json.dumps(site.to_json()))
    httpd.start()


def _kept(storage: LeaseView) -> Site | None:
    try:
        return Site.from_json(json.loads(server.files_of(storage).read_text(server.KEPT)))
    except PathMissing:
        return None


def _ask_for_port(spec: Spec, storage: LeaseView, held: list[str], taken: str = "") -> Answer:
    """Request one more port. Ports in use by other programs stay locked, so that no other site tries them meanwhile."""
    begin = zlib.crc32(spec.resource.key.encode())
    candidates = tuple(port for port in spec.config.ports(begin) if port not in held)
    if len(held) >= _ATTEMPTS or not candidates:
        return Failed(scope=Scope.OFFER, code="port_taken", message=taken or "No port is free.")
    under = storage.resource.parents.get(HOST, storage)
    name = _lock_names()[len(held)]
    return Need(locks=(NeededLock(name=name, scope=f"port of {under.resource.key}", candidates=candidates),))


def _lock_names() -> list[str]:
    return ["port", *(f"port_{n}" for n in range(2, _ATTEMPTS + 1))]


def _stop(spec: Spec, memo: Json, storage: LeaseView) -> Answer:
    there, folder = _account(spec, storage), server.files_of(storage).root

    def forgotten() -> bool:
        there.run(_FORGET, folder)
        return True

    return in_stages(memo, "The web server is being stopped.", there.ended, forgotten) or Ready()


stop = BELOW.ending(_stop)


def _remove(spec: Spec, memo: Json, storage: LeaseView) -> Answer:
    there, folder = _account(spec, storage), server.files_of(storage).root

    def removed() -> bool:
        return all(there.removed(f"{folder}/{each}") for each in (server.PAGES, server.OWN))

    return in_stages(memo, _CLEARING, there.ended, removed, there.ended) or Ready()


remove = BELOW.ending(_remove)


def _renew(spec: Spec, memo: Json, storage: LeaseView) -> Answer:
    there = _account(spec, storage)
    there.run(_PAGES, f"{server.files_of(storage).root}/{server.PAGES}", there.uid, there.gid)
    return Ready()


renew = BELOW.ending(_renew)


def _check(spec: Spec, memo: Json, storage: LeaseView) -> Answer:
    if not server.files_of(storage).exists(server.PAGES):
        return Failed(scope=Scope.STEP, code="gone", message="The folder of the pages no longer exists.")
    site = _kept(storage) or _site(spec, spec.config.first_port)
    now = server.httpd_of(storage, site).status()
    if now.state is HttpdState.FAILED:
        return Failed(scope=Scope.STEP, code="stopped", message=f"The web server has exited: {now.detail}"[:500])
    command = storage.interface("command")
    assert isinstance(command, Command)
    if now.state is HttpdState.RUNNING and not server.answers(command, site, spec.deadline / 2):
        return Failed(scope=Scope.STEP, code="no_answer", message=f"The web server does not answer on {site.listen}.")
    return Ready(facts={"httpd": now.state.value})


check = BELOW.needed(_check)


def _account(spec: Spec, storage: LeaseView) -> Account:
    """Return the account that serves the site, which is the storage's account on the host."""
    return account(storage.resource.parents[HOST], spec.deadline)
