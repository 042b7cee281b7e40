"""Sessions with IPMI controllers over the network. The only module that imports pyghmi.

pyghmi encodes and decodes messages, carries out the login (RMCP+, RAKP) and reads inventories, sensors and logs. Its
own event loop is not used: it is shared by the whole process, starts a thread that a fork does not copy, and knows no
deadline. Here each session has a socket of its own, and is driven by the thread that uses it.

Nothing is sent to vendors' other protocols (HTTPS, web services), because pyghmi's OEM modules are not loaded.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyghmi.exceptions import IpmiException, PyghmiException
from pyghmi.ipmi import events, fru, sdr
from pyghmi.ipmi.oem import generic
from pyghmi.ipmi.private import constants, util
from pyghmi.ipmi.private import session as pyghmi

from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.texts import shown
from drydock.core import clock
from interfaces.deadline import Deadline

CLOSING = 2.0
"""Seconds that the BMC gets to confirm the end of a session."""
ONCE = 5.0
"""Seconds that the BMC gets to answer a request that must not be repeated."""
MOST_REQUESTS = 5000
"""Requests of one session after which the BMC's tables count as endless."""
LOGINS_WITHOUT_ANSWER = 4
"""Logins in which the BMC falls silent once it knows the user name, after which the name counts as refused."""

SHA1, SHA256 = 1, 256
"""pyghmi's names of cipher suites 3 and 17."""
_ALGORITHMS = {SHA1: (1, 1, 1), SHA256: (3, 4, 1)}
"""Algorithms for authentication, integrity and encryption of each suite, as the BMC confirms them."""
_SOL = 1
"""The payload type of serial over LAN (IPMI 2.0, table 13-16)."""
_BUSY = frozenset([0xC0, 0xC3, 0xC4, 0xCE, 0xD2])
_LACKS = frozenset([0xC1, 0xC2, 0xD6])


def _renew_locks() -> None:
    """Give the child of a fork new locks, because another thread of the parent may have held them."""
    pyghmi.KEEPALIVE_SESSIONS, pyghmi.WAITING_SESSIONS = threading.RLock(), threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


class _Nowhere(dict[Any, Any]):
    """Stores nothing: pyghmi would share the sensors that one BMC describes with all that claim to be of its model."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


sdr.shared_sdrs = _Nowhere()


class Completion(BmcRefused):
    """The BMC completed a request with an error code."""

    def __init__(self, code: int, message: str) -> None:
        self.completion = code
        super().__init__(message)


class _Session(pyghmi.Session):  # type: ignore[misc]
    """A session of pyghmi's with its own socket and deadline."""

    def __new__(cls, *_args: Any, **_options: Any) -> _Session:
        """Return a new object. pyghmi would return the session that another thread has with the same BMC."""
        made: _Session = object.__new__(cls)
        return made

    def __init__(
        self, address: str, port: int, username: str, password: str, *, suite: int, level: int, deadline: Deadline
    ) -> None:
        self.deadline = deadline
        self.where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.forbidsock: tuple[()] = ()
        self.socketchecking = contextlib.nullcontext()
        self.answers = self.garbled = self.refusals = self.unanswered = self.requests = 0
        self.expiration = self.timeout = 0.0
        self.socket: Any = None
        self._pid, self._suite, self._hash, self._tries = os.getpid(), suite, suite or SHA256, 0
        self._peer = _resolved(address, port, deadline)
        self.sessioncontext = None
        try:
            super().__init__(address, username, password, port, onlogon=lambda _: None, privlevel=level or None)
            while self.logging:
                self._turn()
        except BaseException:
            self.close()
            raise

    @property
    def peer_port(self) -> int:
        """The UDP port of the BMC."""
        return int(self._peer[1][1])

    # What pyghmi's event loop does for all sessions at once.

    def _assignsocket(self, server: Any = None, forbiddensockets: Any = ()) -> socket.socket:
        family, address = self._peer
        own = socket.socket(family, socket.SOCK_DGRAM)
        try:
            # Only the BMC's own packets arrive, and a closed port is reported.
            own.connect(address)
        except OSError as error:
            own.close()
            raise BmcUnreachable(f"There is no way to the BMC at {self.where}: {error.strerror}.") from error
        own.setblocking(False)
        self.socketpool, self.allsockaddrs = {own: 1}, [address]
        return own

    def _xmit_packet(self, retry: bool = True, delay_xmit: float | None = None, timeout: float | None = None) -> None:
        if self.sequencenumber:
            self.sequencenumber += 1
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise BmcAnswerInvalid(
                f"The BMC at {self.where} answered {MOST_REQUESTS} requests without coming to an end."
            )
        self.expiration = clock.monotonic() + (timeout or self.timeout if retry else ONCE)
        try:
            self.socket.send(self.netpacket)
        except ConnectionRefusedError:
            self._refused()
        except OSError as error:
            raise BmcUnreachable(f"Cannot send to the BMC at {self.where}: {error.strerror}.") from error

    def awaitresponse(self, retry: bool, netfn: int, command: int) -> None:
        """Wait for the answer to a request. Without `retry`, gives up after a few seconds."""
        until = clock.monotonic() + ONCE
        while pyghmi.unmatched(self.lastresponse, netfn, command):
            self._turn()
            if not retry and clock.monotonic() >= until:
                return

    def _cmdwait(self) -> None:
        """Do nothing, because a session is used by one thread only."""

    def _turn(self, most: float = float("inf")) -> None:
        """Wait for one packet, `most` seconds at most, and handle it; repeat the last request if it is time to."""
        if self._pid != os.getpid():
            raise BmcError("A session with a BMC was used by a child of the process that opened it.")
        if self.deadline.expired:
            raise self._silent()
        wait = min(self.expiration - clock.monotonic(), self.deadline.remaining)
        if wait <= 0:
            self._timedout()
            return
        if not select.select([self.socket], [], [], min(wait, most))[0]:
            return
        try:
            packet = bytearray(self.socket.recv(4096))
        except BlockingIOError:  # a packet with a wrong checksum
            return
        except ConnectionRefusedError:
            self._refused()
            return
        self._handle(packet)

    def turn(self, most: float) -> None:
        """Receive one packet, or nothing within `most` seconds."""
        self._turn(most)

    def _handle(self, packet: bytearray) -> None:
        if len(packet) < 16 or packet[0] != 6 or packet[2:4] != b"\xff\x07":
            self.garbled += 1
            return
        try:
            self._handle_ipmi_packet(packet, sockaddr=self._peer[1], qent=(packet, self._peer[1], None, True))
        except (PyghmiException, BmcError):
            raise
        except Exception:  # pyghmi reads fields without looking whether the packet has them
            self.garbled += 1
            return
        self.answers += 1
        if self.sessioncontext in ("EXPECTINGRAKP4", "ESTABLISHED"):
            self.unanswered = 0

    def _timedout(self) -> None:
        if self.sessioncontext == "ESTABLISHED":
            self.hasretried, self.timeout = 1, min(self.timeout + 0.5, 3.0)
            if self.lastpayload:  # otherwise it must not be repeated
                self.send_payload()
            else:
                self.expiration = clock.monotonic() + ONCE
            return
        if self.sessioncontext == "EXPECTINGRAKP2":
            self.unanswered += 1
            if self.unanswered >= LOGINS_WITHOUT_ANSWER:
                raise self._nameless()
        elif self.sessioncontext == "OPENSESSION" and not self._suite and self._tries % 2:
            # Old controllers ignore what they cannot do.
            self._hash = SHA1 if self._hash == SHA256 else SHA256
        self._tries += 1
        self._relog()

    def _initsession(self) -> None:
        unanswered = getattr(self, "unanswered", 0)
        super()._initsession()
        # Late answers to an earlier try must not be taken for answers to this one.
        self.localsid = int.from_bytes(os.urandom(4), "little") | 1
        self.rmcptag = os.urandom(1)[0] % 200
        self.attemptedhash = self._hash
        self.timeout = min(self.timeout + 0.5 * self._tries, 4.0)
        self.logontries, self.unanswered = 1, unanswered

    def _refused(self) -> None:
        self.refusals += 1
        if self.refusals > 1:
            raise BmcUnreachable(f"Nothing answers IPMI at {self.where}: the port is closed.")

    def _nameless(self) -> BmcError:
        return BmcLoginRefused(
            f"The BMC at {self.where} stopped answering when it got the user name.",
            hint="It may have no such account, or not allow it to log in over the network.",
        )

    def _silent(self) -> BmcError:
        within = f"within {self.deadline.seconds:.3g} s"
        if self.unanswered > 1:
            return self._nameless()
        if self.garbled and not self.answers:
            return BmcAnswerInvalid(f"What answers at {self.where} does not speak IPMI.")
        if self.answers:
            return BmcUnreachable(f"The BMC at {self.where} stopped answering {within}.")
        return BmcUnreachable(f"The BMC at {self.where} did not answer {within}.")

    # What pyghmi would accept.

    def _got_rmcp_response(self, data: bytearray) -> Any:
        """Check which algorithms the BMC has chosen, which pyghmi takes for granted."""
        ours = self.sessioncontext == "OPENSESSION" and data[0] == self.rmcptag
        if ours and data[1] and self._suite:
            self.onlogon({"error": constants.rmcp_codes.get(data[1], f"RMCP code {data[1]}")})
            return None
        if ours and not data[1]:
            chosen = (data[16], data[24], data[32])
            accepted = [self._suite] if self._suite else [SHA256, SHA1]
            suite = next((one for one in accepted if _ALGORITHMS[one] == chosen), None)
            if suite is None:
                self.onlogon({"error": f"The BMC insists on algorithms {chosen}, which are not allowed"})
                return None
            self._choose(suite)
        return super()._got_rmcp_response(data)

    def _choose(self, suite: int) -> None:
        self.attemptedhash = suite
        self.currhashlib, self.currhashlen = (hashlib.sha256, 16) if suite == SHA256 else (hashlib.sha1, 12)

    def _get_session_challenge(self) -> None:
        self.onlogon({"error": "The BMC supports only IPMI 1.5, which does not encrypt"})

    # The end.

    def _mark_broken(self, error: str | None = None) -> None:
        self.errormsg, self.broken, self.logging, self.logged = error, True, False, 0

    def logout(self, sessionok: bool = True) -> None:
        """Do nothing: pyghmi calls this while it recovers a session; ours end with `close`."""

    def close(self) -> None:
        """Ask the BMC to end the session, if there is one, and close the socket. Never raises."""
        own: Any = getattr(self, "socket", None)
        self.socket = None
        if own is None:
            return
        with contextlib.suppress(Exception):
            if self.sessioncontext == "ESTABLISHED" and self._pid == os.getpid():
                self.socket, self.logged, self.broken = own, 1, False
                self.lastpayload, self.requests = None, 0
                self.pendingpayloads.clear()
                self.deadline = Deadline(min(CLOSING, max(0.2, self.deadline.remaining)), spare=CLOSING)
                self.raw_command(netfn=6, command=0x3C, data=struct.pack("<I", self.sessionid))
        self.socket = None
        pyghmi.Session.keepalive_sessions.pop(self, None)
        own.close()


def _resolved(address: str, port: int, deadline: Deadline) -> tuple[int, Any]:
    """Return the family and the socket address of a BMC. The resolver knows no deadline, so a thread waits for it."""
    answer: list[Any] = []

    def resolve() -> None:
        try:
            answer.extend(socket.getaddrinfo(address, port, 0, socket.SOCK_DGRAM)[:1])
        except (OSError, UnicodeError) as error:
            answer.append(error)

    resolving = threading.Thread(target=resolve, name="drydock-bmc-resolver", daemon=True)
    resolving.start()
    resolving.join(deadline.remaining)
    if not answer:
        raise BmcUnreachable(f"The name {address} was not resolved within {deadline.seconds:.3g} s.")
    if isinstance(answer[0], Exception):
        raise BmcUnreachable(f"The name {address} cannot be resolved: {answer[0]}.")
    return answer[0][0], answer[0][4]


class Client:
    """A session with a BMC. Close it. Every method raises `BmcError`, and ends within the session's deadline."""

    def __init__(
        self, address: str, port: int, username: str, password: str, *, suite: int = 0, level: int = 0, seconds: float
    ) -> None:
        """Log in within the time given in seconds.

        `suite` is SHA1, SHA256, or 0 for the best that the BMC has. `level` is the privilege level (2 to 4), or 0 for
        the highest that the account has.
        """
        self._oem = generic.OEMHandler(None, None)
        self._secrets = (password,)
        self._session: _Session | None = None
        with self._understood("login"):
            session = _Session(address, port, username, password, suite=suite, level=level, deadline=Deadline(seconds))
            if session.broken:
                session.close()
                raise self._login_error(session)
            self._session = session

    @property
    def level(self) -> int:
        """The privilege level of the session: 2 user, 3 operator, 4 administrator."""
        return int(self._open().privlevel)

    def close(self) -> None:
        """End the session. Never raises."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def ask(self, netfn: int, command: int, data: Sequence[int] = (), *, repeat: bool = True) -> bytes:
        """Send a request, and return the data of the answer. Raises Completion and its relatives.

        With `repeat=False`, the request is sent only once, and may have been carried out if BmcUnreachable is raised.
        """
        with self._understood(f"request {netfn:#x} {command:#x}"):
            answer = self.raw_command(netfn=netfn, command=command, data=data, retry=repeat)
            if answer is None:
                raise BmcUnreachable(
                    f"The BMC at {self._open().where} did not answer.", hint="It may have carried out the request."
                )
            if answer["code"]:
                raise self._completed(answer)
            return bytes(answer["data"])

    def fru(self) -> Mapping[str, str]:
        """Read the texts of the machine's inventory (FRU 0) by pyghmi's names. Empty if there is none."""
        with self._understood("FRU"):
            found = fru.FRU(ipmicmd=self).info or {}
            return {name: shown(value) for name, value in found.items() if isinstance(value, str)}

    def guid(self) -> str:
        """Read the UUID of the machine, as its firmware prints it."""
        data = self.ask(6, 0x37)
        with self._understood("UUID"):
            return str(util.decode_wireformat_uuid(bytearray(data))).lower()

    def sensors(self) -> Iterator[Any]:
        """Read all sensors as pyghmi's readings, with name, value, units, health and unavailable."""
        with self._understood("sensors"):
            repository = _Repository(self)
            for number in sorted(repository.get_sensor_numbers()):
                sensor = repository.sensors[number]
                answer = self.raw_command(netfn=4, command=0x2D, rslun=sensor.sensor_lun, data=(sensor.sensor_number,))
                if answer["code"] == 0xCB:  # an optional part that is not installed
                    continue
                if answer["code"]:
                    raise self._completed(answer)
                yield self._reading(sensor, answer["data"])

    def _reading(self, sensor: Any, data: bytearray) -> Any:
        """Decode a reading. One that makes no sense is unavailable, and does not affect the others."""
        try:
            # The last byte, with the thresholds, is optional; pyghmi expects it.
            return sensor.decode_sensor_reading(self, bytearray(data).ljust(3, b"\0"))
        except (LookupError, ValueError, TypeError, ArithmeticError):
            gone = {"name": sensor.name, "type": sensor.sensor_type, "unavailable": 1}
            return sdr.SensorReading(gone, "")

    def log(self, most: int) -> Iterator[tuple[Mapping[str, Any], dt.datetime | None]]:
        """Read the newest entries of the event log, oldest first: pyghmi's events, and their times.

        The BMC's clock may be wrong, so times are computed from the age of an entry.
        """
        with self._understood("event log"):
            names = self._sensors_for_names()
            decoder = events.EventHandler(names, self)
            offset = clock.now().timestamp() - struct.unpack_from("<I", self.ask(0xA, 0x48))[0]
            for record in self._records(most):
                event = decoder._sel_decode(record)
                code = event.get("timecode")
                at = None
                # Smaller ones count seconds since the BMC started, and all ones means unknown.
                if code and 0x20000000 <= code < 0xFFFFFFFF:
                    at = dt.datetime.fromtimestamp(code + offset, dt.UTC)
                yield event, at

    def _sensors_for_names(self) -> Any:
        try:
            return _Repository(self)
        except (PyghmiException, NotImplementedError, LookupError, ValueError, struct.error):
            return _NoSensors

    def _records(self, most: int) -> Sequence[bytes]:
        """Return the newest records. Begins near the end if the BMC numbers them one after the other."""
        if not struct.unpack_from("<H", self.ask(0xA, 0x40), 1)[0]:
            return ()
        last = struct.unpack_from("<H", self._record(0xFFFF)[1])[0]
        found: deque[bytes] = deque(maxlen=most)
        for start in (max(0, last - most + 1), 0):
            at = start
            try:
                while at != 0xFFFF:
                    following, record = self._record(at)
                    found.append(record)
                    if following == at:
                        raise BmcAnswerInvalid("An entry of the BMC's event log is followed by itself.")
                    at = following
                return found
            except Completion as error:
                if error.completion != 0xCB or not start:
                    raise
                found.clear()
        return found

    def _record(self, id: int) -> tuple[int, bytes]:
        data = self.ask(0xA, 0x43, struct.pack("<HHBB", 0, id, 0, 0xFF))
        return struct.unpack_from("<H", data)[0], data[2:]

    # Serial over LAN.

    @property
    def port(self) -> int:
        """The UDP port of the BMC."""
        return self._open().peer_port

    @property
    def session_id(self) -> int:
        """The BMC's id of the session."""
        return int(self._open().sessionid)

    def renew(self, seconds: float) -> None:
        """Let the session last this many seconds from now, whatever its deadline was."""
        session = self._open()
        session.deadline, session.requests = Deadline(seconds), 0

    def receive_serial(self, handler: Callable[[bytes], None] | None) -> None:
        """Pass every packet of the serial console that arrives from now on to a function."""
        self._open().sol_handler = handler and (lambda payload: handler(bytes(payload)))

    def send_serial(self, packet: bytes) -> None:
        """Send a packet of the serial console once. Its acknowledgement is a packet that is received."""
        self._open().send_payload(bytearray(packet), payload_type=_SOL, retry=False)

    def wait(self, seconds: float) -> None:
        """Receive one packet, or nothing within this many seconds."""
        with self._understood("serial console"):
            self._open().turn(seconds)

    # What pyghmi's decoders call.

    def raw_command(self, netfn: int, command: int, data: Sequence[int] = (), **options: Any) -> Any:
        """Send a request, and return pyghmi's answer, with its code and, if that is not 0, an error."""
        options.setdefault("bridge_request", None)
        return self._open().raw_command(netfn=netfn, command=command, data=data, **options)

    def xraw_command(self, netfn: int, command: int, data: Sequence[int] = (), **options: Any) -> Any:
        """Send a request, and return pyghmi's answer. Raises if its code is not 0."""
        answer = self.raw_command(netfn, command, data, **options)
        if answer["code"]:
            raise IpmiException(answer.get("error", ""), code=answer["code"])
        return answer

    def get_event_constants(self) -> Any:
        """Return the tables by which events are described."""
        return self._oem.get_oem_event_const()

    # Errors.

    def _open(self) -> _Session:
        if self._session is None:
            raise BmcError("The session with the BMC is closed.")
        return self._session

    @contextlib.contextmanager
    def _understood(self, what: str) -> Iterator[None]:
        try:
            yield
        except IpmiException as error:
            raise BmcAnswerInvalid(
                f"The BMC's answer ({what}) is invalid: {shown(str(error), self._secrets)}."
            ) from None
        except (PyghmiException, NotImplementedError, LookupError, ValueError, TypeError, struct.error) as error:
            raise BmcAnswerInvalid(f"The BMC's answer ({what}) cannot be understood.") from error

    def _completed(self, answer: Mapping[str, Any]) -> BmcError:
        code = answer["code"]
        said = shown(str(answer.get("error") or util.get_ipmi_error(answer)), self._secrets)
        if code in _BUSY:
            return BmcBusy(f"The BMC is busy: {said}.")
        if code in _LACKS:
            return BmcLacks(f"The BMC does not offer this: {said}.")
        return Completion(code, f"The BMC refused the request: {said} (code {code:#04x}).")

    def _login_error(self, session: _Session) -> BmcError:
        said = shown(session.errormsg or "no reason", self._secrets)
        where = f"The BMC at {session.where}"
        if said.startswith(("Insufficient resources", "No available login slots", "No slot")):
            return BmcBusy(f"{where} has no free session: {said}.")
        if said.startswith("No Cipher suite") or any(word in said for word in ("algorithm", "IPMI 1.5", "MD5")):
            return BmcRefused(f"{where} and Drydock have no cipher suite in common: {said}.")
        return BmcLoginRefused(f"{where} refused the login: {said}.")


class _Repository(sdr.SDR):  # type: ignore[misc]
    """The sensors that a BMC describes, without those whose description makes no sense."""

    def add_sdr(self, sdrbytes: Any) -> None:
        """Add the sensor of one record."""
        with contextlib.suppress(LookupError, ValueError, TypeError, NotImplementedError, struct.error):
            super().add_sdr(sdrbytes)


class _NoSensors:
    """Stands for the sensors of a BMC that does not describe them: events then have numbers for names."""

    sensors: Mapping[str, Any] = {}
    fru: Mapping[int, Any] = {}
