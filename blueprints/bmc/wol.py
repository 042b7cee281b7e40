"""The driver `wol`: machines without a BMC, switched on by Wake-on-LAN and otherwise controlled over SSH.

The power of such a machine is not measured, it is concluded. A machine that answers over SSH with a pinned key is on.
One that refuses connections runs something, which proves neither on nor off. One that is silent is off only if its
registration says that silence means so, because a broken cable or a crashed system is silent, too.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

from pydantic import AfterValidator, Field

from blueprints.accounts.control import ControlAccount
from blueprints.bmc.contract import Bmc, BmcDriver
from blueprints.bmc.errors import BmcError, BmcLacks, BmcLoginRefused, BmcRefused, BmcUnreachable
from blueprints.bmc.texts import HostName, serial_of, shown
from blueprints.bmc.values import Inventory, Nic, PowerAction, PowerState
from blueprints.contract import Fields
from blueprints.hostshell import HostShell, NeedsOperator
from blueprints.identities import is_placeholder, real
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest
from interfaces.deadline import Deadline
from interfaces.errors import AuthenticationRefused, CommandFailed, ConnectionLost, HostKeyMismatch, InterfaceError
from interfaces.transports import transport_to

Done = TypeVar("Done")
_MAC = re.compile(r"([0-9A-Fa-f]{2})[:-]?" * 5 + r"([0-9A-Fa-f]{2})")
PACKETS = 3
"""Number of magic packets, because nobody confirms them."""
ANSWER = 10.0
"""Seconds that a machine which accepts a connection gets to prove that it is ours and runs commands."""
TRIES, PROBE, PAUSE = 3, 2.0, 0.5
"""A machine is silent if it ignored this many connections, each for this many seconds, with pauses between them."""
_GONE = frozenset([errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT])
_AT_ONCE = """sync
[ -d /run/systemd/system ] && set -- systemctl {verb} --force --force || set -- {program} -f
command -v "$1" >/dev/null || {{ echo "$1 is not installed" >&2; exit 1; }}
(trap '' HUP; sleep 1; exec "$@") </dev/null >/dev/null 2>&1 &
"""
SCRIPTS: Mapping[PowerAction, str] = {
    PowerAction.SHUTDOWN: "[ -d /run/systemd/system ] && exec systemctl poweroff\nexec shutdown -h now\n",
    PowerAction.OFF: _AT_ONCE.format(verb="poweroff", program="poweroff"),
    PowerAction.RESET: _AT_ONCE.format(verb="reboot", program="reboot"),
}
"""The scripts that root runs on the machine, by action. A script that acts at once answers first."""
INSPECT = r"""
d=/sys/class/dmi/id
for n in sys_vendor product_name product_sku product_serial product_uuid bios_version; do
  [ -r $d/$n ] && printf '%s=%s\n' $n "$(cat $d/$n)"
done
printf 'arch=%s\nthreads=%s\n' "$(uname -m)" "$(nproc)"
sed -n 's/^MemTotal: *\([0-9]*\) kB$/memory_kib=\1/p' /proc/meminfo
for i in /sys/class/net/*; do
  [ ! -e "$i/device" ] || printf 'nic=%s %s\n' "${i##*/}" "$(cat "$i/address")"
done
"""


class _Answer(Enum):
    """The reaction of a machine to a connection."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"
    UNKNOWN = "unknown"


def _mac(text: str) -> str:
    found = _MAC.fullmatch(text.strip())
    if found is None or int(found[1], 16) & 1:
        raise ValueError("enter the MAC address of one network port, such as b0:7b:25:c0:ff:ee")
    return ":".join(found.groups()).lower()


class Access(ControlAccount):
    """How a machine is woken, and its control account."""

    mac: Annotated[str, AfterValidator(_mac)] = Field(description="MAC address of the port that wakes the machine.")
    broadcast: HostName = Field(
        default="255.255.255.255",
        description="Where magic packets are sent: the broadcast address of the machine's network, or a relay there.",
    )
    wake_port: int = Field(default=9, ge=1, le=65535, description="UDP port of magic packets.")
    silence_is_off: bool = Field(
        default=False,
        description="Whether a machine that does not answer counts as off. If not, its power is unknown then. Say yes "
        "only if nothing but its power silences it.",
    )


class Credential(Fields):
    """The key of the control account."""

    private_key: str = Field(description="OpenSSH private key of the control account.")


class WolSession(Bmc):
    """Access to one machine. Connections are opened when they are needed, and closed after each call."""

    def __init__(self, access: Access, private_key: str, deadline: Deadline) -> None:
        self._access, self._private_key, self._deadline = access, private_key, deadline

    def close(self) -> None:
        """Do nothing, because no connection outlives a call."""

    def inspect(self) -> Inventory:
        """Read what the operating system knows about its machine. Only the MAC address if it does not answer."""
        mac = self._access.mac
        try:
            said = self._on_machine(lambda shell: shell.as_root(INSPECT))
        except BmcUnreachable as error:
            return Inventory(identities=real({"mac": mac}), missing=(f"Nothing else is known: {error.message}",))
        return _inventory(mac, said)

    def power(self) -> PowerState:
        """Conclude the power from the answers of the machine. `unknown` is common."""
        answer = self._probed()
        if answer is _Answer.ACCEPTED:
            try:
                return self._power_by_login()
            except BmcLoginRefused:
                # One that goes down during the login looks as if it had refused the key. It may be back at once.
                if self._connected() is not _Answer.ACCEPTED:
                    return PowerState.UNKNOWN
                return self._power_by_login()
        off = answer is _Answer.SILENT and self._access.silence_is_off
        return PowerState.OFF if off else PowerState.UNKNOWN

    def _power_by_login(self) -> PowerState:
        try:
            self._on_machine(lambda shell: shell.run(":"), ANSWER)
        except BmcUnreachable:
            return PowerState.UNKNOWN
        return PowerState.ON

    def power_actions(self) -> frozenset[PowerAction]:
        """Return what can be done by magic packet and SSH: no power cycle, and no NMI."""
        return frozenset([PowerAction.ON, *SCRIPTS])

    def switch(self, action: PowerAction) -> None:
        """Send magic packets, which a running machine ignores, or act over SSH."""
        if action is PowerAction.ON:
            self._wake()
        elif action not in SCRIPTS:
            raise BmcLacks(f"Wake-on-LAN and SSH do not offer the action {action}.")
        elif action is PowerAction.RESET or self.power() is not PowerState.OFF:
            self._on_machine(lambda shell: _act(shell, SCRIPTS[action]))

    def _wake(self) -> None:
        packet = b"\xff" * 6 + bytes.fromhex(self._access.mac.replace(":", "")) * 16
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                for _ in range(PACKETS):
                    sender.sendto(packet, (self._access.broadcast, self._access.wake_port))
        except OSError as error:
            where = f"{self._access.broadcast} port {self._access.wake_port}"
            raise BmcUnreachable(f"The magic packet cannot be sent to {where}: {error.strerror or error}.") from None

    def _probed(self) -> _Answer:
        """Connect, and say what happened. Silence is told only after several tries."""
        for number in range(TRIES):
            if number:
                clock.sleep(min(PAUSE, self._deadline.remaining))
            if self._deadline.expired:
                return _Answer.UNKNOWN
            answer = self._connected()
            if answer is not _Answer.SILENT:
                return answer
        return _Answer.SILENT

    def _connected(self) -> _Answer:
        within = min(PROBE, max(0.05, self._deadline.remaining))
        try:
            socket.create_connection((self._access.address, self._access.port), within).close()
        except ConnectionRefusedError:
            return _Answer.REFUSED
        except TimeoutError:
            return _Answer.SILENT
        except OSError as error:
            # Everything else is about this machine or its network, such as a missing route or name.
            return _Answer.SILENT if error.errno in _GONE else _Answer.UNKNOWN
        return _Answer.ACCEPTED

    def _on_machine(self, use: Callable[[HostShell], Done], within: float = float("inf")) -> Done:
        if self._deadline.expired:
            raise BmcUnreachable(f"The session with {self._access.address} took longer than it may.")
        with self._told():
            seconds = min(within, self._deadline.remaining)
            endpoint = self._access.endpoint(connect_timeout=min(ANSWER, seconds))
            transport = transport_to(endpoint, private_key=self._private_key)
            try:
                return use(HostShell(transport, seconds))
            finally:
                transport.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except HostKeyMismatch as error:
            self._raise(
                BmcError, error, "Nothing was sent to it. If the machine has new keys, correct the registration."
            )
        except (AuthenticationRefused, InvalidRequest) as error:
            self._raise(BmcLoginRefused, error)
        except (CommandFailed, NeedsOperator) as error:
            self._raise(BmcRefused, error)
        except InterfaceError as error:
            self._raise(BmcUnreachable, error)

    def _raise(self, kind: type[BmcError], error: DrydockError, hint: str = "") -> NoReturn:
        raise kind(shown(error.message, [self._private_key]), hint=hint or error.hint) from None


class WolDriver(BmcDriver):
    """Controls machines by Wake-on-LAN and SSH."""

    name: ClassVar[str] = "wol"
    Access = Access
    Credential = Credential

    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> WolSession:
        """Return a session. Connects to nothing yet."""
        return WolSession(access, credential["private_key"], Deadline(deadline))

    def identity(self, access: Any) -> str:
        """Return the MAC address."""
        return str(access.mac)


def _act(shell: HostShell, script: str) -> None:
    """Run a script that may end the machine, and with it the connection, before it can answer."""
    try:
        shell.as_root(script)
    except ConnectionLost as error:
        if not error.may_have_run:
            raise


def _inventory(mac: str, said: str) -> Inventory:
    lines = [line.partition("=") for line in said.splitlines()]
    nics = tuple(
        Nic(name=shown(name), mac=address)
        for key, _, value in lines
        if key == "nic"
        for name, _, address in [value.partition(" ")]
        if _MAC.fullmatch(address)
    )
    known = {key: shown(value) for key, _, value in lines if value and not is_placeholder(value)}
    vendor = known.get("sys_vendor", "")
    names = {
        "dmi_uuid": known.get("product_uuid"),
        serial_of(vendor): known.get("product_serial"),
    }
    wrong = f"No network port of the machine has the MAC address {mac}."
    return Inventory(
        vendor=vendor,
        model=known.get("product_name", ""),
        serial=known.get("product_serial", ""),
        sku=known.get("product_sku", ""),
        uuid=known.get("product_uuid", "").lower(),
        bios_version=known.get("bios_version", ""),
        arch=known.get("arch", ""),
        threads=_number(known.get("threads")),
        memory_mib=(_number(known.get("memory_kib")) or 0) // 1024 or None,
        identities=(*real({"mac": mac}), *real(names)),
        nics=nics,
        missing=() if any(nic.mac == mac for nic in nics) else (wrong,),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None
