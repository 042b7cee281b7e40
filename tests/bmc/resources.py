"""The resources that sushy-tools' application lacks: sessions, accounts, event log, sensors, disks, firmware, tasks."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flask

from tests.bmc.machine import Machine, Systems

Json = dict[str, Any]
V1 = "/redfish/v1"
OPEN = frozenset(["", "redfish", "redfish/v1"])


def link(path: str) -> Json:
    return {"@odata.id": path}


def collection(path: str, members: list[str], **more: Any) -> Json:
    links = [link(f"{path}/{name}") for name in members]
    return {"@odata.id": path, "Name": "Collection", "Members": links, "Members@odata.count": len(links), **more}


def refusal(status: int, message: str, **headers: str) -> flask.Response:
    said = {"code": "Base.1.8.GeneralError", "message": message, "@Message.ExtendedInfo": [{"Message": message}]}
    response = flask.make_response({"error": said}, status)
    response.headers.update(headers)
    return response


@dataclass(kw_only=True)
class Task:
    """A firmware update. `seconds` may be infinite."""

    seconds: float
    fails: str = ""
    started: float = field(default_factory=time.monotonic)

    def body(self, path: str) -> Json:
        share = min((time.monotonic() - self.started) / self.seconds if self.seconds else 1.0, 1.0)
        state = "Running" if share < 1 else ("Exception" if self.fails else "Completed")
        said = self.fails if share == 1 and self.fails else "The update is under way."
        return {
            "@odata.id": path, "@odata.type": "#Task.v1_4_3.Task", "Id": path.rsplit("/", 1)[-1], "Name": "Update",
            "TaskState": state, "TaskStatus": "Critical" if state == "Exception" else "OK",
            "PercentComplete": int(share * 100), "Messages": [{"Message": said, "MessageId": "Update.1.0.Update"}],
        }  # fmt: skip


class Resources:
    """State of the BMC besides its machines, and the hooks by which the application serves it."""

    def __init__(self, systems: Systems, *, username: str, password: str, auth: frozenset[str]) -> None:
        self.systems, self.username, self.password, self.auth = systems, username, password, auth
        self.role = "Administrator"
        self.privileges = ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"]
        self.sessions: dict[str, str] = {}
        """The open sessions: token by id."""
        self.most_sessions = 8
        self.basic_auth = ""
        """`HTTPBasicAuth` of the AccountService; empty for a BMC that does not say, as those before version 1.10."""
        self.keeps_sessions = False
        """Whether the BMC accepts the end of a session, and keeps it."""
        self.any_password = False
        """Whether the BMC accepts any password."""
        self.log: list[Json] = []
        self.page = 50
        """Entries of the log in one page."""
        self.firmware: dict[str, Json] = {
            "BMC": {"Version": "1.00", "Updateable": True}, "BIOS": {"Version": "1.3.1", "Updateable": True},
        }  # fmt: skip
        self.tasks: dict[str, Task] = {}
        self.task_seconds, self.task_fails = 0.0, ""
        self.updates: list[Json] = []
        self.continuous = False
        """Whether a boot override for one start reads back as Continuous, as sushy-tools and some BMCs have it."""
        self.action_info = False
        """Whether the allowed resets are listed behind ActionInfo only."""
        self.new_sensors = True
        """Whether sensors are resources of their own, or in Thermal and Power."""
        self.metrics: Json = {}
        """What EnvironmentMetrics of a chassis says."""
        self.changes: dict[str, Callable[[Json], Json | None]] = {}
        """What a test changes in the resource at a path."""

    # Hooks

    def before(self) -> flask.Response | None:
        request = flask.request
        path = request.path.rstrip("/")
        login = path == f"{V1}/SessionService/Sessions" and request.method == "POST"
        if not login and path.strip("/") not in OPEN and not self._allowed():
            return refusal(401, "While accessing the resource, the service received an authorization error.")
        for method, pattern, answer in self._table:
            if method == request.method and (match := re.fullmatch(V1 + pattern, path)):
                return answer(self, *match.groups())
        return None

    def after(self, response: flask.Response) -> flask.Response:
        path = flask.request.path.rstrip("/")
        if flask.request.method != "GET" or response.status_code != 200 or not response.is_json:
            return response
        body = json.loads(response.get_data())
        if path == V1:
            self._root(body)
        elif match := re.fullmatch(rf"{V1}/Systems/([^/]+)", path):
            self._system(body, self.systems.machine(match[1]))
        elif re.fullmatch(rf"{V1}/Managers/[^/]+", path):
            body["LogServices"] = link(f"{path}/LogServices")
        elif re.fullmatch(rf"{V1}/Chassis/[^/]+", path):
            body["Sensors" if self.new_sensors else "Power"] = link(
                f"{path}/{'Sensors' if self.new_sensors else 'Power'}"
            )
            if self.new_sensors:
                del body["Thermal"]
        body.setdefault("Name", body.get("Id", "Collection"))
        body = self.changes.get(path, lambda body: body)(body)
        response.set_data(json.dumps(body))
        return response

    def _root(self, body: Json) -> None:
        body |= {"AccountService": link(f"{V1}/AccountService"), "Tasks": link(f"{V1}/TaskService")}
        body |= {"Vendor": "Contoso", "Product": "Contoso BMC"}
        body["UUID"] = str(uuid.uuid5(uuid.NAMESPACE_OID, next(iter(self.systems.machines))))
        if "session" in self.auth:
            body["Links"] = {"Sessions": link(f"{V1}/SessionService/Sessions")}
            body["SessionService"] = link(f"{V1}/SessionService")

    def _system(self, body: Json, machine: Machine) -> None:
        body |= {"Manufacturer": machine.vendor, "Model": machine.model, "SerialNumber": machine.serial}
        if not self.continuous:
            body["Boot"] |= machine.boot
        allowed = body["Boot"].setdefault("BootSourceOverrideTarget@Redfish.AllowableValues", [])
        body["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = ["None", *allowed, "BiosSetup"]
        reset = body["Actions"]["#ComputerSystem.Reset"]
        reset["ResetType@Redfish.AllowableValues"] = list(machine.resets)
        if self.action_info:
            del reset["ResetType@Redfish.AllowableValues"]
            reset["@Redfish.ActionInfo"] = f"{V1}/Systems/{machine.uuid}/ResetActionInfo"
        if machine.secure_boot is None:
            del body["SecureBoot"]

    def _allowed(self) -> bool:
        token = flask.request.headers.get("X-Auth-Token")
        if token is not None:
            return "session" in self.auth and token in self.sessions.values()
        scheme, _, given = flask.request.headers.get("Authorization", "").partition(" ")
        try:
            return "basic" in self.auth and scheme == "Basic" and base64.b64decode(given).decode() == self._pair
        except (binascii.Error, UnicodeDecodeError):
            return False

    @property
    def _pair(self) -> str:
        return f"{self.username}:{self.password}"

    # Sessions and accounts

    def _login(self) -> flask.Response:
        if "session" not in self.auth:
            return refusal(404, "There is no session service.")
        given = flask.request.get_json()
        right = self.any_password or given.get("Password") == self.password
        if given.get("UserName") != self.username or not right:
            return refusal(401, "The credentials are invalid.")
        if len(self.sessions) >= self.most_sessions:
            return refusal(503, "The session establishment failed: the maximum number of sessions is open.")
        id, token = secrets.token_hex(4), secrets.token_hex(16)
        self.sessions[id] = token
        path = f"{V1}/SessionService/Sessions/{id}"
        response = flask.make_response({**link(path), "Id": id, "Name": "Session", "UserName": self.username}, 201)
        response.headers.update({"X-Auth-Token": token, "Location": path})
        return response

    def _logout(self, id: str) -> flask.Response:
        if self.keeps_sessions:
            return flask.make_response("", 204)
        return flask.make_response("", 204) if self.sessions.pop(id, None) else refusal(404, "There is no session.")

    def _session(self, id: str) -> flask.Response:
        return flask.jsonify({**link(flask.request.path), "Id": id, "UserName": self.username})

    def _session_service(self) -> flask.Response:
        here = f"{V1}/SessionService"
        return flask.jsonify({**link(here), "Id": "SessionService", "Sessions": link(f"{here}/Sessions")})

    def _sessions(self) -> flask.Response:
        return flask.jsonify(collection(f"{V1}/SessionService/Sessions", list(self.sessions)))

    def _account_service(self) -> flask.Response:
        here = f"{V1}/AccountService"
        return flask.jsonify(
            {
                **link(here),
                "Id": "AccountService",
                "Accounts": link(f"{here}/Accounts"),
                "Roles": link(f"{here}/Roles"),
                **({"HTTPBasicAuth": self.basic_auth} if self.basic_auth else {}),
            }
        )

    def _accounts(self) -> flask.Response:
        return flask.jsonify(collection(f"{V1}/AccountService/Accounts", ["1", "2"]))

    def _account(self, id: str) -> flask.Response:
        user = {"1": "", "2": self.username}[id]
        role = f"{V1}/AccountService/Roles/{self.role}"
        body = {"Id": id, "UserName": user, "RoleId": self.role, "Enabled": bool(user), "Links": {"Role": link(role)}}
        return flask.jsonify({**link(flask.request.path), **body})

    def _roles(self) -> flask.Response:
        return flask.jsonify(collection(f"{V1}/AccountService/Roles", [self.role]))

    def _role(self, id: str) -> flask.Response:
        return flask.jsonify({**link(flask.request.path), "Id": id, "AssignedPrivileges": self.privileges})

    # Systems

    def _set_boot(self, id: str) -> flask.Response | None:
        machine, boot = self.systems.machine(id), flask.request.get_json().get("Boot", {})
        if self.continuous or not boot:
            return None
        if boot.get("BootSourceOverrideTarget") not in ("None", "Pxe", "Cd", "Hdd", "UefiHttp", "BiosSetup", None):
            return refusal(400, "The value of BootSourceOverrideTarget is not in the list of acceptable values.")
        machine.boot = {**machine.boot, **boot}
        return flask.make_response("", 204)

    def _reset_info(self, id: str) -> flask.Response:
        allowed = list(self.systems.machine(id).resets)
        parameters = [{"Name": "ResetType", "Required": True, "DataType": "String", "AllowableValues": allowed}]
        return flask.jsonify({**link(flask.request.path), "Id": "ResetActionInfo", "Parameters": parameters})

    def _bios(self, id: str) -> flask.Response:
        here, bios = flask.request.path, self.systems.get_bios(id)
        settings = {"@odata.type": "#Settings.v1_0_0.Settings", "SettingsObject": link(f"{here}/Settings")}
        return flask.jsonify({**link(here), "Id": "BIOS", "Attributes": bios, "@Redfish.Settings": settings})

    def _storages(self, id: str) -> flask.Response:
        self.systems.machine(id)
        return flask.jsonify(collection(f"{V1}/Systems/{id}/Storage", ["1"]))

    def _storage(self, id: str) -> flask.Response:
        drives = [link(f"{flask.request.path}/Drives/{one.name}") for one in self.systems.machine(id).drives]
        return flask.jsonify({**link(flask.request.path), "Id": "1", "Name": "Controller", "Drives": drives})

    def _drive(self, id: str, name: str) -> flask.Response:
        for one in self.systems.machine(id).drives:
            if one.name == name:
                about = {"SerialNumber": f"{one.serial}   ", "Model": one.model, "CapacityBytes": one.size_bytes}
                more = {"Id": name, "Name": f"Drive {name}", "Protocol": one.protocol, "MediaType": one.media}
                return flask.jsonify({**link(flask.request.path), **about, **more})
        return refusal(404, "There is no such drive.")

    # Logs and sensors

    def _logs(self, id: str) -> flask.Response:
        return flask.jsonify(collection(f"{V1}/Managers/{id}/LogServices", ["Journal", "Sel"]))

    def _log(self, id: str, name: str) -> flask.Response:
        here = flask.request.path
        kind = "SEL" if name == "Sel" else "Multiple"
        return flask.jsonify({**link(here), "Id": name, "LogEntryType": kind, "Entries": link(f"{here}/Entries")})

    def _entries(self, id: str) -> flask.Response:
        here, skip = flask.request.path, int(flask.request.args.get("$skip", 0))
        shown = self.log[skip : skip + self.page]
        body = {**link(here), "Name": "Log", "Members": shown, "Members@odata.count": len(self.log)}
        if skip + self.page < len(self.log):
            body["Members@odata.nextLink"] = f"{here}?$skip={skip + self.page}"
        return flask.jsonify(body)

    def _sensors(self, chassis: str) -> flask.Response:
        return flask.jsonify(collection(flask.request.path, sorted(SENSORS)))

    def _sensor(self, chassis: str, name: str) -> flask.Response:
        return flask.jsonify({**link(flask.request.path), "Id": name, **SENSORS[name]})

    def _power(self, chassis: str) -> flask.Response:
        ok = {"State": "Enabled", "Health": "OK"}
        control = {"MemberId": "0", "Name": "System Power", "PowerConsumedWatts": 214, "Status": ok}
        volts = {"MemberId": "0", "Name": "12V", "ReadingVolts": 12.1, "UpperThresholdCritical": 13.2, "Status": ok}
        return flask.jsonify({**link(flask.request.path), "PowerControl": [control], "Voltages": [volts]})

    def _metrics(self, chassis: str) -> flask.Response:
        return flask.jsonify({**link(flask.request.path), "Id": "EnvironmentMetrics", **self.metrics})

    # Updates

    def _update_service(self) -> flask.Response:
        here = f"{V1}/UpdateService"
        action = {"target": f"{here}/Actions/UpdateService.SimpleUpdate"}
        action["TransferProtocol@Redfish.AllowableValues"] = ["HTTP", "HTTPS"]
        body = {"Id": "UpdateService", "FirmwareInventory": link(f"{here}/FirmwareInventory")}
        return flask.jsonify({**link(here), **body, "Actions": {"#UpdateService.SimpleUpdate": action}})

    def _firmwares(self) -> flask.Response:
        return flask.jsonify(collection(f"{V1}/UpdateService/FirmwareInventory", sorted(self.firmware)))

    def _firmware(self, id: str) -> flask.Response:
        if id not in self.firmware:
            return refusal(404, "There is no such component.")
        return flask.jsonify({**link(flask.request.path), "Id": id, "Name": id, **self.firmware[id]})

    def _update(self) -> flask.Response:
        given = flask.request.get_json()
        if not given.get("ImageURI"):
            return refusal(400, "The request lacks the required parameter ImageURI.")
        self.updates.append(given)
        id = str(len(self.updates))
        self.tasks[id] = Task(seconds=self.task_seconds, fails=self.task_fails)
        path = f"{V1}/TaskService/Tasks/{id}"
        response = flask.make_response(self.tasks[id].body(path), 202)
        response.headers["Location"] = f"{V1}/TaskService/TaskMonitors/{id}"
        return response

    def _task_service(self) -> flask.Response:
        here = f"{V1}/TaskService"
        return flask.jsonify({**link(here), "Id": "TaskService", "Tasks": link(f"{here}/Tasks")})

    def _tasks(self) -> flask.Response:
        return flask.jsonify(collection(f"{V1}/TaskService/Tasks", list(self.tasks)))

    def _task(self, id: str) -> flask.Response:
        if id not in self.tasks:
            return refusal(404, "There is no such task.")
        return flask.jsonify(self.tasks[id].body(flask.request.path))

    def _monitor(self, id: str) -> flask.Response:
        if id not in self.tasks:
            return refusal(404, "There is no such task.")
        body = self.tasks[id].body(f"{V1}/TaskService/Tasks/{id}")
        return flask.make_response(body, 202 if body["TaskState"] == "Running" else 200)

    _table: tuple[tuple[str, str, Callable[..., flask.Response | None]], ...] = (
        ("POST", "/SessionService/Sessions", _login),
        ("DELETE", "/SessionService/Sessions/([^/]+)", _logout),
        ("GET", "/SessionService/Sessions/([^/]+)", _session),
        ("GET", "/SessionService/Sessions", _sessions),
        ("GET", "/SessionService", _session_service),
        ("GET", "/AccountService", _account_service),
        ("GET", "/AccountService/Accounts", _accounts),
        ("GET", "/AccountService/Accounts/([12])", _account),
        ("GET", "/AccountService/Roles", _roles),
        ("GET", "/AccountService/Roles/([^/]+)", _role),
        ("PATCH", "/Systems/([^/]+)", _set_boot),
        ("GET", "/Systems/([^/]+)/ResetActionInfo", _reset_info),
        ("GET", "/Systems/([^/]+)/BIOS", _bios),
        ("GET", "/Systems/([^/]+)/Storage", _storages),
        ("GET", "/Systems/([^/]+)/Storage/1", _storage),
        ("GET", "/Systems/([^/]+)/Storage/1/Drives/([^/]+)", _drive),
        ("GET", "/Managers/([^/]+)/LogServices", _logs),
        ("GET", "/Managers/([^/]+)/LogServices/(Sel|Journal)", _log),
        ("GET", "/Managers/([^/]+)/LogServices/Sel/Entries", _entries),
        ("GET", "/Chassis/([^/]+)/Sensors", _sensors),
        ("GET", "/Chassis/([^/]+)/Sensors/([^/]+)", _sensor),
        ("GET", "/Chassis/([^/]+)/Power", _power),
        ("GET", "/Chassis/([^/]+)/EnvironmentMetrics", _metrics),
        ("GET", "/UpdateService", _update_service),
        ("GET", "/UpdateService/FirmwareInventory", _firmwares),
        ("GET", "/UpdateService/FirmwareInventory/([^/]+)", _firmware),
        ("POST", "/UpdateService/Actions/UpdateService.SimpleUpdate", _update),
        ("GET", "/TaskService", _task_service),
        ("GET", "/TaskService/Tasks", _tasks),
        ("GET", "/TaskService/Tasks/([^/]+)", _task),
        ("GET", "/TaskService/TaskMonitors/([^/]+)", _monitor),
    )  # fmt: skip


_OK = {"State": "Enabled", "Health": "OK"}
SENSORS: dict[str, Json] = {
    "CPU1Temp": {"Name": "CPU1", "ReadingType": "Temperature", "Reading": 41, "ReadingUnits": "Cel", "Status": _OK},
    "Fan1": {
        "Name": "Fan 1", "ReadingType": "Rotational", "Reading": 300, "ReadingUnits": "RPM",
        "Status": {"State": "Enabled", "Health": "Critical"},
    },
    "TotalPower": {
        "Name": "Total Power", "ReadingType": "Power", "Reading": 214.5, "ReadingUnits": "W", "Status": _OK,
        "PhysicalContext": "Chassis",
    },
    "Absent": {"Name": "Absent", "Reading": None, "ReadingUnits": "V", "Status": {"State": "Absent"}},
}  # fmt: skip
