"""The client of Redfish services: sushy with our own HTTP below. Only this module imports it."""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import sushy
from sushy import auth as sushy_auth
from sushy import connector as sushy_connector
from sushy import exceptions
from sushy.resources.manager import virtual_media as sushy_media

from blueprints.bmc.contract import LoginGuard
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcAnswerLost,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.redfish_http import Http, Line, message_of

Json = dict[str, Any]
ROOT = "/redfish/v1/"
MOST_PAGES = 100
"""Pages of a collection, after which it is taken for one without an end."""
_DEMAND = re.compile(rb'"MessageId"\s*:\s*"[^"]*\.PasswordChangeRequired"')
_CLOSING = 3.0
"""Seconds that ending a session may take, also after its deadline."""

# What sushy logs as an error, we raise. Whoever sets the level of its logger sees it nevertheless.
if not logging.getLogger("sushy").level:
    logging.getLogger("sushy").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Answer:
    """The answer to a change: status, the path of the header Location, and the body."""

    status: int
    location: str
    body: Json


class _BmcFailed(BmcRefused):
    """The BMC refused the request, with its reason."""


class _Auth(sushy_auth.SessionOrBasicAuth):  # type: ignore[misc]
    """A session, or basic authentication where the BMC has no sessions. A wrong password is tried only once."""

    def _do_authenticate(self) -> None:
        try:
            sushy_auth.SessionAuth._do_authenticate(self)
        except (exceptions.SushyError, BmcBusy) as error:
            if getattr(error, "status_code", None) == 401 or self._session_auth_previously_successful:
                raise
            self._fallback_to_basic_authentication()

    def refresh_session(self) -> None:
        """Open another session. The one that was refused is ended if it still exists, as BMCs have only a few."""
        with contextlib.suppress(exceptions.SushyError, BmcError):
            self._connector._op("DELETE", self.session, allow_reauth=False)
        super().refresh_session()

    @property
    def session(self) -> str:
        """The path of the session, empty if there is none."""
        return urlsplit(self.get_session_resource_id() or "").path


_UNJUDGED = (404, 405, 501)
"""Statuses with which a BMC says that it has no sessions, without a look at the password."""


class _Counted(sushy_auth.SessionAuth):  # type: ignore[misc]
    """A session whose logins are counted, without basic authentication, which would log in with each request.

    A lost answer leaves its login on record: the BMC may have refused it.
    """

    def __init__(self, username: str, password: str, logins: LoginGuard) -> None:
        super().__init__(username=username, password=password)
        self._logins = logins

    def _do_authenticate(self) -> None:
        attempt = self._logins.begin()
        try:
            super()._do_authenticate()
        except exceptions.MissingXAuthToken:
            self._logins.accepted(attempt)
            raise
        except exceptions.HTTPError as error:
            (self._logins.accepted if error.status_code in _UNJUDGED else self._logins.refused)(attempt)
            raise
        except BmcBusy:
            self._logins.accepted(attempt)
            raise
        except BmcRefused:
            self._logins.refused(attempt)
            raise
        self._logins.accepted(attempt)

    def can_refresh_session(self) -> bool:
        """Return True, so that `refresh_session` is asked about every refusal."""
        return True

    def refresh_session(self) -> None:
        """Count a session that is refused after it was opened, and do not log in again.

        sushy calls this while it handles the refusal, also a 403, which is about privileges and not about the login.
        """
        refusal = sys.exc_info()[1]
        assert isinstance(refusal, exceptions.AccessError)
        if refusal.status_code == 401 and self._session_key is not None:
            self._logins.refused()
        raise refusal

    @property
    def session(self) -> str:
        """The path of the session, empty if there is none."""
        return urlsplit(self.get_session_resource_id() or "").path


def service_root(line: Line) -> Json:
    """Read the service root of a BMC without a login, and close the line. Raises BmcError."""
    http = Http(line)
    try:
        body = http.request("GET", line.url + ROOT).json()
    except ValueError:
        raise BmcAnswerInvalid(f"The BMC at {line.where} sent no JSON as its service root.") from None
    finally:
        http.close()
        line.close()
    return body if isinstance(body, dict) else {}


def read_once(line: Line, path: str, username: str, password: str) -> Json:
    """Read one resource with basic authentication, without a session, and close the line. Raises BmcError."""
    token = base64.b64encode(f"{username}:{password}".encode()).decode()
    line.secrets |= {password, token} - {""}
    http = Http(line)
    try:
        # A header rather than `auth`, with which requests encodes as Latin-1.
        response = http.request("GET", line.url + path, headers={"Authorization": f"Basic {token}"})
        body = response.json() if response.status_code < 400 else None
    except ValueError:
        raise BmcAnswerInvalid(f"The BMC at {line.where} answered {path} with something that is not JSON.") from None
    finally:
        http.close()
        line.close()
    if response.status_code in (401, 403):
        raise BmcLoginRefused(f"The BMC at {line.where} refused the credential of {username} without a session.")
    if not isinstance(body, dict):
        raise BmcRefused(f"The BMC at {line.where} did not let {path} be read (HTTP {response.status_code}).")
    return body


class Client:
    """A session with a Redfish service. Raises BmcError, and nothing else."""

    def __init__(self, line: Line, username: str, password: str, logins: LoginGuard | None = None) -> None:
        self.line, self.username, self._password = line, username, password
        # Basic authentication sends the last one, which a BMC may repeat in an error.
        line.secrets |= {password, base64.b64encode(f"{username}:{password}".encode()).decode()} - {""}
        self._connector = sushy_connector.Connector(line.url)
        self._connector._session.close()
        self._connector._session = Http(line)
        self._auth = (
            _Auth(username=username, password=password) if logins is None else _Counted(username, password, logins)
        )
        self.must_change_password = False
        """Whether the BMC has said that the account must get another password before it may do anything else."""
        self._connector._response_callback = self._note_demand
        self._root: Any = None
        try:
            with self._explained("log in"):
                self._root = sushy.Sushy(line.url, auth=self._auth, connector=self._connector)
            self._note_token()
        except BaseException:
            self.close()
            raise

    def allows_basic(self, path: str) -> bool:
        """Return whether a resource can be read with basic authentication. Tries it once.

        Raises BmcError if the BMC neither allows nor refuses it, such as one that is busy.
        """
        line = self.line
        again = Line(line.address, line.port, line.trust, deadline=max(line.deadline.remaining, 0.01))
        try:
            read_once(again, path, self.username, self._password)
        except (BmcLoginRefused, BmcRefused):
            return False
        return True

    def _note_token(self) -> None:
        token = self._auth.get_session_key()
        if token:
            self.line.secrets.add(token)

    def _note_demand(self, response: Any) -> None:
        # OpenBMC answers a login with an expired password by 201 and this message, and everything else by 403.
        if b"PasswordChangeRequired" in response.content and _DEMAND.search(response.content):
            self.must_change_password = True

    def close(self) -> None:
        """End the session at the BMC, and the connections. Never raises."""
        session = self._auth.session
        try:
            if session:
                self.line.finish(_CLOSING)
                self._connector._op("DELETE", session, allow_reauth=False)
        except Exception as error:
            logging.getLogger(__name__).info("the session at %s was not ended: %s", self.line.where, error)
        finally:
            self._auth._session_key = self._auth._session_resource_id = None
            self._connector.close()
            self.line.close()

    @property
    def root(self) -> Json:
        """The service root."""
        found: Json = self._root.json
        return found

    def get(self, path: str) -> Json:
        """Read a resource."""
        with self._explained(f"read {path}"):
            body = self._connector.get(path).json()
        if not isinstance(body, dict):
            raise BmcAnswerInvalid(f"The BMC at {self.line.where} answered {path} with no object.")
        return body

    def status(self, path: str) -> Answer:
        """Read a resource that may be a monitor of a task, whose status says whether it goes on."""
        with self._explained(f"read {path}"):
            return self._answer(self._connector.get(path))

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Carry out an action."""
        with self._explained(f"carry out {path}"):
            return self._answer(self._connector.post(path, data=dict(body)))

    def start(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Carry out an action that must not be carried out twice. Raises BmcAnswerLost if it may have begun."""
        try:
            with self._explained(f"carry out {path}"):
                return self._answer(self._connector.post(path, data=dict(body)))
        except (BmcUnreachable, BmcAnswerInvalid, _BmcFailed) as error:
            message = f"It is not known whether the BMC has begun {path}. {error.message}"
            raise BmcAnswerLost(message) from None

    def patch(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Change a resource, if nobody else changes it at the same time."""
        with self._explained(f"change {path}"):
            etag = self._connector.get(path).headers.get("ETag")
            return self._answer(self._connector.patch(path, data=dict(body), etag=etag))

    def delete(self, path: str) -> None:
        """Remove a resource. One that is gone is not an error."""
        with self._explained(f"remove {path}"):
            try:
                self._connector.delete(path)
            except exceptions.HTTPError as error:
                if error.status_code != 404:
                    raise

    def set_password(self, path: str, password: str) -> None:
        """Change the password of the account at a path, which a session that may do nothing else can do, too."""
        self.line.secrets.add(password)
        with self._explained("change the password"):
            try:
                etag = self._connector.get(path).headers.get("ETag")
            except exceptions.HTTPError as error:
                if error.status_code == 401:
                    raise
                etag = None
            self._connector.patch(path, data={"Password": password}, etag=etag)

    def _answer(self, response: Any) -> Answer:
        try:
            body = response.json() if response.content else {}
        except (ValueError, RecursionError):
            body = {}
        location = urlsplit(response.headers.get("Location") or "")
        path = f"{location.path}?{location.query}" if location.query else location.path
        return Answer(response.status_code, path, body if isinstance(body, dict) else {})

    def pages(self, path: str) -> Iterator[Json]:
        """Read the pages of a collection. Raises BmcAnswerInvalid if they do not end."""
        seen: set[str] = set()
        following = path
        while following:
            if following in seen or len(seen) >= MOST_PAGES:
                raise BmcAnswerInvalid(
                    f"The BMC at {self.line.where} does not end the list {path}: there were {len(seen)} pages of it."
                )
            seen.add(following)
            page = self.get(following)
            yield page
            following = str(page.get("Members@odata.nextLink") or "")

    def members(self, path: str) -> Iterator[Json]:
        """Return the members of a collection: links, or whole resources where the BMC sends these."""
        for page in self.pages(path):
            found = page.get("Members")
            yield from (one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()

    def set_boot(self, system: str, target: str, enabled: str, uri: str) -> None:
        """Set the boot override of a system, with what sushy knows about the particulars of vendors."""
        with self._explained("set the boot device"):
            self._root.get_system(system).set_system_boot_options(
                target=sushy.BootSource(target),
                enabled=sushy.BootSourceOverrideEnabled(enabled),
                http_boot_uri=uri or None,
            )

    def insert(self, drive: str, image: str, username: str, password: str) -> None:
        """Insert an image into the virtual drive at a path."""
        if password:
            self.line.secrets.add(password)
        with self._explained("insert the image"):
            self._drive(drive).insert_media(image, username=username or None, password=password or None)

    def eject(self, drive: str) -> None:
        """Empty the virtual drive at a path. Some errors of the BMC are not reported; read the drive afterwards."""
        with self._explained("eject the image"):
            self._drive(drive).eject_media()

    def _drive(self, path: str) -> Any:
        return sushy_media.VirtualMedia(self._connector, path, root=self._root)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn errors of sushy into ours. `what` is what was to be done."""
        try:
            yield
        except BmcError:
            raise
        except exceptions.HTTPError as error:
            raise self._refusal(error, what) from None
        except (exceptions.MissingActionError, exceptions.InvalidParameterValueError) as error:
            raise BmcLacks(f"The BMC at {self.line.where} does not offer to {what}: {self._told(error)}") from None
        except exceptions.MissingAttributeError as error:
            kind = BmcLacks if "HttpBootUri" in str(error) else BmcAnswerInvalid
            raise kind(f"The BMC at {self.line.where} could not {what}: {self._told(error)}") from None
        except (exceptions.SushyError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise BmcAnswerInvalid(
                f"The BMC at {self.line.where} answered with something that cannot be understood, in the attempt to"
                f" {what}: {self._told(error)}"
            ) from None

    def _told(self, error: Exception) -> str:
        return self.line.said(str(error)).rstrip(".") + "."

    def _refusal(self, error: exceptions.HTTPError, what: str) -> BmcError:
        """Return the error for a status of 400 or more. 429 and 503 never come here."""
        where, said = self.line.where, self.line.said(message_of(error.body) or error.detail or "")
        said = said or f"it gave no reason (HTTP {error.status_code})."
        if error.status_code == 401:
            return BmcLoginRefused(f"The BMC at {where} refused the credential of {self.username}: {said}")
        if error.status_code == 403:
            return BmcRefused(f"The account {self.username} at the BMC at {where} may not {what}: {said}")
        if error.status_code in (404, 405, 501):
            return BmcLacks(f"The BMC at {where} does not offer to {what}: {said}")
        kind = _BmcFailed if error.status_code >= 500 else BmcRefused
        return kind(f"The BMC at {where} refused to {what}: {said}")
