"""The trust store of NVIDIA's BMC, and a transfer by HTTPS that trusts nothing else.

The rules are those of the firmware: https://github.com/NVIDIA/bmcweb, `redfish-core/lib/certificate_service.hpp`;
https://github.com/NVIDIA/phosphor-certificate-manager, `certs_manager.cpp` (ids count up, ten certificates, none twice,
and both refusals are internal errors); https://github.com/NVIDIA/phosphor-bmc-code-mgmt, `http-download` (curl with the
trust store as its only authorities). OpenSSL stands for curl, which uses it.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from interfaces.httpd import fingerprint
from tests.bmc.bluefield import Reply, _refusal

STORE = "/redfish/v1/Managers/Bluefield_BMC/Truststore/Certificates"
ROOM = 10
FAILED = "Transfer of image '{}' to '/dev/rshim0/boot' failed."


@dataclass
class Truststore:
    """The certificates that the BMC trusts."""

    kept: dict[str, str] = field(default_factory=dict)
    """Id -> PEM."""
    counter: int = 0
    changes: int = 0
    """How often the BMC was told to add or to remove a certificate, and did so."""

    def add(self, pem: str) -> str:
        """Add a certificate of somebody else. Returns its id."""
        self.counter += 1
        self.kept[str(self.counter)] = pem
        return str(self.counter)

    def answer(self, method: str, path: str, given: Any) -> Reply | None:
        """Answer a request; None if it is about something else."""
        if path == STORE and method == "GET":
            return "200 OK", {"@odata.id": STORE, "Members": [{"@odata.id": f"{STORE}/{one}"} for one in self.kept]}, []
        if path == STORE and method == "POST":
            return self._install(given)
        found = re.fullmatch(f"{STORE}/(\\d+)", path)
        if found is None or method not in ("GET", "DELETE"):
            return None
        if found[1] not in self.kept:
            return _refusal("404 Not Found", "ResourceNotFound")
        if method == "DELETE":
            del self.kept[found[1]]
            self.changes += 1
            return "204 No Content", None, []
        return "200 OK", self._shown(found[1]), []

    def _install(self, given: Any) -> Reply:
        if given.get("CertificateType") != "PEM":
            return _refusal("400 Bad Request", "PropertyValueNotInList")
        fingerprint(given["CertificateString"])  # it raises ValueError for what is no certificate
        if len(self.kept) >= ROOM or given["CertificateString"] in self.kept.values():
            return _refusal("500 Internal Server Error", "InternalError")
        id = self.add(given["CertificateString"])
        self.changes += 1
        return "200 OK", self._shown(id), []

    def _shown(self, id: str) -> dict[str, Any]:
        return {"@odata.id": f"{STORE}/{id}", "Id": id, "CertificateType": "PEM", "CertificateString": self.kept[id]}

    def fetch(self, address: str) -> tuple[bytes, str]:
        """Fetch a file by HTTPS. Returns its content, and the message with which the task fails if there is one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for pem in self.kept.values():
            with contextlib.suppress(ssl.SSLError):
                context.load_verify_locations(cadata=pem)
        try:
            with urllib.request.urlopen(f"https://{address}", timeout=10, context=context) as response:
                return response.read(), ""
        except (urllib.error.URLError, OSError):
            return b"", FAILED.format(address.partition("/")[2])
