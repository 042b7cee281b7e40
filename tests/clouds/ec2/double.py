"""An EC2 of our own: `Double`, an HTTP server on this machine that behaves as Amazon's API does, and fails on demand.

In a test: `with Double() as double: Ec2(double.credential())`. Another process can have one too:
`python -m tests.clouds.ec2.double --port-file F`, ended by SIGTERM, and steered over HTTP (`Double.control`).
Each double is an AWS account of its own, so several in one process share nothing.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto.core.model_instances import model_data
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import InstanceState, StateReason
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request as HttpRequest
from werkzeug.wrappers import Response

from blueprints.ec2.config import Credential
from tests.clouds.ec2 import policy, strict, tables
from tests.clouds.ec2.plan import Fault, Plan, Request

KEY, SECRET = "AKIADOUBLE", "double-secret"
_STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
_SCOPE = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
_NOT_FOUND = {
    "instance": "InvalidInstanceID.NotFound", "volume": "InvalidVolume.NotFound",
    "network-interface": "InvalidNetworkInterfaceID.NotFound", "security-group": "InvalidGroup.NotFound",
    "spot-instances-request": "InvalidSpotInstanceRequestID.NotFound",
}  # fmt: skip
PAGED = {
    "DescribeImages": "imagesSet", "DescribeInstanceTypeOfferings": "instanceTypeOfferingSet",
    "DescribeInstanceTypes": "instanceTypeSet", "DescribeInstances": "reservationSet",
    "DescribeNetworkInterfaces": "networkInterfaceSet", "DescribeSecurityGroups": "securityGroupInfo",
    "DescribeSpotInstanceRequests": "spotInstanceRequestSet", "DescribeSpotPriceHistory": "spotPriceHistorySet",
    "DescribeSubnets": "subnetSet", "DescribeVolumes": "volumeSet", "DescribeVpcs": "vpcSet",
}  # fmt: skip
"""Of the calls that Drydock makes, those with a NextToken in botocore's model, and the element of their items."""
_accounts = itertools.count(100_000_000_001)
_addresses = itertools.count(1)

strict.install()
_MOTO = DomainDispatcherApplication(create_backend_app)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance as something that boots: what a hook is given. `user` and `public_key` are the first account's in
    user data that are a cloud-config in JSON, as Drydock writes them; else empty."""

    id: str
    key: str
    region: str
    user_data: str
    user: str = ""
    public_key: str = ""


def _forget_objects() -> None:
    """Empty moto's own lists of everything ever made, which nobody reads here: 60 MiB for each double."""
    for models in model_data.values():
        for model in models.values():
            model.instances_tracked.clear()  # type: ignore[attr-defined]


def loopback(machine: Machine) -> str:
    """127.20.x.y, another one each time: what a machine has for an address where no hook gives it one."""
    number = next(_addresses)
    return f"127.20.{number // 250 % 250}.{number % 250 + 1}"


class _Quiet(MotoRequestHandler):  # type: ignore[misc]
    def log(self, *args: Any) -> None:
        """Nothing."""


class Double:
    """The server. Fields may be changed at any time.

    `on_start(machine) -> address` is called when an instance gets to `running`, and `on_end(machine)` when it leaves
    that state, whatever for; a reboot calls both. They run under the double's lock: keep them short, and
    call no API in them.
    """

    def __init__(
        self,
        *,
        on_start: Callable[[Machine], str] = loopback,
        on_end: Callable[[Machine], object] = lambda machine: None,
        pending: float = 0.0,
        ending: float = 0.0,
    ) -> None:
        """`pending`: seconds until an instance runs. `ending`: seconds until it has stopped or is terminated."""
        self.on_start, self.on_end, self.pending, self.ending = on_start, on_end, pending, ending
        self.account = str(next(_accounts))
        self.plan = Plan()
        self.requests: list[Request] = []
        self.keys = {KEY}
        self.page = 1000
        self.limits = dict(tables.QUOTAS)
        self.policy: list[policy.Statement] = policy.everything_but()
        """What the account's user may do, as statements of IAM."""
        self.lag = 0.0
        """Seconds for which no describe call tells of a new instance: EC2 is eventually consistent."""
        self.born: dict[str, float] = {}
        self.empty_first = False
        """Every describe call that has pages answers the first one empty, with a token for the next, as EC2 may."""
        self.spoils: Callable[[str], tuple[int, str, bytes] | None] = lambda action: None
        """What answers a call in EC2's place, as a broken proxy would: status, content type, body."""
        self.knows_dry_run = True
        """Amazon's own does; clouds that only speak its API may carry such calls out."""
        self.tokens: dict[tuple[str, str, str], tuple[str, Any]] = {}
        self.spot_requests: dict[str, dict[str, Any]] = {}
        self.consoles: dict[str, str] = {}
        self.host_key: Callable[[str], str] = lambda key: ""
        """The host key that the machine of a name tells, as cloud-init prints it on its console."""
        self._due: dict[str, tuple[float, str, Any]] = {}
        self._lock = threading.RLock()
        self._server: Any = None
        self._thread: threading.Thread | None = None

    # Its life.

    def start(self) -> Self:
        """Listen on a port of 127.0.0.1."""
        strict.CLOUDS[self.account] = self
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Nothing is left: every machine ended, the port closed, the account forgotten."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        with self._lock:
            for instance in self._instances():
                if instance.state in ("running",):
                    self.on_end(self.machine(instance))
        strict.CLOUDS.pop(self.account, None)
        ec2_backends.pop(self.account, None)
        _forget_objects()
        self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *problem: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """What a Credential's `endpoint` is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def credential(self, **more: Any) -> Credential:
        """One that is let in, without our own limit of calls."""
        return Credential(**{**self.secrets(), **more})

    def secrets(self) -> dict[str, Any]:
        """The same as a stored credential's fields."""
        return {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint": self.url, "rate": 1000.0}

    # What becomes of instances, whoever wants it.

    def preempt(self, instance_id: str) -> None:
        """Amazon takes a spot instance back."""
        with self._lock:
            self._end(instance_id, "Server.SpotInstanceTermination", "Instance terminated by spot.")

    def power_off(self, instance_id: str) -> None:
        """The guest switches itself off, as its dead man's switch does."""
        with self._lock:
            instance = self._instance(instance_id)
            code, words = "Client.InstanceInitiatedShutdown", "Instance initiated shutdown"
            if instance.instance_initiated_shutdown_behavior == "terminate":
                self._end(instance_id, code, words)
                return
            instance.stop()
            instance.state_reason = StateReason(f"{code}: {words}", code)
            self.ended(instance, "stopped")

    def _end(self, instance_id: str, code: str, words: str) -> None:
        instance = self._instance(instance_id)
        instance.terminate()
        instance.state_reason = StateReason(f"{code}: {words}", code)
        self.ended(instance, "terminated")

    def started(self, instance: Any) -> None:
        """It boots from now on."""
        instance.nics[0].public_ip = None
        self._set(instance, "pending")
        self._due[instance.id] = (time.monotonic() + self.pending, "running", instance)

    def ended(self, instance: Any, into: str) -> None:
        """It is on its way into this state, and serves no longer."""
        was_up = self._due.pop(instance.id, None) is None
        if was_up:
            self.on_end(self.machine(instance))
        self._set(instance, "shutting-down" if into == "terminated" else "stopping")
        self._due[instance.id] = (time.monotonic() + self.ending, into, instance)
        request = self.spot_requests.get(getattr(instance, "spot_instance_request_id", ""))
        if request is not None:
            request["State"] = "closed"

    def restarted(self, instance: Any) -> None:
        """It reboots, which takes no time here."""
        self.on_end(self.machine(instance))
        self._boot(instance)

    def age(self) -> None:
        """Let happen what is due."""
        now = time.monotonic()
        for name, (due, into, instance) in list(self._due.items()):
            if due <= now:
                del self._due[name]
                self._set(instance, into)
                if into == "running":
                    self._boot(instance)

    def _boot(self, instance: Any) -> None:
        address, card = self.on_start(self.machine(instance)), instance.nics[0]
        card.private_ip_address = address
        card.public_ip = address if str(card.public_ip_auto_assign).lower() == "true" else None

    def _set(self, instance: Any, name: str) -> None:
        instance._state = InstanceState(name, _STATES[name])

    # What there is.

    def machine(self, instance: Any) -> Machine:
        """What a hook is told of an instance."""
        text = base64.b64decode(str(instance.user_data)).decode(errors="replace") if instance.user_data else ""
        tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
        return Machine(
            id=instance.id, key=tags.get("Name", ""), region=instance.region_name, user_data=text, **_account(text)
        )

    def objects(self) -> dict[str, list[str]]:
        """Everything that would still cost or be in the way, by sort; {} when nothing is left."""
        with self._lock:
            self.age()
            found = {
                "instances": [one.id for one in self._instances() if one.state != "terminated"],
                "volumes": [name for backend in self._backends() for name in backend.volumes],
                "network_interfaces": [name for backend in self._backends() for name in backend.enis],
                "security_groups": [
                    group.name
                    for backend in self._backends()
                    for groups in backend.groups.values()
                    for group in groups.values()
                    if group.name != "default"
                ],
                "spot_requests": [n for n, one in self.spot_requests.items() if one["State"] in ("open", "active")],
            }
        return {sort: names for sort, names in found.items() if names}

    def tags(self, name: str) -> dict[str, str]:
        """The tags of anything, by its id."""
        if name in self.spot_requests:
            return {tag["Key"]: tag["Value"] for tag in self.spot_requests[name]["Tags"]}
        return next((dict(backend.tags[name]) for backend in self._backends() if name in backend.tags), {})

    def asked(self, action: str) -> list[Request]:
        """The calls of an action that came in."""
        return [one for one in self.requests if one.action == action]

    def _backends(self) -> list[Any]:
        return list(ec2_backends[self.account].values())

    def _instances(self) -> list[Any]:
        return [one for backend in self._backends() for one in backend.all_instances()]

    def _instance(self, instance_id: str) -> Any:
        return next(one for one in self._instances() if one.id == instance_id)

    # Its answers.

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        http = HttpRequest(environ)
        body = http.get_data(cache=True)
        if http.path.startswith("/_double/"):
            return self.control(http.path.removeprefix("/_double/"), body)(environ, start_response)
        found = _SCOPE.search(http.headers.get("Authorization", ""))
        key, region, service = found.groups() if found else ("", "", "")
        request = self._request(http, body, region, service)
        with self._lock:
            self.age()
            self.requests.append(request)
            refusal = self._refusal(key, request)
            if refusal is not None:
                return refusal(environ, start_response)
            if (spoiled := self.spoils(request.action)) is not None:
                status, sort, said = spoiled
                return Response(said, status, content_type=sort)(environ, start_response)
            fault = self.plan.met(request)
            if fault is not None and not (fault.happens or fault.lost):
                return _error(service, fault.code, fault.message, fault.status)(environ, start_response)
            if self._dry(request):
                return self._only_checked(request)(environ, start_response)
            if self.empty_first and request.action in PAGED:
                if "NextToken" not in request.parameters:
                    return _empty(request.action)(environ, start_response)
                body = body.replace(b"NextToken=the-second-page", b"")
                environ["CONTENT_LENGTH"] = str(len(body))
            answer = self._carried_out(request, environ, body)
            if fault is None:
                return answer(environ, start_response)
            if fault.lost:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise ConnectionResetError("the answer is lost")
            return _error(service, fault.code, fault.message, fault.status)(environ, start_response)

    def _request(self, http: HttpRequest, body: bytes, region: str, service: str) -> Request:
        target = http.headers.get("X-Amz-Target", "")
        if target:
            return Request(service=service, region=region, action=target.split(".")[-1], parameters={"": body.decode()})
        given = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        action = given.get("Action", "")
        return Request(service=service, region=region, action=action, parameters=given, zone=self._zone(region, given))

    def _zone(self, region: str, given: dict[str, str]) -> str:
        subnet = given.get("SubnetId") or given.get("NetworkInterface.1.SubnetId")
        if not subnet:
            return given.get("Placement.AvailabilityZone", "")
        for subnets in ec2_backends[self.account][region].subnets.values():
            if subnet in subnets:
                return str(subnets[subnet].availability_zone)
        return ""

    def _refusal(self, key: str, request: Request) -> Response | None:
        if key not in self.keys and not key.startswith("ASIA"):
            code, status = {"ec2": ("AuthFailure", 401), "sts": ("InvalidClientTokenId", 403)}.get(
                request.service, ("UnrecognizedClientException", 400)
            )
            return _error(request.service, code, "The access credentials could not be validated.", status)
        for name, value in request.parameters.items():
            if name.split(".")[0] == "InstanceId" and not _INSTANCE.fullmatch(value):
                return _error("ec2", "InvalidInstanceID.Malformed", f'Invalid id: "{value}"', 400)
        return self._not_allowed(request)

    def _not_allowed(self, request: Request) -> Response | None:
        needs = policy.steps(request.service, request.action, request.parameters, self.tags)
        said = policy.refusal(self.policy, needs, self.account, request.region)
        code, status = ("UnauthorizedOperation", 403) if request.service == "ec2" else ("AccessDeniedException", 400)
        return _error(request.service, code, said, status) if said else None

    def _dry(self, request: Request) -> bool:
        return self.knows_dry_run and request.parameters.get("DryRun") == "true"

    def _only_checked(self, request: Request) -> Response:
        """What is named has to be there, and nothing happens."""
        known = {name for names in self.objects().values() for name in names} | self.known_groups()
        for key, value in request.parameters.items():
            sort = policy.SORTS.get(value.partition("-")[0], "")
            if sort in _NOT_FOUND and value not in known and not key.startswith(("Filter", "Tag")):
                return _error("ec2", _NOT_FOUND[sort], f"The {sort} ID '{value}' does not exist", 400)
        return _error("ec2", "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)

    def known_groups(self) -> set[str]:
        """The ids of all security groups."""
        return {
            group.id for backend in self._backends() for groups in backend.groups.values() for group in groups.values()
        }

    def without_network(self, region: str) -> None:
        """Somebody has deleted the region's default VPC with its subnets."""
        with self._lock:
            ec2_backends[self.account][region].subnets.clear()
            ec2_backends[self.account][region].vpcs.clear()

    def _carried_out(self, request: Request, environ: dict[str, Any], body: bytes) -> Response:
        if request.service == "servicequotas":
            return _json(tables.quotas(json.loads(body), self.limits))
        if request.service == "pricing":
            return _json(tables.products(json.loads(body)))
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = self.account
        if not self.knows_dry_run:
            body = body.replace(b"&DryRun=true", b"")
            environ["CONTENT_LENGTH"] = str(len(body))
        environ["wsgi.input"] = io.BytesIO(body)  # it has been read to here
        return Response.from_app(_MOTO, environ, buffered=True)

    def control(self, act: str, body: bytes = b"") -> Response:
        """POST /_double/<act> from another process: `objects`, `requests`, `fault` (a Fault's fields), `clear`,
        `preempt` and `power_off` ({"id": ...}), `settings` (pending, ending, page)."""
        given = json.loads(body or b"{}")
        if act == "objects":
            return _json(self.objects())
        if act == "requests":
            return _json([asdict(one) for one in self.requests])
        if act == "fault":
            self.plan.add(Fault(**given))
        elif act == "clear":
            self.plan.clear()
        elif act in ("preempt", "power_off"):
            getattr(self, act)(given["id"])
        elif act == "settings":
            for name in {"pending", "ending", "page"} & given.keys():
                setattr(self, name, given[name])
        else:
            return Response(f"no such act: {act}", status=404)
        return _json({})


def _account(text: str) -> dict[str, str]:
    try:
        first = json.loads(text.removeprefix("#cloud-config"))["users"][0]
        return {"user": first["name"], "public_key": first["ssh_authorized_keys"][0]}
    except (ValueError, KeyError, IndexError, TypeError):
        return {}


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status=status, content_type="application/x-amz-json-1.1")


def _empty(action: str) -> Response:
    items, token = f"<{PAGED[action]}/>", "<nextToken>the-second-page</nextToken>"
    text = f"<{action}Response><requestId>0-0</requestId>{items}{token}</{action}Response>"
    return Response(text, content_type="text/xml")


def _error(service: str, code: str, message: str, status: int) -> Response:
    if service not in ("ec2", "sts"):
        return _json({"__type": code, "message": message}, status)
    inner = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    if service == "ec2":
        text = f"<Response><Errors>{inner}</Errors><RequestID>0-0</RequestID></Response>"
    else:
        text = f"<ErrorResponse>{inner}<RequestId>0-0</RequestId></ErrorResponse>"
    return Response(text, status=status, content_type="text/xml")


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port-file", type=Path, required=True, help="Where the URL is written once it listens.")
    parser.add_argument("--pending", type=float, default=0.0, help="Seconds until an instance runs.")
    parser.add_argument("--ending", type=float, default=0.0, help="Seconds until one has stopped or is terminated.")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Double(pending=given.pending, ending=given.ending) as double:
        there = given.port_file.with_suffix(".new")
        there.write_text(double.url)
        there.rename(given.port_file)
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
