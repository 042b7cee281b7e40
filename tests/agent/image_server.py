"""A web server for images that can fail as servers do."""

from __future__ import annotations

import hashlib
import http.server
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path


class ImageServer:
    """Serves contents under their paths on this machine. `slow` waits for `release` after the first bytes."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.answers: dict[str, Callable[[http.server.BaseHTTPRequestHandler], None]] = {}
        self.release = threading.Event()
        self.asked: list[str] = []
        self._scheme = "http"
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                path = self.path.partition("?")[0]
                if path in outer.answers:
                    outer.answers[path](self)
                elif path in outer.contents:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(outer.contents[path])))
                    self.end_headers()
                    self.wfile.write(outer.contents[path])
                else:
                    self.send_error(404)

            def handle(self) -> None:
                try:
                    super().handle()
                except (ConnectionError, ssl.SSLError):
                    return

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def use_tls(self, certificate: Path) -> None:
        """Serve https with a new certificate of its own, which is written to a file."""
        key = certificate.with_suffix(".key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # Handshakes take place in the thread of each connection, where an error ends only that.
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._scheme = "https"

    def add(self, path: str, content: bytes) -> dict[str, str]:
        """Serve a content. Return the fields of a request for it."""
        self.contents[path] = content
        return {"url": self.url + path, "sha256": hashlib.sha256(content).hexdigest()}

    def redirect(self, path: str, target: str) -> None:
        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        self.answers[path] = answer

    def partial(self, path: str, content: bytes, *, announced: int, waits: bool = False) -> None:
        """Announce more bytes than there are. With `waits`, the connection stays open until `release` is set."""

        def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(announced))
            handler.end_headers()
            handler.wfile.write(content)
            if waits:
                handler.wfile.flush()
                self.release.wait(60)
            handler.close_connection = True

        self.answers[path] = answer

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
