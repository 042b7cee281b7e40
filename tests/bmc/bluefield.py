"""The BMC of a BlueField-3 over TLS, from the captured tree and from what newer firmware answers.

with bluefield() as bmc:
    access = bmc.access()

It locks its account after four refused logins, as the captured AccountService says, and lets an account with the
factory's password do nothing but change it, as OpenBMC does.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.bmc.captured import tree
from tests.bmc.double import Server, _dropped, certificate

CAPTURE = "nvidia_dpu.tar.gz"
FACTORY = "0penBmc"
SERIAL = "MT2328XZ185R"
SESSIONS = "/redfish/v1/SessionService/Sessions"
ACCOUNT = "/redfish/v1/AccountService/Accounts/root"
THRESHOLD, SHORTEST, LONGEST = 4, 13, 20
Reply = tuple[str, Any, list[tuple[str, str]]]


def small(serial: str = SERIAL) -> dict[str, Any]:
    """Return a small tree with the traps of the capture, for tests that run without it."""
    system, service = "/redfish/v1/Systems/Bluefield", "/redfish/v1/UpdateService"
    versions = {"BMC_Firmware": "BF-24.07-14", "DPU_OS": "DOCA_2.5.0", "DPU_BOARD": "MT_0000000884",
                "golden_image_arm": "no valid golden_image_arm!!!!"}  # fmt: skip
    inventory = f"{service}/FirmwareInventory"
    found: dict[str, Any] = {
        "/redfish/v1": {
            "Product": "Nvidia-BMCMezz", "RedfishVersion": "1.9.0", "UUID": "ace79559-b47c-419e-a99c-53f635051aa2",
            "Systems": {"@odata.id": "/redfish/v1/Systems"}, "Chassis": {"@odata.id": "/redfish/v1/Chassis"},
            "UpdateService": {"@odata.id": service}, "AccountService": {"@odata.id": "/redfish/v1/AccountService"},
            "Links": {"Sessions": {"@odata.id": SESSIONS}},
        },
        "/redfish/v1/Systems": {"Members": [{"@odata.id": system}]},
        system: {
            "Model": None, "SerialNumber": f"{serial}            ", "PowerState": "On",
            "Bios": {"@odata.id": f"{system}/Bios"},
            "Status": {"Health": "OK", "HealthRollup": "OK", "State": "Enabled"},
            "Actions": {"#ComputerSystem.Reset": {
                "@Redfish.ActionInfo": f"{system}/ResetActionInfo", "target": f"{system}/Actions/ComputerSystem.Reset",
            }},
        },
        f"{system}/ResetActionInfo": {"Parameters": [
            {"Name": "ResetType", "AllowableValues": ["On", "ForceOff", "ForceRestart", "GracefulShutdown"]},
        ]},
        f"{system}/Bios": {"Attributes": {"NicMode": "DpuMode", "Host Privilege Level": "Unavailable"}},
        "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/Card1"}]},
        "/redfish/v1/Chassis/Card1": {
            "ChassisType": "Card", "Model": "Bluefield 3 SmartNIC Main Card", "PartNumber": "900-9D3B6-00CV-AA0   ",
            "SerialNumber": f"{serial}            ", "Links": {"ComputerSystems": [{"@odata.id": system}]},
        },
        service: {
            "FirmwareInventory": {"@odata.id": inventory},
            "Actions": {
                "#UpdateService.SimpleUpdate": {
                    "TransferProtocol@Redfish.AllowableValues": [["SCP"]],
                    "target": f"{service}/Actions/UpdateService.SimpleUpdate",
                },
                "Oem": {"Nvidia": {"#NvidiaUpdateService.PublicKeyExchange": {
                    "target": f"{service}/Actions/Oem/NvidiaUpdateService.PublicKeyExchange",
                }}},
            },
        },
        inventory: {"Members": [{"@odata.id": f"{inventory}/{name}"} for name in versions]},
        **{f"{inventory}/{name}": {"Id": name, "Version": version} for name, version in versions.items()},
        "/redfish/v1/AccountService": {"Accounts": {"@odata.id": "/redfish/v1/AccountService/Accounts"}},
        "/redfish/v1/AccountService/Accounts": {"Members": [{"@odata.id": ACCOUNT}]},
        ACCOUNT: {"UserName": "root", "RoleId": "Administrator",
                  "Links": {"Role": {"@odata.id": "/redfish/v1/AccountService/Roles/Administrator"}}},
        "/redfish/v1/AccountService/Roles/Administrator": {
            "AssignedPrivileges": ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents"],
        },
    }  # fmt: skip
    return {path: {"@odata.id": path, "Id": path, "Name": path, **body} for path, body in found.items()}


def whole() -> dict[str, Any]:
    """Return the captured tree."""
    return {path: json.loads(body) for path, body in tree(CAPTURE).items()}


def newer(given: dict[str, Any]) -> dict[str, Any]:
    """Return a tree as firmware of 2025 answers: other resets inline, HTTP, no blanks, and members without resources.

    The values are those that NVIDIA's manual of BMC 24.10 and later describes; no capture of it is at hand.
    """
    found = copy.deepcopy(given)
    system = found["/redfish/v1/Systems/Bluefield"]
    system.pop("Model", None)
    system["SerialNumber"] = system["SerialNumber"].strip()
    system["Actions"]["#ComputerSystem.Reset"] = {
        "target": "/redfish/v1/Systems/Bluefield/Actions/ComputerSystem.Reset",
        "ResetType@Redfish.AllowableValues": ["ForceRestart", "GracefulRestart", "GracefulShutdown", "PowerCycle"],
    }
    found["/redfish/v1/UpdateService"]["Actions"]["#UpdateService.SimpleUpdate"][
        "TransferProtocol@Redfish.AllowableValues"
    ] = ["SCP", "HTTP", "HTTPS"]
    found["/redfish/v1/Systems/Bluefield/Bios"]["Attributes"] = {"HostPrivilegeLevel": "Privileged"}
    found["/redfish/v1/Systems/Bluefield/Oem/Nvidia"] = {"Mode": "NicMode"}
    found["/redfish/v1/Chassis"]["Members"].append({"@odata.id": "/redfish/v1/Chassis/Gone"})
    found["/redfish/v1/Chassis/Card1"].pop("Model")
    return found


@dataclass(kw_only=True)
class Bluefield:
    """A running double."""

    resources: dict[str, Any]
    server: Any = None
    fingerprint: str = ""
    ca: str = ""
    address: str = "127.0.0.1"
    password: str = FACTORY
    factory: bool = True
    failed: int = 0
    """Refused logins since the last accepted one."""
    locked: bool = False
    logins: list[str] = field(default_factory=list)
    """Passwords of all logins, by session or by basic authentication, which is a login with each request."""
    basic: int = 0
    calls: list[str] = field(default_factory=list)
    sessions: dict[str, bool] = field(default_factory=dict)
    """Token -> whether its account must change its password."""
    most_open: int = 0
    lose: str = ""
    """A pattern of METHOD path: such requests are carried out, and their answers lost."""
    answers: list[tuple[str, str]] = field(default_factory=list)
    """Patterns of METHOD path with the status that is answered in place of the right answer, for ever."""
    silent: bool = False
    more: Callable[[str, str, Any], Reply | None] | None = None
    """Answers requests of sessions before the resources do, such as `tests.bmc.flashing`."""

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def access(self, **changes: Any) -> dict[str, Any]:
        """Return the fields of the driver's Access."""
        return {"address": self.address, "port": self.port, "fingerprint": self.fingerprint, **changes}

    def reset(self) -> None:
        """Reset it to the factory's defaults, and unlock it."""
        self.password, self.factory, self.failed, self.locked = FACTORY, True, 0, False
        self.sessions.clear()

    def set(self, password: str) -> None:
        """Set a password that need not be changed."""
        self.password, self.factory = password, False

    # HTTP

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].rstrip("/")
        given = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.calls.append(f"{method} {path}")
        if self.silent:
            return _dropped(None, None, environ, start)  # type: ignore[arg-type]
        status, body, headers = self._answer(method, path, environ, json.loads(given) if given else {})
        if self.lose and re.fullmatch(self.lose, f"{method} {path}"):
            return _dropped(None, None, environ, start)  # type: ignore[arg-type]
        content = b"" if body is None else json.dumps(body).encode()
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(content))), *headers])
        return [content]

    def _answer(self, method: str, path: str, environ: dict[str, Any], given: Any) -> Reply:
        for pattern, status in self.answers:
            if re.fullmatch(pattern, f"{method} {path}"):
                return _refusal(status, "GeneralError")
        if method == "GET" and path == "/redfish/v1":
            return "200 OK", self.resources[path], []
        if method == "POST" and path == SESSIONS:
            return self._log_in(given)
        token = environ.get("HTTP_X_AUTH_TOKEN", "")
        if environ.get("HTTP_AUTHORIZATION", "").startswith("Basic "):
            self.basic += 1
            _, _, password = b64decode(environ["HTTP_AUTHORIZATION"][6:]).decode().partition(":")
            if not self._accepts(password):
                return _refusal("401 Unauthorized", "InsufficientPrivilege")
            token = "basic"
            self.sessions[token] = self.factory
        if token not in self.sessions:
            return _refusal("401 Unauthorized", "NoValidSession")
        return self._of_session(method, path, token, given)

    def _of_session(self, method: str, path: str, token: str, given: Any) -> Reply:
        if method == "DELETE" and path == f"{SESSIONS}/{token}":
            self.sessions.pop(token)
            return "204 No Content", None, []
        if method == "PATCH" and path == ACCOUNT and "Password" in given:
            return self._change(given["Password"], token)
        if self.sessions[token]:
            return _refusal("403 Forbidden", "PasswordChangeRequired")
        if self.more is not None and (reply := self.more(method, path, given)) is not None:
            return reply
        found = self.resources.get(path) if method == "GET" else None
        if found is not None:
            return "200 OK", found, []
        return _refusal("404 Not Found" if method == "GET" else "405 Method Not Allowed", "ResourceNotFound")

    def _log_in(self, given: Any) -> Reply:
        if not self._accepts(str(given.get("Password"))) or given.get("UserName") != "root":
            return _refusal("401 Unauthorized", "ResourceAtUriUnauthorized")
        token = f"token{len(self.logins)}"
        self.sessions[token] = self.factory
        self.most_open = max(self.most_open, len(self.sessions))
        said = {"@Message.ExtendedInfo": [_message("PasswordChangeRequired")]} if self.factory else {}
        body = {"@odata.id": f"{SESSIONS}/{token}", "Id": token, "UserName": "root", **said}
        return "201 Created", body, [("X-Auth-Token", token), ("Location", f"{SESSIONS}/{token}")]

    def _accepts(self, password: str) -> bool:
        self.logins.append(password)
        if self.locked or password != self.password:
            self.failed += 1
            self.locked = self.locked or self.failed >= THRESHOLD
            return False
        self.failed = 0
        return True

    def _change(self, password: str, token: str) -> Reply:
        if not SHORTEST <= len(password) <= LONGEST or password == self.password:
            return _refusal("400 Bad Request", "PropertyValueFormatError")
        self.set(password)
        # All sessions but this one end, as with OpenBMC.
        self.sessions = {token: False}
        return "204 No Content", None, []


def _message(name: str) -> dict[str, str]:
    return {"MessageId": f"Base.1.18.{name}", "Message": f"{name} was said.", "Severity": "Critical"}


def _refusal(status: str, name: str) -> Reply:
    infos = [_message(name)]
    return status, {"error": {"code": f"Base.1.18.{name}", "message": name, "@Message.ExtendedInfo": infos}}, []


@contextlib.contextmanager
def bluefield(resources: dict[str, Any] | None = None, address: str = "127.0.0.1") -> Iterator[Bluefield]:
    """Run the BMC of a card with these resources, or with a few."""
    context, fingerprint, ca = certificate(address)
    bmc = Bluefield(resources=resources or small(), fingerprint=fingerprint, ca=ca, address=address)
    bmc.server = Server(bmc, context)
    bmc.server.start()
    try:
        yield bmc
    finally:
        bmc.server.stop()
