"""Messages between agents and the server: round trips, and messages that are refused as a whole."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import math

import pytest

from drydock_agent import Device, Hardware, Host
from drydock_agent.messages import (
    BODY_BYTES,
    Action,
    AgentStatus,
    DriverInfo,
    DriverStatus,
    HardwareReport,
    Hello,
    Message,
    Order,
    OrderResult,
    Orders,
    OrderStatus,
    Receipt,
    Welcome,
    moment,
    timestamp,
)
from drydock_agent.wire import Malformed

NOW = "2026-11-23T08:15:00.250Z"

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"

HELLO = Hello(
    status=AgentStatus.READY,
    name="gpu-7.example",
    agent_version="0.1.0",
    boot_id="2f1e7c1a-0001-4c4e-9c55-2a9f6ef0e6f1",
    time=NOW,
    identities={"dmi_uuid": "4c4c4544-0051-3010-8057-b4c04f4d3132"},
    endpoint="gpu-7.example:1337",
    certificate=CERTIFICATE,
    drivers=(
        DriverInfo(name="nvidia", type=("gpu", "gpu_slice"), status=DriverStatus.READY),
        DriverInfo(name="acme", status=DriverStatus.FAILED, message="It did not answer within 10 seconds."),
    ),
    resumed="17",
)
WELCOME = Welcome(
    agent="4", token="t" * 40, expires_at=NOW, interval=60.0, server_time=NOW, server_version="0.1.0",
    blueprint="lab-gpus", place="12", secret="s" * 40,
)  # fmt: skip
REPORT = HardwareReport(
    sequence=3, boot_id="b", time=NOW, hardware=Hardware(host=Host(), devices=(Device(id="0000:01:00.0"),))
)
ORDER = Order(
    id="9", action=Action.UPGRADE, expires_at=NOW,
    arguments={"path": "agents/wheel", "sha256": "ab" * 32, "version": "0.2.0"},
)  # fmt: skip

EACH = [
    HELLO,
    WELCOME,
    REPORT,
    Receipt(stored=True, problems=("0000:01:00.0: its serial number belongs to another host",)),
    Orders(orders=(ORDER, Order(id="10", action=Action.DISCOVERY, expires_at=NOW))),
    OrderResult(status=OrderStatus.IN_PROGRESS, message="The download is complete.", percent=40),
]


@pytest.mark.parametrize("message", EACH, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("compress", [False, True])
def test_a_message_arrives_as_it_was_sent(message: Message, compress: bool):
    body = message.to_body(compress=compress)
    assert type(message).from_body(body, "gzip" if compress else "") == message
    assert message.to_json()["version"] == 1


@pytest.mark.parametrize("message", EACH, ids=lambda one: type(one).__name__)
def test_a_field_that_is_missing_unknown_or_of_another_type_is_named(message: Message):
    document = message.to_json()
    cls = type(message)
    with pytest.raises(Malformed, match="surprise: this field is not known"):
        cls.from_json({**document, "surprise": 1})
    with pytest.raises(Malformed, match="version: 2"):
        cls.from_json({**document, "version": 2})
    for field in dataclasses.fields(cls):
        if field.name in document and field.name != "version":
            with pytest.raises(Malformed, match=rf"\.{field.name}"):
                cls.from_json({**document, field.name: {"no": None}})
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            with pytest.raises(Malformed, match=field.name):
                cls.from_json({key: value for key, value in document.items() if key != field.name})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "BUSY"),
        ("name", "a b"),
        ("name", "gpu\n7"),
        ("name", ""),
        ("agent_version", "0.1\u202e"),
        ("boot_id", "../x"),
        ("time", "2026-11-23 08:15:00Z"),
        ("time", "2026-11-23T08:15:00+01:00"),
        ("time", "yesterday"),
        ("identities", {"dmi uuid": "x"}),
        ("identities", {"dmi_uuid": "x\ud800"}),
        ("identities", {"dmi_uuid": ""}),
        ("identities", {"dmi_uuid": "x" * 201}),
        ("identities", {f"a{n}": "x" for n in range(201)}),
        ("endpoint", "gpu-7"),
        ("endpoint", "gpu-7:70000"),
        ("endpoint", "user@gpu-7:80"),
        ("certificate", ""),
        ("certificate", CERTIFICATE * 2),
        ("certificate", "-----BEGIN PRIVATE KEY-----\nMAo=\n-----END PRIVATE KEY-----\n"),
        ("drivers", [{"name": "a", "status": "READY"}, {"name": "a", "status": "READY"}]),
        ("drivers", [{"name": "A\x07", "status": "READY"}]),
        ("resumed", "1/2"),
    ],
)
def test_a_hello_with_odd_values_is_refused(field: str, value: object):
    with pytest.raises(Malformed, match=field.removesuffix("s")):
        Hello.from_json({**HELLO.to_json(), field: value})


@pytest.mark.parametrize(
    ("action", "arguments", "field"),
    [
        ("discovery", {"path": "x"}, "path"),
        ("upgrade", {"path": "x", "version": "1"}, "sha256"),
        ("upgrade", {"path": "x", "version": "1", "sha256": "AB" * 32}, "sha256"),
        ("upgrade", {"path": 5, "version": "1", "sha256": "ab" * 32}, "path"),
        ("setup", {"device": "0000:01:00.0"}, "either driver or vfs"),
        ("setup", {"device": "0000:01:00.0", "vfs": True}, "vfs"),
        ("reboot", {}, "action"),
    ],
)
def test_an_order_with_other_arguments_is_refused(action: str, arguments: dict, field: str):
    order = {"id": "1", "action": action, "arguments": arguments, "expires_at": NOW}
    with pytest.raises(Malformed, match=field):
        Orders.from_json({"version": 1, "orders": [order]})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sequence": 0}, "sequence"),
        ({"sequence": 1 << 63}, "sequence"),
        ({"sequence": 1.0}, "sequence"),
        ({"hardware": {"version": 2, "host": {}}}, "hardware.version"),
        ({"hardware": {"version": 1, "host": {}, "devices": [{"id": "a", "memory_mib": math.nan}]}}, "memory_mib"),
        ({"hardware": {"version": 1, "host": {"attributes": {"a": math.inf}}}}, "attributes.a"),
        ({"hardware": {"version": 1, "host": {"attributes": {"a": "\udfff"}}}}, "attributes.a"),
        ({"hardware": {"version": 1, "host": {}, "devices": [{"id": str(n)} for n in range(20_000)]}}, "20000 values"),
        ({"hardware": {"host": {"attributes": {"a": [[[[[[]]]]]]}}}}, "nested"),
    ],
)
def test_a_report_is_refused_whole(change: dict, field: str):
    with pytest.raises(Malformed, match=field):
        HardwareReport.from_json({**REPORT.to_json(), **change})


def bomb() -> bytes:
    return gzip.compress(b" " * (BODY_BYTES + 1), mtime=0)


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        (b" " * (BODY_BYTES + 1), "", "more than 4194304 bytes"),
        (bomb(), "gzip", "more than 4194304 bytes"),
        (gzip.compress(bomb(), mtime=0), "gzip", "not valid JSON"),
        (REPORT.to_body(compress=True)[:-4], "gzip", "truncated"),
        (REPORT.to_body(compress=True) + b"x", "gzip", "truncated, or more"),
        (REPORT.to_body(), "gzip", "not valid gzip"),
        (REPORT.to_body(), "br", "not supported"),
        (b"", "", "not valid JSON"),
        (b"\xff", "", "not valid JSON"),
        (b"[" * 100_000, "", "not valid JSON"),
        (b'{"version":1,"stored":NaN}', "", "NaN"),
        (b'{"version":1,"sequence":' + b"9" * 5_000 + b"}", "", "too many digits"),
        (b'{"version":1,"sequence":1,"sequence":2}', "", "sequence: this field is there more than once"),
        (b"[]", "", "object"),
    ],
)
def test_a_body_that_is_not_a_document_is_refused(body: bytes, encoding: str, reason: str):
    with pytest.raises(Malformed, match=reason):
        HardwareReport.from_body(body, encoding)


def test_a_report_over_the_limit_is_not_even_sent():
    large = Hardware(host=Host(attributes={f"a{n}": "x" * 60_000 for n in range(100)}))
    with pytest.raises(Malformed, match="4194304"):
        HardwareReport(sequence=1, boot_id="", time=NOW, hardware=large).to_body()


def test_times_are_in_utc_and_exact_to_a_millisecond():
    east = datetime.timezone(datetime.timedelta(hours=3))
    at = datetime.datetime(2026, 11, 23, 11, 15, 0, 250_000, tzinfo=east)
    assert timestamp(at) == NOW
    assert moment(NOW) == at


def test_the_json_form_has_the_names_of_the_contract():
    driver = {"name": "nvidia", "type": ["gpu", "gpu_slice"], "status": "READY"}
    assert json.loads(HELLO.to_body())["drivers"][0] == driver
    assert json.loads(EACH[-1].to_body())["status"] == "IN-PROGRESS"
