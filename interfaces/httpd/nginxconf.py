"""The configuration file of one nginx for one site."""

from __future__ import annotations

import re

from drydock.core.errors import InvalidRequest
from interfaces.httpd.site import Site

# Within quotes nginx reads only the quote, the backslash and the dollar sign as more than themselves. U+FFFD stands for
# bytes that are no UTF-8.
_PATH = re.compile(r'/[^"\\$\x00-\x1f\x7f\ud800-\udfff\ufffd]*')
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_TYPES = {
    "text/html": "html htm",
    "text/css": "css",
    "text/plain": "txt log",
    "text/markdown": "md",
    "text/csv": "csv",
    "text/xml": "xml",
    "application/javascript": "js mjs",
    "application/json": "json map",
    "application/wasm": "wasm",
    "application/pdf": "pdf",
    "application/zip": "zip",
    "application/gzip": "gz tgz",
    "image/png": "png",
    "image/jpeg": "jpg jpeg",
    "image/gif": "gif",
    "image/svg+xml": "svg",
    "image/webp": "webp",
    "image/x-icon": "ico",
    "font/woff2": "woff2",
    "font/woff": "woff",
    "video/mp4": "mp4",
}


def rendered(site: Site, *, prefix: str, pages: str, root_account: str) -> str:
    """The text of the file. `prefix` holds what nginx writes, `pages` what it serves.

    `root_account` is the account's name when it is uid 0, so that the workers can read what it may; else
    "". Raises InvalidRequest for a folder whose name nginx could read as more than a name.
    """
    for folder in (prefix, pages):
        if not _PATH.fullmatch(folder):
            raise InvalidRequest(f"A site cannot be in a folder of this name: {folder!r}.", field="folder")
    if root_account and not _ACCOUNT.fullmatch(root_account):
        raise InvalidRequest("Not the name of an account.", field="account")
    account = f"user {root_account};\n" if root_account else ""
    types = "".join(f"    {kind} {endings};\n" for kind, endings in _TYPES.items())
    scratch = "".join(
        f'  {what}_temp_path "{prefix}/temp/{what}";\n' for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""{account}worker_processes 1;
pid "{prefix}/nginx.pid";
error_log "{prefix}/logs/error.log" notice;
events {{ worker_connections 512; }}
http {{
  types {{
{types}  }}
  default_type application/octet-stream;
  charset utf-8;
  sendfile on;
  server_tokens off;
  access_log "{prefix}/logs/access.log";
{scratch}{_server(site, pages)}}}
"""


def _server(site: Site, pages: str) -> str:
    names = " ".join(site.server_names) or "_"
    headers = "".join(f'    add_header {name} "{value}" always;\n' for name, value in site.headers)
    last = f"/{site.fallback}" if site.fallback else "=404"
    return f"""  server {{
    listen {site.listen};
    server_name {names};
    root "{pages}";
    disable_symlinks on "from={pages}";
    index {" ".join(site.index)};
    autoindex {"on" if site.listing else "off"};
{headers}    location ~ /\\. {{ return 404; }}
    location / {{ try_files $uri $uri/ {last}; }}
  }}
"""
