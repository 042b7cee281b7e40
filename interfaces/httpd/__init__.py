"""A lease's own web server: publish pages and get their addresses."""

from interfaces.httpd.contract import Httpd, HttpdState, HttpdStatus, LogPart
from interfaces.httpd.nginx import TLS, NginxHttpd
from interfaces.httpd.site import Site

__all__ = ["TLS", "Httpd", "HttpdState", "HttpdStatus", "LogPart", "NginxHttpd", "Site"]
