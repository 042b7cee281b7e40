"""Downloads of images: HTTP and HTTPS only, with limits on time, and none of what a redirect could change."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from typing import IO, Any
from urllib.parse import urlsplit

from drydock_agent.disks.errors import DiskError
from drydock_agent.package import version

SILENCE = 60.0
"""Seconds without a byte from the server after which a download fails."""
LONGEST = 12 * 3600.0
_SLOW_SECONDS, _SLOW_BYTES = 600.0, 1 << 20
"""A download of fewer bytes in so many seconds fails as well."""
_PIECE, _TRIES, _PAUSE = 1 << 20, 3, 2.0


class Download:
    """The body of an image at an address. Messages name its server and path, but not its query and password."""

    def __init__(self, url: str, *, ca: str = "", silence: float = SILENCE) -> None:
        self._shown = _shown(url)
        self._silence = silence
        self._response = self._opened(url, _context(ca))
        length = self._response.headers.get("Content-Length", "")
        self.length = int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None
        """The bytes that the server announced; None if it did not."""
        self.received = 0
        self._began = self._checked = time.monotonic()
        self._checked_at = 0

    def read(self) -> bytes:
        """Return the next bytes, or none at the end. Raises DiskError."""
        try:
            piece: bytes = self._response.read1(_PIECE)
        except TimeoutError:
            raise DiskError("download", f"{self._shown}: no byte came for {self._silence:.0f} seconds.") from None
        except (OSError, http.client.HTTPException) as error:
            raise DiskError("download", f"{self._shown}: the connection broke: {_reason(error)}.") from None
        self.received += len(piece)
        if not piece and self.length is not None and self.received < self.length:
            raise DiskError(
                "too_short", f"{self._shown}: the server sent {self.received} of {self.length} announced bytes."
            )
        self._check_time()
        return piece

    def closing(self) -> contextlib.closing[Download]:
        """Return a context that ends the connection."""
        return contextlib.closing(self)

    def close(self) -> None:
        """End the connection."""
        self._response.close()

    def _check_time(self) -> None:
        now = time.monotonic()
        if now - self._began > LONGEST:
            raise DiskError("download", f"{self._shown}: the download did not end in {LONGEST / 3600:.0f} hours.")
        if now - self._checked > _SLOW_SECONDS:
            if self.received - self._checked_at < _SLOW_BYTES:
                raise DiskError("download", f"{self._shown}: less than 1 MiB came in {_SLOW_SECONDS:.0f} seconds.")
            self._checked, self._checked_at = now, self.received

    def _opened(self, url: str, context: ssl.SSLContext) -> Any:
        """Open the address. A server that cannot be reached yet is tried again."""
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(context=context), _Redirects(),
            urllib.request.HTTPErrorProcessor(), urllib.request.HTTPDefaultErrorHandler(),
        ):  # fmt: skip
            opener.add_handler(handler)
        asked = urllib.request.Request(  # noqa: S310 - the request checks the scheme, and the opener has no other
            url, headers={"User-Agent": f"drydock-agent/{version()}", "Accept-Encoding": "identity"}
        )
        for left in range(_TRIES, 0, -1):
            try:
                return opener.open(asked, timeout=self._silence)
            except urllib.error.HTTPError as error:
                error.close()
                said = f"{error.code} {http.client.responses.get(error.code, '')}".strip()
                raise DiskError("download", f"{self._shown}: the server answered {said}.") from None
            except ssl.SSLCertVerificationError as error:
                raise self._untrusted(error) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                cause = getattr(error, "reason", error)
                if isinstance(cause, ssl.SSLCertVerificationError):
                    raise self._untrusted(cause) from None
                if left == 1 or not isinstance(cause, OSError):
                    raise DiskError("download", f"{self._shown} cannot be reached: {_reason(cause)}.") from None
                time.sleep(_PAUSE)
        raise AssertionError("the last try returns or raises")

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> DiskError:
        return DiskError(
            "download",
            f"{self._shown}: the certificate is not trusted: {error.verify_message}. Give the authority as ca.",
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects that keep the scheme."""

    max_redirections = 5

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        """Return the request for the new address. Raises DiskError if its scheme is another one."""
        if urlsplit(newurl).scheme.lower() != req.type:
            target = urlsplit(newurl).scheme[:20] or "nothing"
            raise DiskError(
                "download", f"{_shown(req.full_url)}: the server redirects from {req.type} to {target}, which is not "
                f"followed. Use the final address.",
            )  # fmt: skip
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _context(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise DiskError("bad_request", f"ca: the text has no valid certificate in PEM ({_reason(error)}).") from None


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:300]


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200].rstrip(".")
