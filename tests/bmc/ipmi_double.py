"""A BMC that speaks IPMI, in a process of its own, because pyghmi's event loop belongs to the whole process.

pyghmi's fake BMC, with what real ones do besides: SHA-256, errors in the login, a limit of sessions, an inventory,
sensors and an event log. `ipmitool` checks it as a peer. The process takes commands as lines of JSON and answers
likewise.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import pty
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GUID = uuid.UUID("4c4c4544-0051-3010-8057-b4c04f4d3132")
MAC = "b0:7b:25:c0:ff:ee"
USER, PASSWORD = "admin", "correct horse battery"[:20]


class Double:
    """The process, seen from the tests."""

    def __init__(self, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bmc.ipmi_double", json.dumps(options)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.port = int(self._answer()["port"])

    def ask(self, **command: Any) -> dict[str, Any]:
        """Set attributes of the BMC; return its state."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the double has died"
        return dict(json.loads(line))

    @property
    def sessions(self) -> int:
        """The number of open sessions."""
        return int(self.ask()["sessions"])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def running(**options: Any) -> Iterator[Double]:
    double = Double(**options)
    try:
        yield double
    finally:
        double.close()


def _text(value: str) -> bytes:
    return bytes([0xC0 | len(value)]) + value.encode()


def _area(body: bytes) -> bytes:
    """An area of a FRU: version, length in eights of bytes, content, its end, and a checksum."""
    whole = body + b"\xc1"
    size = -(-(len(whole) + 3) // 8)
    area = bytes([1, size]) + whole
    area = area.ljust(size * 8 - 1, b"\0")
    return area + bytes([-sum(area) & 0xFF])


def fru(product: Mapping[str, str]) -> bytes:
    """FRU 0: a header and a product area."""
    names = ("manufacturer", "name", "model", "version", "serial", "asset")
    area = _area(b"\0" + b"".join(_text(product.get(name, "")) for name in names))
    header = bytes([1, 0, 0, 0, 1, 0, 0])
    return header + bytes([-sum(header) & 0xFF]) + area


def sensor(number: int, name: str, *, type: int, unit: int) -> bytes:
    """A full sensor record with thresholds and the formula value = reading."""
    body = bytearray(42)
    body[0:3] = 0x20, 0, number
    body[3:5] = 3, 1
    body[5], body[6] = 0x7F, 0x68
    body[7], body[8] = type, 1
    body[15], body[16] = 0, unit
    body[19] = 1  # M
    return bytes(body) + _text(name)


def event(number: int, at: int, *, type: int, sensor: int, code: int, offset: int) -> bytes:
    """A standard entry of the event log."""
    return struct.pack("<HBIHBBBBBBB", number, 2, at, 0x20, 4, type, sensor, code, offset, 0xFF, 0xFF)


def main() -> None:
    import pyghmi.ipmi.bmc as fake
    import pyghmi.ipmi.private.serversession as serversession
    from pyghmi.ipmi.private import constants, session

    class Conversation(serversession.ServerSession):
        """A session of the server that refuses as real BMCs do, and can do SHA-256."""

        def create_open_session_response(self, request):
            wanted = (request[8 + 4], request[16 + 4], request[24 + 4])
            one = self.bmc
            self.hash = hashlib.sha256 if wanted == (3, 4, 1) and one.sha256 else hashlib.sha1
            self.cut = 16 if self.hash is hashlib.sha256 else 12
            self.clientsessionid, self.managedsessionid = request[4:8], os.urandom(4)
            self.privlevel, status = 4, 0
            if one.sessions >= one.most_sessions:
                status = 1
            elif one.strict and wanted == (3, 4, 1) and not one.sha256:
                status = 0x11
            chosen = (3, 4, 1) if self.hash is hashlib.sha256 else (1, 1, 1)
            if one.no_encryption:
                chosen = (0, 0, 0)
            self.live = False
            answer = bytearray([request[0], status, 4, 0]) + self.clientsessionid
            if status:
                return answer
            return answer + self.managedsessionid + b"".join(
                bytes([kind, 0, 0, 8, number, 0, 0, 0]) for kind, number in enumerate(chosen)
            )  # fmt: skip

        def _sign(self, key, *parts):
            return hmac.new(bytes(key), b"".join(bytes(part) for part in parts), self.hash).digest()

        def _got_rakp1(self, data):
            self.Rm, self.rolem, self.Rc = data[8:24], data[24], os.urandom(16)
            self.maxpriv, self.username = self.rolem & 7, bytes(data[28 : 28 + data[27]])
            password = self.authdata.get(self.username.decode())
            refused = 0xD if password is None else 9 if self.maxpriv > self.bmc.most_privilege else 0
            if refused:
                if self.bmc.mute_names:
                    return
                answer = bytearray([data[0], refused, 0, 0]) + self.clientsessionid
                self.send_payload(answer, constants.payload_types["rakp2"], retry=False)
                return
            self.kuid = password.encode()
            self.kg = self.kuid
            self.uuiddata = self.uuid.bytes
            code = self._sign(
                self.kuid, self.clientsessionid, self.managedsessionid, self.Rm, self.Rc, self.uuiddata,
                [self.rolem, len(self.username)], self.username,
            )  # fmt: skip
            answer = bytearray([data[0], 0, 0, 0]) + self.clientsessionid + self.Rc + self.uuiddata + code
            self.send_payload(answer, constants.payload_types["rakp2"], retry=False)

        def _got_rakp3(self, data):
            name = [self.rolem, len(self.username)]
            right = self._sign(self.kuid, self.Rc, self.clientsessionid, name, self.username)
            if data[1]:
                return
            if right != bytes(data[8:]):
                answer = bytearray([data[0], 0xF, 0, 0]) + self.clientsessionid
                self.send_payload(answer, constants.payload_types["rakp4"], retry=False)
                return
            self.sik = self._sign(self.kg, self.Rm, self.Rc, name, self.username)
            self.k1, self.k2 = self._sign(self.sik, b"\x01" * 20), self._sign(self.sik, b"\x02" * 20)
            self.aeskey = self.k2[:16]
            self.currhashlib, self.currhashlen = self.hash, self.cut
            self.localsid = struct.unpack("<I", self.managedsessionid)[0]
            self.ipmicallback = self.handle_client_request
            self._send_rakp4(data[0], 0)
            if not self.live:
                self.live, self.bmc.opened = True, self.bmc.opened + 1

        def _send_rakp4(self, tag, status):
            code = self._sign(self.sik, self.Rm, self.managedsessionid, self.uuiddata)[: self.cut]
            answer = bytearray([tag, status, 0, 0]) + self.clientsessionid + code
            self.send_payload(answer, constants.payload_types["rakp4"], retry=False)
            self.confalgo = self.integrityalgo = "yes"
            self.sequencenumber = 1
            self.sessionid = struct.unpack("<I", bytes(self.clientsessionid))[0]

        def handle_client_request(self, request):
            if (request["netfn"], request["command"]) == (6, 0x3C):
                self.close_server_session()
            super().handle_client_request(request)

        def close_server_session(self):
            if self.live:
                self.live, self.bmc.closed = False, self.bmc.closed + 1

    serversession.ServerSession = Conversation

    class Machine(fake.Bmc):
        sha256 = True
        strict = no_encryption = mute_names = mute = False
        most_sessions, most_privilege = 4, 4
        opened = closed = resets = nmis = requests = 0
        lacks: tuple[tuple[int, int], ...] = ()
        refuses: dict[str, int] = {}
        on = lies = False
        boot = bytes(5)
        manufacturer, serial = "Acme", "SN-2231"
        endless = False
        log_size = 3
        chassis = 0
        watts: int | None = None
        """The power by DCMI; None if the BMC does not have it."""
        measuring = True
        console: str | None = None
        """Shell command of the program on the serial console, or None if serial over LAN is disabled."""
        owner = 0
        deactivations = 0

        @property
        def sessions(self):
            return self.opened - self.closed

        def cold_reset(self):
            return 0

        def power(self, on):
            self.on = self.on if self.lies else on

        def control_chassis(self, request, session):
            if self.mute_after_control:
                self.mute = True
            action = request["data"][0]
            if action in (2, 3) and not self.on:
                session.send_ipmi_response(code=0xD5)
                return
            if action in (0, 1, 5):
                self.power(action == 1)
            self.resets += action in (2, 3)
            self.nmis += action == 4
            if not self.mute:
                session.send_ipmi_response()

        mute_after_control = False
        terminal: Any = None

        def open_console(self, session):
            if self.console is None:
                session.send_ipmi_response(code=0x81)
            elif self.owner:
                session.send_ipmi_response(code=0x80)
            else:
                self.terminal = self.terminal or Terminal(self.console)
                self.owner = session.localsid
                port = struct.pack("<H", self.port)
                session.send_ipmi_response(data=[0, 0, 0, 0, 204, 0, 204, 0, *port, 0xFF, 0xFF])
                self.terminal.open_for(session)

        def close_console(self, session):
            self.deactivations += 1
            if not self.owner:
                session.send_ipmi_response(code=0x80)
                return
            self.owner, self.terminal.session = 0, None
            session.send_ipmi_response()

        def handle_raw_request(self, request, session):
            if self.mute:
                return
            self.requests += 1
            at = (request["netfn"], request["command"])
            data = bytes(request["data"])
            if (code := self.refuses.get(f"{at[0]:x} {at[1]:x}")) is not None:
                session.send_ipmi_response(code=code)
            elif at == (0, 2):
                self.control_chassis(request, session)
            elif at == (6, 0x48):
                self.open_console(session)
            elif at == (6, 0x49):
                self.close_console(session)
            elif made := ANSWERS.get(at):
                code, answer = made(self, data)
                session.send_ipmi_response(code=code, data=answer)
            else:
                session.send_ipmi_response(code=0xC1)

    def read_sol_parameter(bmc, data):
        """What ipmitool reads before it opens a console: enabled, encrypted, 115.2 kbps, the port."""
        known = {0: b"\x00", 1: b"\x01", 2: b"\xc4", 3: b"\x0c\x60", 4: b"\x07\x32", 5: b"\x0a", 6: b"\x0a", 7: b"\x01"}
        known[8] = struct.pack("<H", bmc.port)
        return (0, b"\x11" + known[data[1]]) if data[1] in known else (0x80, b"")

    def set_boot(bmc, data):
        if data[0] == 5:
            bmc.boot = data[1:6]
        return 0, b""

    def get_boot(bmc, data):
        return 0, bytes([1, data[0]]) + bmc.boot if data[0] == 5 else bytes([1, data[0], 0])

    def read_fru(bmc, data):
        content = fru({"manufacturer": bmc.manufacturer, "name": "Rocket 2", "serial": bmc.serial, "model": "R2-D"})
        at, size = struct.unpack("<HB", data[1:4])
        part = content[at : at + size]
        return 0, bytes([len(part)]) + part

    def records(bmc):
        return {
            1: sensor(1, "CPU Temp", type=1, unit=1),
            2: sensor(2, "Fan 1", type=4, unit=18),
            3: sensor(3, "Riser", type=1, unit=1),
            4: sensor(4, "Odd", type=1, unit=250),
            5: sensor(5, "Short", type=1, unit=1),
            6: sensor(6, "Empty", type=1, unit=1),
        }

    def read_sdr(bmc, data):
        number, at, size = struct.unpack("<HBB", data[2:6])
        known = records(bmc)
        number = number or 1
        following = 1 if bmc.endless else number + 1 if number + 1 in known else 0xFFFF
        record = bytes([number, 0, 0x51, 1, len(known[number])]) + known[number]
        if size == 0xFF:  # as many real ones, it cannot return a whole record at once
            return 0xCA, b""
        return 0, struct.pack("<H", following) + record[at : at + size]

    def read_sensor(bmc, data):
        if data[0] == 3:
            return 0xCB, b""
        return 0, bytes({1: [41, 0xC0, 0], 2: [88, 0xC0, 0b10], 5: [7, 0xC0], 6: []}[data[0]])

    def log(bmc):
        now = int(time.time()) - 3600
        return {
            n: event(n, now + n, type=1, sensor=1, code=1, offset=0x9) for n in range(1, bmc.log_size + 1)
        }  # fmt: skip

    def read_log(bmc, data):
        number = struct.unpack("<H", data[2:4])[0]
        known = log(bmc)
        number = max(known) if number == 0xFFFF else number or 1
        if number not in known:
            return 0xCB, b""
        following = number if bmc.endless else number + 1 if number + 1 in known else 0xFFFF
        return 0, struct.pack("<H", following) + known[number]

    def read_power(bmc, data):
        if bmc.watts is None:
            return 0xC1, b""
        numbers = struct.pack("<HHHHII", bmc.watts, 1, 9999, 200, int(time.time()), 1000)
        return 0, bytes([data[0]]) + numbers + bytes([0x40 * bmc.measuring])

    ANSWERS = {
        (0x2C, 2): read_power,
        (0, 1): lambda bmc, _: (0, bytes([bmc.on | bmc.chassis, 0, 0])),
        (0, 8): set_boot,
        (0, 9): get_boot,
        (6, 1): lambda bmc, _: (0, bytes([0x20, 1, 2, 0x34, 2, 0xBF, 0x57, 1, 0, 1, 0])),
        (6, 0x37): lambda bmc, _: (0, GUID.bytes_le),
        (0xA, 0x10): lambda bmc, _: (0, bytes([0, 1, 0])),
        (0xA, 0x11): read_fru,
        (0xC, 2): lambda bmc, data: (0, b"\x11" + bytes.fromhex(MAC.replace(":", "")) if data[1] == 5 else b"\x11"),
        (0xA, 0x20): lambda bmc, _: (0, bytes([0x51, 6, 0]) + bytes(11)),
        (0xA, 0x22): lambda bmc, _: (0, b"\x01\x00"),
        (0xA, 0x23): read_sdr,
        (4, 0x2D): read_sensor,
        (0xA, 0x40): lambda bmc, _: (0, bytes([0x51]) + struct.pack("<H", bmc.log_size) + bytes(11)),
        (0xA, 0x42): lambda bmc, _: (0, b"\x01\x00"),
        (0xA, 0x43): read_log,
        (0xA, 0x48): lambda bmc, _: (0, struct.pack("<I", int(time.time()) - 3600 + 60)),
        (6, 0x4B): lambda bmc, _: (0, struct.pack("<I", bmc.owner) + bytes(8)),
        (0xC, 0x22): read_sol_parameter,
    }

    class Terminal:
        """A program on a pseudo terminal, and the BMC's end of serial over LAN to whoever has the console open."""

        def __init__(self, command):
            self.ours, theirs = pty.openpty()
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
            )
            os.close(theirs)
            os.set_blocking(self.ours, False)
            self.session, self.number, self.theirs, self.length = None, 0, 0, 0
            self.sent, self.sent_at = b"", 0.0

        def open_for(self, conversation):
            self.session, self.number, self.theirs, self.sent = conversation, 0, 0, b""
            conversation.sol_handler = self.packet

        def packet(self, payload):
            if self.session is None:
                return
            payload = bytes(payload)
            if payload[0] & 0xF:
                known = self.length if payload[0] & 0xF == self.theirs else 0
                with contextlib.suppress(BlockingIOError):
                    os.write(self.ours, payload[4 + known :])
                self.theirs, self.length = payload[0] & 0xF, len(payload) - 4
                self.put(bytes([0, self.theirs, self.length, 0]))
            if self.sent and payload[1] & 0xF == self.number:
                self.sent = self.sent[payload[2] :]
                self.number = self.number % 15 + 1
                self.sent_at = 0.0

        def put(self, packet):
            self.session.send_payload(bytearray(packet), payload_type=1, retry=False)

        def turn(self):
            """Send what the program has printed, and again what was not acknowledged."""
            if self.session is None or (self.sent and time.monotonic() - self.sent_at < 0.5):
                return
            if not self.sent:
                with contextlib.suppress(OSError):
                    self.sent = os.read(self.ours, 200)
                self.number = self.number or 1
            if self.sent:
                self.sent_at = time.monotonic()
                self.put(bytes([self.number, 0, 0, 0]) + self.sent)

        def end(self):
            self.session = None
            self.process.kill()
            self.process.wait()
            os.close(self.ours)

    # pyghmi binds to the port that it is told, so a free one is taken by it and read back.
    machine = Machine({USER: PASSWORD}, port=0, bmcuuid=GUID, address="127.0.0.1")
    machine.port = machine.serversocket.getsockname()[1]

    def apply(wanted):
        for name, value in wanted.items():
            assert hasattr(machine, name), name
            setattr(machine, name, value)
        if "console" in wanted and machine.terminal is not None:
            ended, machine.terminal, machine.owner = machine.terminal, None, 0
            ended.end()
        shown = ("sessions", "opened", "closed", "on", "resets", "nmis", "requests", "owner", "deactivations")
        return {name: getattr(machine, name) for name in shown} | {"boot": machine.boot.hex(), "port": machine.port}

    print(json.dumps(apply(json.loads(sys.argv[1]))), flush=True)

    def control():
        for line in sys.stdin:
            print(json.dumps(apply(json.loads(line))), flush=True)
        os._exit(0)

    threading.Thread(target=control, daemon=True).start()
    while True:
        with contextlib.suppress(IndexError, struct.error, KeyError, ValueError, AttributeError):  # broken packets
            terminal = machine.terminal
            session.Session.wait_for_rsp(0.01 if terminal is not None else 1)
            if terminal is not None:
                terminal.turn()


if __name__ == "__main__":
    main()
