"""The conformance suite of BMC drivers.

    class TestMine(BmcConformance):
        driver = Mine()
        session = MySession
        def access(self): ...
        def credential(self): ...

Run it against a double, or against a machine that nobody uses: it switches the power. Tests of capabilities that the
sessions lack, and those whose hooks are not implemented, are not collected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar, cast

import pytest
from pydantic import ValidationError

from blueprints.bmc import registry
from blueprints.bmc.contract import (
    CAPABILITIES,
    Bmc,
    BmcDriver,
    Boots,
    Identifies,
    Logs,
    Measures,
    Mounts,
    capabilities,
)
from blueprints.bmc.errors import BmcError, BmcLacks, BmcUnreachable
from blueprints.bmc.values import BootDevice, BootOverride, Inventory, PowerAction, PowerState
from drydock.core import clock
from interfaces.deadline import Deadline

Test = TypeVar("Test", bound=Callable[..., None])
MOST_ENTRIES = 200


def needs(*what: type | str) -> Callable[[Test], Test]:
    """Mark a test that applies only to sessions of these classes, or if these hooks are implemented."""

    def mark(test: Test) -> Test:
        test.needs = what  # type: ignore[attr-defined]
        return test

    return mark


class BmcHooks:
    """The BMC under test: subclasses say how it is reached, and what to expect."""

    driver: ClassVar[BmcDriver]
    session: ClassVar[type[Bmc]]
    """The class of the driver's sessions, from which follows what they can do."""
    deadline: ClassVar[float] = 30.0
    """Seconds for a session in which everything goes well."""
    silence: ClassVar[float] = 0.5
    """Seconds for a session with a BMC that does not answer."""
    patience: ClassVar[float] = 60.0
    """Seconds until an accepted change of power has had its effect."""
    off: ClassVar[PowerState] = PowerState.OFF
    """The power that the driver reports for a machine that is off. Some drivers can only report `unknown`."""

    def access(self) -> Mapping[str, Any]:
        """Return the fields of Access for a BMC that answers."""
        raise NotImplementedError

    def credential(self) -> Mapping[str, str]:
        """Return the credential of an account that may do everything."""
        raise NotImplementedError

    def wrong_credential(self) -> Mapping[str, str]:
        """Return a credential that the BMC refuses. Implement it if the BMC asks for one."""
        raise NotImplementedError

    def silent_access(self) -> Mapping[str, Any]:
        """Return the fields of Access for a BMC that takes requests and never answers. Implement it if you have one."""
        raise NotImplementedError

    def sessions(self) -> int | None:
        """Return the number of sessions that are open at the BMC; None if it has none, or cannot be asked."""
        return None


class BmcConformance(BmcHooks):
    """The suite. Subclass it under a name that begins with Test, and set `driver`, `session` and the hooks."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in dir(cls):
            wanted = getattr(getattr(cls, name), "needs", ()) if name.startswith("test_") else ()
            if not all(cls._has(one) for one in wanted):
                setattr(cls, name, None)

    @classmethod
    def _has(cls, wanted: type | str) -> bool:
        if isinstance(wanted, str):
            return getattr(cls, wanted) is not getattr(BmcHooks, wanted)
        return issubclass(cls.session, wanted)

    def test_it_is_found_by_its_name(self) -> None:
        registry.installed.cache_clear()
        assert isinstance(registry.driver(self.driver.name), type(self.driver))

    def test_a_registration_with_an_unknown_field_is_refused(self) -> None:
        for model, fields in ((self.driver.Access, self.access()), (self.driver.Credential, self.credential())):
            if model is not None:
                model.model_validate(dict(fields))
                with pytest.raises(ValidationError):
                    model.model_validate({**fields, "no_such_field": 1})

    def test_its_identity_is_the_same_every_time_and_no_secret(self) -> None:
        first, second = (self.driver.identity(self._parsed(self.access())) for _ in range(2))
        assert first == second != ""
        self._has_no_secret(first)

    def test_the_power_goes_on_and_off(self) -> None:
        with self.open() as session:
            for action, wanted in ((PowerAction.ON, PowerState.ON), (PowerAction.OFF, self.off)):
                session.switch(action)
                self._reaches(wanted)

    def test_asking_for_the_power_that_it_has_succeeds(self) -> None:
        with self.open() as session:
            for action, wanted in ((PowerAction.ON, PowerState.ON), (PowerAction.OFF, self.off)):
                session.switch(action)
                self._reaches(wanted)
                session.switch(action)
                self._reaches(wanted)

    @pytest.mark.parametrize("action", list(PowerAction))
    def test_an_action_is_accepted_if_it_is_offered_and_refused_otherwise(self, action: PowerAction) -> None:
        with self.open() as session:
            session.switch(PowerAction.ON)
            self._reaches(PowerState.ON)
            if action in session.power_actions():
                session.switch(action)
            else:
                with pytest.raises(BmcLacks):
                    session.switch(action)
        self._settles()

    def test_what_it_knows_about_its_machine_is_listed(self) -> None:
        with self.open() as session:
            session.switch(PowerAction.ON)
            self._reaches(PowerState.ON)
            found = session.inspect()
        assert isinstance(found, Inventory)
        assert found.identities or found.missing
        assert all(one.mac == one.mac.lower() for one in found.nics)

    @needs(Boots)
    def test_a_boot_override_is_read_back_and_removed(self) -> None:
        with self.open() as session:
            boots = cast(Boots, session)
            for once in (True, False):
                boots.set_boot(BootOverride(device=BootDevice.NETWORK, once=once))
                assert boots.boot() == BootOverride(device=BootDevice.NETWORK, once=once)
            boots.set_boot(BootOverride(device=BootDevice.DEFAULT))
            assert boots.boot() is None

    @needs(Mounts)
    def test_a_medium_is_ejected_even_if_none_is_inserted(self) -> None:
        with self.open() as session:
            for medium in cast(Mounts, session).media():
                cast(Mounts, session).eject(medium.slot)

    @needs(Measures)
    def test_sensors_have_names(self) -> None:
        with self.open() as session:
            found = cast(Measures, session).sensors()
        assert all(one.name for one in found)
        assert all(one.unit for one in found if one.value is not None)

    @needs(Logs)
    def test_the_log_is_short_and_in_order(self) -> None:
        with self.open() as session:
            found = cast(Logs, session).entries()
            assert len(found) <= MOST_ENTRIES
            times = [one.at for one in found if one.at is not None]
            assert times == sorted(times)
            if times:
                later = cast(Logs, session).entries(since=times[-1])
                assert len([one for one in later if one.at is not None]) <= len(times)

    @needs(Identifies)
    def test_the_account_is_named(self) -> None:
        with self.open() as session:
            assert cast(Identifies, session).login().user

    @needs("wrong_credential")
    def test_a_refused_credential_is_not_quoted(self) -> None:
        wrong = self.wrong_credential()
        with pytest.raises(BmcError) as caught, self.open(credential=wrong) as session:
            session.switch(PowerAction.RESET)
        self._has_no_secret(str(caught.value), wrong)

    @needs("silent_access")
    def test_silence_ends_at_the_deadline(self) -> None:
        silent = self.silent_access()
        with pytest.raises(BmcUnreachable) as caught, self.open(access=silent, deadline=self.silence) as session:
            session.switch(PowerAction.RESET)
        self._has_no_secret(str(caught.value))

    def test_sessions_are_closed_also_after_an_error(self) -> None:
        before = self.sessions()
        session = self.open_once()
        session.power()
        session.close()
        session.close()
        assert self.sessions() == before
        with pytest.raises(ZeroDivisionError), self.open():
            raise ZeroDivisionError
        assert self.sessions() == before

    def test_two_threads_can_use_a_session_each(self) -> None:
        found: list[object] = []

        def read() -> None:
            try:
                with self.open() as session:
                    found.extend(session.power() for _ in range(2))
            except BmcError as error:
                found.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert {type(one) for one in found} == {PowerState}

    def test_sessions_are_of_the_class_that_the_suite_was_told(self) -> None:
        with self.open() as session:
            assert isinstance(session, self.session)
            assert {name for name, base in CAPABILITIES.items() if issubclass(self.session, base)} == capabilities(
                session
            )

    # Tools.

    def open_once(
        self, access: Mapping[str, Any] | None = None, credential: Mapping[str, str] | None = None, deadline: float = 0
    ) -> Bmc:
        """Open a session, by default with the right credential and the usual deadline."""
        return self.driver.open(
            self._parsed(self.access() if access is None else access),
            self.credential() if credential is None else credential,
            deadline=deadline or self.deadline,
        )

    @contextmanager
    def open(self, **options: Any) -> Iterator[Bmc]:
        """Open a session for a block."""
        with self.open_once(**options) as session:
            yield session

    def _parsed(self, access: Mapping[str, Any]) -> Any:
        return self.driver.Access.model_validate(dict(access))

    def _reaches(self, wanted: PowerState) -> None:
        until = Deadline(self.patience)
        while True:
            with self.open() as session:
                found = session.power()
            if found is wanted:
                return
            assert not until.expired, f"the power is {found}, not {wanted}"
            clock.sleep(0.05)

    def _settles(self) -> None:
        """Wait until the machine is on or off."""
        until = Deadline(self.patience)
        with self.open() as session:
            while session.power() is PowerState.CHANGING and not until.expired:
                clock.sleep(0.05)

    def _has_no_secret(self, text: str, credential: Mapping[str, str] | None = None) -> None:
        for name, value in {**self.credential(), **(credential or {})}.items():
            if name not in ("user", "username") and value:
                assert value not in text, f"the {name} is shown"
