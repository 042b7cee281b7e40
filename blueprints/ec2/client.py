"""Amazon EC2 as the provider contract has it: `Ec2`, on one account, by botocore, which is what boto3's clients are.
The SDK is imported here and nowhere else."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import botocore.loaders
import botocore.parsers
import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)

from blueprints.cloud import rates
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.ec2.account import RATES, Account
from blueprints.ec2.calls import Answer
from blueprints.ec2.config import Credential
from blueprints.ec2.errors import refused

_READS = ("describe_", "get_", "list_")
_ATTEMPTS = 3
"""Of a call that only reads. One that changes something is sent once: so what became of it is known or AMBIGUOUS."""
_LAUNCHES = ("run_instances", "start_instances")
_UNSENT = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
_LOST = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError)
_NOBODY = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.UnknownCredentialError,
    boto.ProfileNotFound,
    boto.ConfigNotFound,
    boto.ConfigParseError,
    boto.InvalidConfigError,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.LoginError,
    boto.MetadataRetrievalError,
    boto.RefreshWithMFAUnsupportedError,
)
_MODELS = botocore.loaders.create_loader()
"""What every service can be asked: read once for all clients, as it is megabytes."""
# At DEBUG it writes requests with all that is in them.
logging.getLogger("botocore").setLevel(logging.INFO)
_VALUES = re.compile(r"value: .*?(?=, type:|, valid|\n|$)", re.DOTALL)


@contextmanager
def translated(*, changes: bool) -> Iterator[None]:
    """Every error of botocore's as a CloudError; `changes`: the call is not one that only reads.

    Nothing was sent where no connection was made. After that only EC2's own refusal says that nothing happened.
    """
    try:
        yield
    except boto.ClientError as error:
        answer = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        code, message = str(answer.get("Code", "")), str(answer.get("Message", ""))
        raise refused(code, message, status, changes=changes) from error
    except boto.ParamValidationError as error:
        # The values of a request may be secrets.
        raise CloudError(Meaning.INVALID, _VALUES.sub("value left out", str(error))[:500]) from None
    except _UNSENT as error:
        raise CloudError(Meaning.UNAVAILABLE, f"EC2 cannot be reached: {error}"[:500]) from error
    except boto.SSLError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise CloudError(Meaning.INVALID, f"EC2's certificate is not trusted: {error}"[:500]) from error
        raise _lost(error, changes=changes) from error
    except (*_LOST, botocore.parsers.ResponseParserError) as error:
        raise _lost(error, changes=changes) from error
    except _NOBODY as error:
        raise CloudError(Meaning.CREDENTIALS, f"There are no AWS credentials: {error}"[:500]) from error
    except boto.BotoCoreError as error:
        raise CloudError(Meaning.INVALID, f"The AWS client cannot work so: {error}"[:500]) from error


def _speaks(client: Any, operation: str, answer: Answer) -> bool:
    """Whether an answer has anything that this operation answers: botocore reads whatever it is given, and a page of
    another service with status 200 becomes an empty one. EC2 writes the list of a description also where it is
    empty."""
    shape = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation]).output_shape
    wanted = set(shape.members) - {"NextToken"} if shape is not None else set()
    return not wanted or bool(wanted & set(answer))


def _lost(error: Exception, *, changes: bool) -> CloudError:
    meaning = Meaning.AMBIGUOUS if changes else Meaning.UNAVAILABLE
    return CloudError(meaning, f"EC2's answer was lost: {error}"[:500])


def _session(profile: str = "") -> Any:
    core = botocore.session.Session(profile=profile or None)
    core.register_component("data_loader", _MODELS)
    return core


class _Role(CredentialProvider):  # type: ignore[misc]
    """Credentials of a role that is assumed with those of a session, renewed before they end."""

    METHOD = "assume-role"

    def __init__(self, fetcher: Any) -> None:
        super().__init__()
        self._fetcher = fetcher

    def load(self) -> Any:
        return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=self._fetcher.fetch_credentials)


class Connection:
    """`calls.Calls` by boto3: one account, with a client for each service and region. Safe for threads."""

    def __init__(self, credential: Credential, deadline: float) -> None:
        self._credential, self._deadline = credential, deadline
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._lock = Lock()

    def call(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Answer:
        """One call. Its rate is that of the account in this process; it waits for it at most half its deadline."""
        changes = not operation.startswith(_READS)
        rate = self._rate(operation, region, service)
        rate.take(self._deadline / 2)
        try:
            with translated(changes=changes):
                client = self._client(service, region, changes)
                answer: Answer = getattr(client, operation)(**parameters)
            if not _speaks(client, operation, answer):
                raise _lost(ValueError(f"it is not an answer to {operation}"), changes=changes)
            return answer
        except CloudError as error:
            if error.meaning is Meaning.THROTTLED:
                rate.drain()
            raise

    def pages(self, operation: str, region: str, *, service: str = "ec2", **parameters: Any) -> Iterator[Answer]:
        """One call for each page, until there is no next one."""
        token: dict[str, str] = {}
        while True:
            answer = self.call(operation, region, service=service, **parameters, **token)
            yield answer
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def descriptions(self) -> dict[str, str]:
        """Region -> what AWS calls it, as botocore ships it."""
        with translated(changes=False):
            data = self._core().get_component("data_loader").load_data("partitions")
        return {
            name: region.get("description", "")
            for partition in data["partitions"]
            for name, region in partition["regions"].items()
        }

    def _rate(self, operation: str, region: str, service: str) -> rates.Rate:
        sort = "read" if operation.startswith(_READS) else "launch" if operation in _LAUNCHES else "write"
        per_second, burst = RATES[sort]
        given, share = self._credential, self._credential.rate
        who = (given.endpoint, given.role_arn or given.access_key_id or given.profile)
        return rates.shared((service, who, region, sort), per_second * share, max(1.0, burst * share))

    def _client(self, service: str, region: str, changes: bool) -> Any:
        # Making clients is not safe for threads, using them is.
        with self._lock:
            wanted = (service, region, changes)
            if wanted not in self._clients:
                if self._session is None:
                    self._session = self._assumed(self._core())
                self._clients[wanted] = self._session.create_client(service, region_name=region, **self._how(changes))
            return self._clients[wanted]

    def _how(self, changes: bool) -> dict[str, Any]:
        attempts = 1 if changes else _ATTEMPTS
        each = self._deadline / attempts
        config = Config(
            connect_timeout=each / 4,
            read_timeout=each * 3 / 4,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=32,
        )
        given = self._credential
        return {"config": config, "endpoint_url": given.endpoint or None, "verify": given.ca_bundle or None}

    def _core(self) -> Any:
        given = self._credential
        core = _session(given.profile)
        if given.access_key_id:
            token = given.session_token.get_secret_value() or None
            core.set_credentials(given.access_key_id, given.secret_access_key.get_secret_value(), token)
        return core

    def _assumed(self, base: Any) -> Any:
        given = self._credential
        if not given.role_arn:
            return base
        external = {"ExternalId": given.external_id.get_secret_value()} if given.external_id.get_secret_value() else {}
        source = base.get_credentials()
        if source is None:
            raise boto.NoCredentialsError()

        def creator(service: str, **keys: Any) -> Any:
            return base.create_client(service, region_name=given.region, **self._how(changes=False), **keys)

        fetcher = AssumeRoleCredentialFetcher(
            creator, source, given.role_arn, extra_args={"RoleSessionName": "drydock", **external}
        )
        core = _session()
        core.register_component("credential_provider", CredentialResolver(providers=[_Role(fetcher)]))
        return core


class Ec2(Account):
    """One account at EC2."""

    def __init__(self, credential: Credential, *, deadline: float = 20.0) -> None:
        """`deadline`: seconds that one call may take, retries of reads included."""
        self.credential = credential
        self.connection = Connection(credential, deadline)
