"""The checks as data: what each is called, what it asserts and needs, and how long it may take at most.

After the twelve parts of Brev's suite (v1/*_validation.go), and what that leaves out: idempotent and lost creates,
refusals, the pinned host key, reboot, tags, disk and type, spot, expiry, a second terminate, nothing left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blueprints.cloud.validation import changing, creating, living, reading
from blueprints.cloud.validation.ground import Ground


@dataclass(frozen=True, kw_only=True)
class Check:
    """One of them. `act` raises `waiting.Unmet` with a sentence where what it asserts is not so, and answers a
    sentence for people. It ends what it makes beside the main machine, and puts that back to running."""

    name: str
    asserts: str
    act: Callable[[Ground], str]
    needs: str = ""
    """The capability without which it is not supported."""
    lacks: str = ""
    """The capability with which there is nothing to be seen."""
    after: str = ""
    """The check that must have passed."""
    limit: float = 120.0
    """Seconds; a call that is under way may be over it by its own deadline."""
    makes: int = 0
    """Machines that it has at once, beside the main one."""


CHECKS = (
    Check(name="identity", act=reading.identity, asserts="The account says who it is, twice the same."),
    Check(name="locations", act=reading.locations, asserts="There is a location, and one that is available."),
    Check(name="types", act=reading.types, limit=300.0,
          asserts="Asked twice: the same types, ids that are unique and kept; a location's are among all."),
    Check(name="prices", act=reading.prices, asserts="Prices are above nothing and say where they are from."),
    Check(name="quotas", act=reading.quotas, needs="quota", asserts="Limits of the account and what is used of them."),
    Check(name="image-choice", act=reading.image_choice,
          asserts="An image is found by its id; one that is not there is told as not found."),
    Check(name="images", act=reading.images, needs="machine-image", asserts="Images by a pattern, newest first."),
    Check(name="refused-create", act=creating.refused_create, limit=900.0, makes=1,
          asserts="A create with an impossible image, or type, is a definite no, and leaves no machine."),
    Check(name="create", act=creating.create, limit=600.0,
          asserts="A machine as ordered, answered for in time, that says when it was made."),
    Check(name="repeated-create", act=creating.repeated_create, needs="idempotent-create", after="create", limit=600.0,
          asserts="The same token makes no second machine, with whatever parameters."),
    Check(name="listing", act=creating.listing, after="create", limit=600.0,
          asserts="It is listed by its tags in its place alone, and read by its id and by its name."),
    Check(name="boot", act=living.boot, after="create", limit=1200.0, asserts="It runs, and has an address."),
    Check(name="ssh", act=living.ssh, after="boot", needs="user-data", limit=700.0,
          asserts="It lets our account in, by the host key that it was given and no other."),
    Check(name="guest", act=living.guest, after="ssh", limit=700.0,
          asserts="cloud-init is done; Debian or Ubuntu as ordered, a home, systemd well, root without a password."),
    Check(name="firewall", act=living.firewall, needs="firewall", after="ssh", limit=600.0,
          asserts="A port is reached from outside only while it is open."),
    Check(name="tags", act=living.tags, needs="tags", after="boot", limit=600.0,
          asserts="A tag is set and read; the others stay."),
    Check(name="console", act=living.console, needs="console-output", after="boot", limit=600.0,
          asserts="The console says something, not too much at once."),
    Check(name="reboot", act=changing.reboot, needs="reboot", after="ssh", limit=1200.0,
          asserts="Another boot of the same machine, reached by the same key."),
    Check(name="resize-volume", act=changing.resize_volume, needs="resize-volume", after="ssh", limit=1800.0,
          asserts="The guest sees a larger disk."),
    Check(name="stop-start", act=changing.stop_start, needs="stop-start", after="ssh", limit=2400.0,
          asserts="Stopped it does not answer; started it is the same machine with the same disk and key."),
    Check(name="change-type", act=changing.change_type, needs="change-type", after="ssh", limit=2400.0,
          asserts="Stopped it becomes another type, and runs as that."),
    Check(name="lost-create", act=creating.lost_create, limit=1800.0, makes=1,
          asserts="A machine whose create was never answered is found by its order, and ended by its name."),
    Check(name="spot", act=creating.spot, needs="spot", limit=1800.0, makes=1,
          asserts="A spot order makes a spot machine, or is a definite no that leaves none."),
    Check(name="spot-refusal", act=creating.spot_refusal, lacks="spot", limit=900.0, makes=1,
          asserts="Without spot machines a spot order is a definite no."),
    Check(name="expiry", act=creating.expiry, needs="server-side-expiry", limit=1500.0, makes=1,
          asserts="The provider ends a machine by itself when its time is over."),
    Check(name="terminate", act=changing.terminate, after="create", limit=1300.0,
          asserts="Ended, until a read shows it; asked for again it is success."),
    Check(name="nothing-left", act=changing.nothing_left, limit=1300.0,
          asserts="No machine of this run is listed, and nothing is left under any of its names."),
)  # fmt: skip
NAMES = tuple(one.name for one in CHECKS)
CHEAP = tuple(one.name for one in CHECKS[: NAMES.index("refused-create")])
"""Those that make nothing."""
