"""A lease's own web server: publish pages and get their addresses."""

from interfaces.httpd.certificate import fingerprint, keep_certificate, new_certificate
from interfaces.httpd.contract import Httpd, HttpdState, HttpdStatus, LogPart
from interfaces.httpd.nginx import TLS_FOLDER, NginxHttpd
from interfaces.httpd.site import Site

__all__ = [
    "TLS_FOLDER",
    "Httpd",
    "HttpdState",
    "HttpdStatus",
    "LogPart",
    "NginxHttpd",
    "Site",
    "fingerprint",
    "keep_certificate",
    "new_certificate",
]
