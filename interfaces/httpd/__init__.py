"""A lease's own web server: publish pages and get their addresses."""

from interfaces.httpd.contract import Httpd, HttpdState, HttpdStatus, LogPart
from interfaces.httpd.nginx import NginxHttpd
from interfaces.httpd.site import Site

__all__ = ["Httpd", "HttpdState", "HttpdStatus", "LogPart", "NginxHttpd", "Site"]
