"""The web server of a web root, for its steps and its leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from blueprints.contract import Opener
from blueprints.specs import LeaseView
from drydock.core.errors import InvalidRequest
from interfaces.command import Command
from interfaces.filesystem import RootedFilesystem
from interfaces.httpd import HttpdStatus, NginxHttpd, Site

STORAGE = "storage"
PAGES, OWN = "www", "nginx"
KEPT = f"{OWN}/site.json"

# The certificate is not verified: the request is made on the host itself, and asks only whether the site answers.
_FETCH = r"""
case $1 in https:*) curl=-k wget=--no-check-certificate;; *) curl= wget=;; esac
if command -v curl >/dev/null 2>&1; then curl -s $curl -o /dev/null -m 10 --noproxy '*' "$1" && echo yes || echo no
elif command -v wget >/dev/null 2>&1; then
  wget -q $wget -O /dev/null -T 10 -t 1 --no-proxy "$1"
  case $? in 0|8) echo yes;; *) echo no;; esac
else echo unknown; fi
"""


class SiteHttpd(NginxHttpd):
    """Serves one site, which stays on the port that its lease holds, with or without TLS as the blueprint says."""

    def configure(self, site: Site) -> HttpdStatus:
        if site.listen != self.site.listen:
            raise InvalidRequest(
                f"This site can listen only on {self.site.listen}, the port that its lease holds.", field="port"
            )
        if site.tls != self.site.tls:
            raise InvalidRequest(
                f"The blueprint decides whether a site uses TLS. For this site, tls must be {self.site.tls}.",
                field="tls", hint="Change a copy of the site that the interface has.",
            )  # fmt: skip
        return super().configure(site)


def files_of(storage: LeaseView) -> RootedFilesystem:
    """Return the files of the storage."""
    return cast(RootedFilesystem, storage.interface("filesystem"))


def httpd_of(storage: LeaseView, site: Site, still_mine: Callable[[], None] = lambda: None) -> SiteHttpd:
    """Return the web server of a site in the storage, with the storage's own usage limit."""
    files = files_of(storage)
    return SiteHttpd(
        files.transport,
        still_mine=still_mine,
        folder=files.root,
        site=site,
        usage_check=files.usage_check,
    )


def answers(command: Command, site: Site, seconds: float) -> bool:
    """Return whether the site answers a request made on the host; True if the host has no tool to make one."""
    uri = f"{'https' if site.tls else 'http'}://{site.listen}/"
    return "no" not in command.check(["/bin/sh", "-c", _FETCH, "sh", uri], timeout=seconds).text.split()


def httpd(lease: LeaseView, still_mine: Callable[[], None]) -> SiteHttpd:
    """Return the web server of the lease's site."""
    return httpd_of(lease.resource.parents[STORAGE], Site.from_json(lease.facts["site"]), still_mine)


def filesystem(lease: LeaseView, still_mine: Callable[[], None]) -> RootedFilesystem:
    """Return the files of the lease's site."""
    files = files_of(lease.resource.parents[STORAGE])
    root = f"{files.root}/{PAGES}"
    return RootedFilesystem(files.transport, still_mine=still_mine, root=root, usage_check=files.usage_check)


OPENERS: dict[str, Opener] = {"httpd": httpd, "filesystem": filesystem}
