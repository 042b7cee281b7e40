"""The conformance suite of network drivers.

    class TestMine(NetworkConformance):
        driver = Mine()
        def settings(self): ...
        def networks(self): ...
        def port(self): ...

Run it against a double, or against a port of a switch that nobody uses: it is moved between two networks. Tests whose
hooks are not implemented are not collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import pytest
from pydantic import ValidationError

from blueprints.networks import registry
from blueprints.networks.contract import Access, NetworkDriver, Port
from blueprints.networks.errors import NetworkError, NetworkUnknown, NetworkUnreachable
from drydock.core import clock
from interfaces.deadline import Deadline

Test = TypeVar("Test", bound=Callable[..., None])


def needs(*hooks: str) -> Callable[[Test], Test]:
    """Mark a test that applies only if these hooks are implemented."""

    def mark(test: Test) -> Test:
        test.needs = hooks  # type: ignore[attr-defined]
        return test

    return mark


class NetworkHooks:
    """The switch under test: subclasses say how it is reached."""

    driver: ClassVar[NetworkDriver]
    deadline: ClassVar[float] = 20.0
    """Seconds for a call in which everything goes well."""
    silence: ClassVar[float] = 0.5
    """Seconds for a call of a switch that does not answer."""

    def settings(self) -> Mapping[str, Any]:
        """Return the settings for a switch that answers."""
        raise NotImplementedError

    def networks(self) -> tuple[str, str]:
        """Return the names of two networks that the settings know."""
        raise NotImplementedError

    def port(self) -> Mapping[str, str]:
        """Return the fields of a port that is in no network."""
        raise NotImplementedError

    def credential(self) -> Mapping[str, str]:
        """Return the credential of an account that may switch the port."""
        return {}

    def wrong_credential(self) -> Mapping[str, str]:
        """Return a credential that the switch refuses. Implement it if the switch asks for one."""
        raise NotImplementedError

    def unknown_port(self) -> Mapping[str, str]:
        """Return the fields of a port that the switch does not have. Implement it if the driver can tell."""
        raise NotImplementedError

    def silent_settings(self) -> Mapping[str, Any]:
        """Return settings for a switch that takes requests and never answers. Implement it if you have one."""
        raise NotImplementedError


class NetworkConformance(NetworkHooks):
    """The suite. Subclass it under a name that begins with Test, and set `driver` and the hooks."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in dir(cls):
            wanted = getattr(getattr(cls, name), "needs", ()) if name.startswith("test_") else ()
            if any(getattr(cls, one) is getattr(NetworkHooks, one) for one in wanted):
                setattr(cls, name, None)

    def test_it_is_found_by_its_name(self) -> None:
        registry.installed.cache_clear()
        assert isinstance(registry.driver(self.driver.name), type(self.driver))

    def test_settings_with_an_unknown_field_are_refused(self) -> None:
        for model, fields in ((self.driver.Settings, self.settings()), (self.driver.Credential, self.credential())):
            if model is not None:
                model.model_validate(dict(fields))
                with pytest.raises(ValidationError):
                    model.model_validate({**fields, "no_such_field": 1})

    def test_its_ids_are_those_of_all_networks_and_different(self) -> None:
        ids = self.driver.ids(self.access().settings)
        if ids is not None:
            assert set(self.networks()) <= ids.keys()
            assert len(set(ids.values())) == len(ids)

    def test_a_port_is_attached_and_detached_and_both_are_read_back(self) -> None:
        with self._afterwards():
            for network in self.networks():
                assert self.there() == frozenset()
                self.driver.attach(self.access(), self.its_port(), network)
                assert self.there() == {network}
                self.driver.detach(self.access(), self.its_port(), network)
                assert self.there() == frozenset()

    def test_both_may_be_repeated(self) -> None:
        network = self.networks()[0]
        with self._afterwards():
            for _ in range(2):
                self.driver.attach(self.access(), self.its_port(), network)
                assert self.there() == {network}
            for _ in range(2):
                self.driver.detach(self.access(), self.its_port(), network)
                assert self.there() == frozenset()

    def test_a_port_is_not_taken_out_of_another_network_than_the_named_one(self) -> None:
        first, second = self.networks()
        with self._afterwards():
            self.driver.attach(self.access(), self.its_port(), first)
            self.driver.detach(self.access(), self.its_port(), second)
            assert self.there() == {first}

    @needs("unknown_port")
    def test_a_port_that_the_switch_does_not_have_is_an_error_and_not_in_no_network(self) -> None:
        port = Port.model_validate(dict(self.unknown_port()))
        with pytest.raises(NetworkUnknown):
            self.driver.check(self.access(), port)
        with pytest.raises(NetworkUnknown):
            self.driver.attach(self.access(), port, self.networks()[0])

    @needs("wrong_credential")
    def test_a_refused_credential_is_not_quoted(self) -> None:
        wrong = self.wrong_credential()
        with pytest.raises(NetworkError) as caught:
            self.driver.check(self.access(credential=wrong), self.its_port())
        for value in (*self.credential().values(), *wrong.values()):
            assert value not in str(caught.value)

    @needs("silent_settings")
    def test_silence_ends_at_the_deadline(self) -> None:
        for action in ("attach", "detach", "check"):
            access, begun = self.access(settings=self.silent_settings(), seconds=self.silence), clock.monotonic()
            more = () if action == "check" else (self.networks()[0],)
            with pytest.raises(NetworkUnreachable):
                getattr(self.driver, action)(access, self.its_port(), *more)
            assert clock.monotonic() - begun < self.silence + 5

    # Tools.

    @contextmanager
    def _afterwards(self) -> Iterator[None]:
        """Detach the port from both networks in the end."""
        try:
            yield
        finally:
            for network in self.networks():
                self.driver.detach(self.access(), self.its_port(), network)

    def there(self) -> frozenset[str]:
        """Return the networks that the port is in."""
        return self.driver.check(self.access(), self.its_port())

    def its_port(self) -> Port:
        """Return the port."""
        return Port.model_validate(dict(self.port()))

    def access(
        self, settings: Mapping[str, Any] | None = None, credential: Mapping[str, str] | None = None, seconds: float = 0
    ) -> Access:
        """Return what a call gets, by default the right settings, the right credential and the usual deadline."""
        return Access(
            settings=self.driver.Settings.model_validate(dict(self.settings() if settings is None else settings)),
            credential=self.credential() if credential is None else credential,
            deadline=Deadline(seconds or self.deadline),
        )
