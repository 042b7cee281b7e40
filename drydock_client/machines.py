"""The machine of a lease: its status, the actions on it, its console output, and its attestation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import ConsoleInfo, ConsolePart, EvidenceInfo, MachineInfo

ACTS = ("stop", "start", "reboot", "resize", "change-type", "tags")


def _acts(whose: str) -> dict[str, tuple[str, str]]:
    """Return a mapping from each action on a machine to its summary and the model of its body."""
    return {
        "stop": (f"Stop {whose}", "Empty"), "start": (f"Start {whose}", "Empty"),
        "reboot": (f"Reboot {whose}", "Empty"), "resize": (f"Enlarge the disk of {whose}", "Disk"),
        "change-type": (f"Change the instance type of {whose}", "Type"), "tags": (f"Set tags on {whose}", "Tags"),
    }  # fmt: skip


class Machines(Operations):
    """Machines of exclusive leases and, for operators only, resources that are machines."""

    @operation("GET", "leases/{id}/machine", "Get the machine of a lease")
    def lease_machine(self, id: int) -> MachineInfo:
        """Return the power, instance type, tags, capabilities and current action of a lease's machine."""

    @operation("GET", "resources/{id}/machine", "Get the machine of a resource", scope="operate")
    def resource_machine(self, id: int) -> MachineInfo:
        """Return the power, instance type, tags, capabilities and current action of a resource that is a machine."""

    @operation(
        "POST", "leases/{id}/{act}", "Change the machine of a lease", scope="lease",
        acts=_acts("the machine of a lease"),
    )  # fmt: skip
    def change_lease_machine(self, id: int, act: str, **given: Any) -> MachineInfo:
        """Request an action on a lease's machine, and return the machine with the action's progress.

        Allowed for operators, and for the owner of a lease that holds the whole machine. The machine's `progress`
        describes the work under way, and `outcome` later says how the action ended.
        """

    @operation(
        "POST", "resources/{id}/{act}", "Change the machine of a resource", scope="operate",
        acts=_acts("the machine of a resource"),
    )  # fmt: skip
    def change_resource_machine(self, id: int, act: str, **given: Any) -> MachineInfo:
        """Request an action on a resource that is a machine, and return the machine with the action's progress.

        The machine's `progress` describes the work under way, and `outcome` later says how the action ended.
        """

    @operation("POST", "leases/{id}/console", "Read the console of a lease's machine", scope="lease", host="lease")
    def lease_console(self, id: int) -> ConsoleInfo:
        """Return the last 64 KiB of the machine's console output, with secrets removed. Records an event.

        The output is what the provider of the machine returns or, for machines to whose console programs can attach,
        what was printed while somebody was attached. Allowed for operators, and for the owner of a lease that holds the
        whole machine.
        """

    @operation("POST", "leases/{id}/console/attach", "Attach to the console of a lease's machine", scope="lease")
    def attach_console(self, id: int, *, session: str = "", read_only: bool = False, take: bool = False) -> ConsolePart:
        """Attach to the serial console, and return the session with which to read and type. Records an event.

        Any number of programs read, and one of them types: the first that attaches without `read_only`, until it
        detaches or another one attaches with `take`. `take` also ends a session that somebody has with the console
        outside Drydock. With the `session` of an earlier call, that session is changed. A session ends 45 seconds after
        it was last used. Allowed for operators, and for the owner of a lease that holds the whole machine. Raises
        NotSupported if the machine has no console to attach to, Conflict if it is open for another lease, and Busy.
        """

    @operation("GET", "leases/{id}/console/output", "Read from the console of a lease's machine", scope="lease",
               query="ConsoleRead")  # fmt: skip
    def read_console(
        self, id: int, *, offset: int = 0, session: str = "", revision: int = -1, wait: float = 0.0, limit: int = 65536
    ) -> ConsolePart:
        """Return a part of what the console printed while somebody was attached: at most `limit` bytes from `offset`.

        Waits up to `wait` seconds for output, or for a change since `revision`. The newest 256 KiB are kept until the
        lease ends. A `session` lasts as long as it reads.
        """

    @operation("POST", "leases/{id}/console/input", "Type at the console of a lease's machine", scope="lease",
               body="ConsoleInput")  # fmt: skip
    def write_console(self, id: int, *, session: str, sequence: int, content: bytes) -> None:
        """Type bytes at the console, at most 8 KiB at once.

        `sequence` is one more than that of the input before, and the first is one more than `typed` of the attached
        session. An input that is sent again under the same number is typed once. Raises Conflict if the session has
        ended, or does not type any more because somebody took its place, and Busy if the machine takes nothing.
        """

    @operation("POST", "leases/{id}/console/detach", "Detach from the console of a lease's machine", scope="lease")
    def detach_console(self, id: int, *, session: str) -> None:
        """End a session. The console is closed after the last one. Has no effect if the session has ended."""

    @operation("POST", "resources/{id}/console", "Read the console of a machine", scope="operate", host="resource")
    def resource_console(self, id: int) -> ConsoleInfo:
        """Return the last 64 KiB of the machine's console output, with secrets removed. Records an event."""

    @operation(
        "POST", "leases/{id}/attest", "Attest the machine of a lease", scope="lease", body="Attestation", host="lease"
    )
    def attest(
        self, id: int, *, nonce: str = "", mr_td: Sequence[str] = (), kind: str = "tdx", pcr: Sequence[str] = ()
    ) -> EvidenceInfo:
        """Fetch a quote from the machine of an active lease, verify it, and keep it with the lease.

        `kind` is `tdx` or `tpm`. The quote answers `nonce`, 16 to 64 bytes in hexadecimal digits; if it is empty, the
        server makes one. `mr_td` contains the accepted values of MR_TD, and `pcr` expected values of PCRs such as
        `7=65CA...`; other PCRs must be as enrolled. A quote that is not trustworthy is kept too: see `passed` and
        `checks`. Raises NotSupported if the lease is not a host, or if the machine cannot make such a quote; Conflict
        if what the machine returned is not such a quote.
        """

    @operation("GET", "leases/{id}/evidence", "List the attestation evidence of a lease")
    def evidence(self, id: int) -> list[EvidenceInfo]:
        """Return the attestation evidence that is kept with a lease, the newest first: at most 10."""

    def machine(self, id: int, *, resource: bool = False) -> MachineInfo:
        """Return a machine's power, instance type, tags, capabilities and current action.

        `id` is the id of a lease that holds the machine exclusively. Operators can set `resource` to true and give the
        id of a resource instead. The other methods take the same arguments.
        """
        return self.resource_machine(id) if resource else self.lease_machine(id)

    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> MachineInfo:
        """Request `stop`, `start`, `reboot`, `resize(disk_gib)`, `change-type(type_name)` or `tags(tags)`.

        Raises NotSupported with the name of a capability that the machine lacks, and Conflict while the machine is
        busy.
        """
        change = self.change_resource_machine if resource else self.change_lease_machine
        return change(id, act, **given)

    def console(self, id: int, *, resource: bool = False) -> ConsoleInfo:
        """Return the last 64 KiB of a machine's console output. Records an event."""
        return self.resource_console(id) if resource else self.lease_console(id)
