"""Every setting of Drydock, typed and read from the environment. All mistakes are reported at once.

To add a setting, add one line to `Environment`: the setting's name, type, default and one sentence. The variable is
`DRYDOCK_` followed by the name in capitals; `make docs` updates `docs/settings.md`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from drydock.core.errors import DrydockError, InvalidRequest

BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "valkey", "unix")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Database:
    """A PostgreSQL database: its server, its name, the user, and further options of libpq."""

    host: str = ""
    port: str = ""
    name: str
    user: str = ""
    password: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)


def parse_database_url(url: str) -> Database:
    """Parse a PostgreSQL URL. The folder of a Unix socket may be given as `?host=`, or percent-encoded as the host."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidRequest(
            f"Only PostgreSQL is supported: the URL must begin with postgresql://, not {parts.scheme or '?'}://."
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = unquote(parts.path.lstrip("/")) or options.pop("dbname", "")
    if not name:
        raise InvalidRequest("The URL names no database: postgresql://user@host:5432/NAME.")
    try:
        port = str(parts.port or "")
    except ValueError as error:
        raise InvalidRequest("The port is not a number between 0 and 65535.") from error
    return Database(
        host=options.pop("host", "") or unquote(parts.hostname or ""),
        port=options.pop("port", "") or port,
        name=name,
        user=options.pop("user", "") or unquote(parts.username or ""),
        password=options.pop("password", "") or unquote(parts.password or ""),
        options=options,
    )


def check_broker_url(url: str) -> str:
    """Return a broker URL in the form that Celery accepts. Raises InvalidRequest for an unsupported protocol."""
    parts = urlsplit(url)
    if parts.scheme not in BROKER_SCHEMES:
        raise InvalidRequest(
            "Only Redis and Valkey are supported: redis://host:6379/0, rediss://... or redis+socket:///path."
        )
    if parts.scheme == "valkey":
        return "redis" + url[len("valkey") :]
    if parts.scheme == "unix":
        return "redis+socket" + url[len("unix") :]
    return url


class InvalidSettings(DrydockError):
    """Some settings in the environment cannot be used."""

    code = "invalid_settings"


def default_state() -> Path:
    """Return the folder for private engines and keys that is used if DRYDOCK_STATE is not set."""
    if os.geteuid() == 0:
        return Path("/var/lib/drydock")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "drydock"


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _absolute(value: Any) -> Path:
    return Path(os.path.abspath(os.path.expanduser(value)))


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]

Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split)]

Folder = Annotated[Path, BeforeValidator(_absolute)]


def setting(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a setting: its default, its description, and pydantic's constraints."""
    if callable(default):
        return Field(default_factory=default, description=description, **constraints)
    return Field(default, description=description, **constraints)


class Environment(BaseSettings):
    """The settings. Code reads a setting as `django.conf.settings.DRYDOCK.<name>`."""

    model_config = SettingsConfigDict(
        env_prefix="DRYDOCK_", frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    # fmt: off
    # Where things are
    database_url: str = setting("", "PostgreSQL 15 or later as `postgresql://user:password@host:port/name?sslmode=...`; use `?host=/folder` for a socket. Empty: start a private PostgreSQL.", validation_alias="DATABASE_URL")
    prepared_statements: bool = setting(True, "Prepare the engine's most frequent statements once for each connection, which halves their cost. Turn it off behind a transaction pooler without support for prepared statements (PgBouncer before 1.22).")
    broker_url: str = setting("", "Redis or Valkey as `redis://host:port/number`, `rediss://...` or `redis+socket:///path`. Empty: start a private broker.", validation_alias="BROKER_URL")
    broker_prefix: str = setting("drydock:", "Prefix of every key in the broker, so that several installations can share one server.")
    state: Folder = setting(default_state, "Folder of the private engines and generated keys. Default: `/var/lib/drydock` as root, otherwise `drydock` in the user's state folder.")

    # Keys
    secret_key: SecretStr = setting(SecretStr(""), "Django's secret key (sessions, tokens). Generated into the state folder with the private PostgreSQL, required otherwise.")
    encryption_keys: Secrets = setting((), "Fernet keys for secrets at rest, comma separated. The first key encrypts and all keys decrypt, so put a new key first. Unset: generated into the state folder or, with `DATABASE_URL`, derived from the secret key, which you then cannot change without setting these.")
    ownership_key: SecretStr = setting(SecretStr(""), "Key of the HMAC tag that proves which provider objects belong to this installation. Unset: as for the encryption keys.")

    # Web
    debug: bool = setting(False, "Show Django's debug pages. Never enable this if untrusted users can reach the web process.")
    allowed_hosts: Words = setting(("localhost", "127.0.0.1", "[::1]"), "Host names that the web process answers to, comma separated.")
    trusted_origins: Words = setting((), "Origins such as `https://drydock.example.org` that may post forms from behind a proxy, comma separated.")
    https: bool = setting(False, "Serve HTTPS only: set secure cookies and HSTS, and redirect HTTP.")
    behind_proxy: bool = setting(False, "Trust `X-Forwarded-Proto`. Enable this only behind a proxy that always sets the header, so that clients cannot.")
    web_address: str = setting("127.0.0.1", "Address on which `make up` listens.")
    web_port: int = setting(8000, "Port on which `make up` listens.", ge=1, le=65535)
    boot_url: str = setting("", "Address of the web process that the management controllers of servers can reach, such as `http://10.0.0.1:8000`. They fetch the boot media of their servers from `/boot/` below it, without signing in. Empty: Drydock serves no boot media, and deploys no servers.", pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?)?$", max_length=1000)
    web_threads: int = setting(16, "Number of requests that `make up` serves at the same time.", ge=1, le=256)
    readiness_seconds: float = setting(3.0, "Longest time that `/readyz` waits for the database and the broker together.", gt=0, le=30)
    metrics_token: SecretStr = setting(SecretStr(""), "Bearer token for `/metrics`, required from the same machine as well, because tenants may run there. Empty: generated into `keys/metrics_token` of the state folder.")
    metrics_seconds: float = setting(5.0, "Longest time for one database statement of `/metrics`.", gt=0, le=60)
    log_format: str = setting("line", "`line` for plain text; `json` for one object per line, with the ids of the lease, resource and request.", pattern="^(line|json)$")
    log_level: str = setting("INFO", "DEBUG, INFO, WARNING or ERROR.", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    # REST
    body_limit_bytes: int = setting(1 << 20, "Largest JSON body of a request. A larger body is refused before it is read.", ge=1024)
    file_limit_bytes: int = setting(64 << 20, "Largest content of one file in a request.", ge=1024)
    tree_limit_bytes: int = setting(4 << 30, "Largest tree of files in a request. The tree is stored in the web process's temporary folder meanwhile.", ge=1024)
    requests_per_minute: int = setting(1200, "Requests per minute that one user may send to each web process, with all tokens together. Further requests return 429.", ge=1)
    longest_wait_seconds: float = setting(30.0, "Longest time that a request waits for a lease (`?wait=`). Clients repeat the request.", ge=0, le=600)
    body_seconds: float = setting(30.0, "Longest time for receiving the body of a request, other than a file or tree.", gt=0, le=3600)
    host_seconds: float = setting(10.0, "Longest time that a request waits for a leased host, for example for the state of a job or a folder. Then the request fails with 504 and the name of the host. Such requests can use at most half of the threads, and those of one user three eighths. Workers use the same limit for jobs and measured leases.", gt=0, le=300)
    transfer_seconds: float = setting(600.0, "Longest time for copying one file or tree through the web process.", gt=0, le=86_400)
    token_days_limit: int = setting(366, "Maximum lifetime of a token, in days.", ge=1)
    tokens_limit: int = setting(100, "Maximum number of valid tokens per user.", ge=1)

    # Workers
    worker_concurrency: int = setting(4, "Number of processes in each worker that `make up` starts.", ge=1, le=256)
    inline: bool | None = setting(None, "Let a Python program that waits for a lease do the work itself, in its own threads, if no worker is running. Unset: only with private engines.")
    sweep_interval_seconds: float = setting(2.0, "How often the sweep runs every periodic check.", gt=0)
    lost_worker_seconds: float = setting(30.0, "A worker without a heartbeat for this long counts as lost.", gt=0)
    publish_timeout_seconds: float = setting(0.08, "Longest time to connect to the broker to send a hint, and to wait for its answer.", gt=0, le=5)
    visibility_timeout_seconds: int = setting(600, "Time after which the broker gives an unacknowledged message to another worker.", ge=10)

    # Engine
    step_token_seconds: float = setting(60.0, "A step whose worker has not reported for this long may be taken over by another worker.", gt=0)
    step_retry_limit: int = setting(8, "Number of attempts at a step before the step counts as failed.", ge=1)
    step_backoff_seconds: float = setting(2.0, "Delay before the second attempt at a step; doubled for each further attempt.", gt=0)
    step_backoff_limit_seconds: float = setting(300.0, "Longest delay between two attempts at a step.", gt=0)
    head_reservation_seconds: float = setting(30.0, "How long the head of a queue waits before a resource is reserved for it.", ge=0)
    maintenance_gather_seconds: float = setting(30.0, "Longest time that a power cycle of a host waits for other builds and activations in the host, which may need it too.", ge=0)
    maintenance_patience_seconds: float = setting(86400.0, "Longest time that maintenance waits for other leases on the resource to end, before the step that needs it fails.", gt=0)
    candidate_limit: int = setting(50, "Number of resources with room that are compared for one lease.", ge=1, le=1000)
    look_again_seconds: float = setting(30.0, "Longest time between two checks of a pending lease.", gt=0)
    serve_limit: int = setting(200, "Number of leases that one task grants before it leaves the rest of the queue to the next task.", ge=1)
    sweep_batch: int = setting(500, "Number of rows that one check of the sweep processes; the next sweep continues.", ge=1)
    bounce_limit: int = setting(5, "How many times a lease returns to the queue after its resource or activation failed, before it is marked as broken.", ge=0)
    unreachable_limit_seconds: float = setting(300.0, "A resource that does not answer for this long loses its leases. A resource that Drydock built is then replaced.", gt=0)
    check_failure_limit: int = setting(3, "Number of consecutive failed health checks after which a resource is taken out of service.", ge=1)
    remember_step_seconds: float = setting(60.0, "How long a failed build of unknown cause rules out its offer.", ge=0)
    remember_offer_seconds: float = setting(300.0, "How long an offer is skipped after a build from it failed, for example because it was sold out.", ge=0)
    remember_zone_seconds: float = setting(300.0, "How long all offers of a failed zone are ruled out.", ge=0)
    remember_location_seconds: float = setting(900.0, "How long a refused quota rules out all offers of the location that count against it.", ge=0)
    remember_blueprint_seconds: float = setting(600.0, "How long a failed blueprint is ruled out.", ge=0)
    ageing_seconds: float = setting(300.0, "Waiting time that counts as much as one step of priority.", gt=0)
    discovery_interval_seconds: float = setting(60.0, "How often resources are discovered by kinds that support it.", gt=0)
    inventory_interval_seconds: float | None = setting(None, "How often the offers of an account are read. Unset: the provider's default (ec2 600 s, gce 1,800 s, azure 300 s).", gt=0)
    status_interval_seconds: float | None = setting(None, "How often the status of Drydock's resources in an account is read. Unset: the provider's default (ec2 and gce 5 s, azure 10 s).", gt=0)
    choose: Literal["order", "price", "fastest"] = setting("order", "How to choose between blueprints that could build, if the request does not specify this: `order` (the operators' order), `price` (cheapest) or `fastest` (ready soonest).")
    orphan_interval_seconds: float = setting(300.0, "How often provider objects with this installation's tag are compared with the resources in the database.", gt=0)
    orphan_apart_seconds: float = setting(900.0, "An orphan is destroyed if it still exists this long after it was first seen.", ge=0)
    orphan_dry_run: bool = setting(False, "Only list orphans with the action that would be taken, until an operator decides on each.")
    metrics_interval_seconds: float = setting(30.0, "How often the usage of a measured lease is sampled on its host. Samples are more frequent at the beginning of a lease.", gt=0)
    gather_seconds: float = setting(60.0, "Longest time that the cleaning of a measured lease waits for its last sample and output.", ge=0, le=3600)
    kept_head_kib: int = setting(64, "KiB kept from the beginning of a workload's output after its lease.", ge=0, le=4096)
    archives: Folder | None = setting(None, "Folder on all workers with image archives for workloads, each named by its SHA-256: `HEX.tar`. Workers copy them to the hosts of workloads that request them. Unset: none.")
    kept_tail_kib: int = setting(64, "KiB kept from the end of a workload's output after its lease.", ge=0, le=4096)
    event_retention_days: int = setting(90, "Events older than this are pruned.", ge=1)
    lease_retention_days: int = setting(90, "Leases that ended, and resources that were removed, longer ago than this are pruned, together with idempotency keys.", ge=1)
    usage_retention_days: int = setting(1095, "Usage records of leases that ended longer ago than this are pruned.", ge=1)
    sensor_retention_hours: float = setting(48.0, "What the sensors of machines measured is kept this long. The energy that was computed from it is kept with the usage records.", gt=0, le=8760)
    erasure_retention_days: int = setting(0, "Erasure records older than this are pruned. 0: never.", ge=0)
    lease_hours: float = setting(168.0, "Default duration of a lease, in hours after it becomes active, if the request specifies no end, heartbeats or workload. Instances have no default. A shorter default of a quota or blueprint takes precedence. 0: none.", ge=0, le=87_600)
    lease_hours_limit: float = setting(2160.0, "Maximum duration of a lease, in hours after it becomes active. Operators can exceed it. Quotas and blueprints may have lower limits. 0: no limit.", ge=0, le=87_600)
    budget_hour_seconds: float = setting(3600.0, "A lease without an end under a budget reserves its price for this long at a time.", gt=0)
    budget_notice_seconds: float = setting(600.0, "How long before its end a lease gets the reason `budget_ends`, if its budget does not cover another hour.", ge=0)
    attention_wait_seconds: float = setting(900.0, "A lease that waits longer than this for capacity or for cleaning is listed under attention.", gt=0)
    lock_timeout_ms: int = setting(1000, "How long a claim waits for a row that another claim has locked.", ge=1)

    # Machines
    network_commands: str = setting("", "Folder of the programs that blueprints with the network driver `command` may name. Only programs that nobody except root and Drydock's user can change are run. Empty: none.", pattern="^(/.*)?$")
    bmc_commands: str = setting("", "Folder of the programs that registrations of machines with the BMC driver `command` may name. Only programs that nobody except root and Drydock's user can change are run. Empty: none.", pattern="^(/.*)?$")
    console_idle_seconds: float = setting(3600.0, "The line to a machine's console is closed if nothing was typed or printed for this long, although somebody is attached.", gt=0)

    # Attestation
    attestation_collateral: Folder | None = setting(None, "Folder with answers of Intel's provisioning certification service (TCB information, identity of the quoting enclave, certificate chain, revocation lists), with which TDX quotes are compared. It is read at each attestation. Unset: revocation and TCB status are not checked.")
    attestation_root: Folder | None = setting(None, "File with the root certificate, in PEM format, that TDX quotes must lead to. Unset: Intel's SGX Root CA.")
    attestation_tcb: Words = setting(("UpToDate",), "Intel's statuses of a TCB that are accepted, comma separated, such as `UpToDate,SWHardeningNeeded`.")

    # Private engines
    engine_linger_seconds: float = setting(1.0, "The private engines stop this long after their last user exits.", ge=0)
    engine_deadline_seconds: float = setting(120.0, "Longest time for a private engine to start.", gt=0)
    engine_account: int = setting(0, "As root: numeric user id of the private engines. 0: choose a free one.", ge=0)
    disk_low_mib: int = setting(1024, "Free space on the disk of the state folder, in MiB, below which it is listed under attention.", ge=0)
    disk_full_mib: int = setting(64, "Free space on the disk of the state folder, in MiB, below which the installation is not ready, because the database may be unable to write.", ge=0)
    engine_durable: bool = setting(True, "The private PostgreSQL waits for the disk at each commit. Disable this only if losing data is acceptable.")
    # fmt: on

    @property
    def database(self) -> Database | None:
        """The configured database, or None if the private PostgreSQL is used."""
        return parse_database_url(self.database_url) if self.database_url else None

    @property
    def secrets(self) -> list[str]:
        """Every secret value in the environment, for redaction from logs."""
        given = [value for _, value in self if isinstance(value, SecretStr)]
        words = [secret.get_secret_value() for secret in (*given, *self.encryption_keys)]
        passwords = [self.database.password] if self.database else []
        return [word for word in (*words, *passwords, urlsplit(self.broker_url).password or "") if word]

    @property
    def private_database(self) -> bool:
        """Whether Drydock starts its own PostgreSQL."""
        return not self.database_url

    @property
    def private_broker(self) -> bool:
        """Whether Drydock starts its own broker."""
        return not self.broker_url


def variable(name: str) -> str:
    """Return the name of the environment variable for a setting."""
    alias = Environment.model_fields[name].validation_alias
    return str(alias) if alias else f"DRYDOCK_{name.upper()}"


def load() -> Environment:
    """Read the settings from the environment. Raises InvalidSettings, whose message contains every mistake."""
    mistakes: list[str] = []
    environment: Environment | None = None
    try:
        environment = Environment()
    except ValidationError as error:
        names = {variable(name): variable(name) for name in Environment.model_fields}
        for found in error.errors():
            name = str(found["loc"][0])
            mistakes.append(f"{names.get(name) or variable(name)}: {found['msg']}.")
    mistakes += list(_mistakes(environment) if environment else _url_mistakes(os.environ.get))
    if mistakes:
        raise InvalidSettings("Invalid settings:\n  " + "\n  ".join(mistakes))
    return cast(Environment, environment)


def _url_mistakes(read: Any) -> list[str]:
    found = []
    for name, check in (("DATABASE_URL", parse_database_url), ("BROKER_URL", check_broker_url)):
        try:
            if value := read(name, ""):
                check(value)
        except DrydockError as error:
            found.append(f"{name}: {error}")
    return found


def _mistakes(environment: Environment) -> list[str]:
    found = _url_mistakes({"DATABASE_URL": environment.database_url, "BROKER_URL": environment.broker_url}.get)
    if environment.database_url:
        found += [
            f"{variable(name)}: required with DATABASE_URL, the same on every machine. "
            "`python -m drydock.keys` prints new keys."
            for name in ("secret_key",)
            if not _given(getattr(environment, name))
        ]
    return found


def _given(value: SecretStr | tuple[SecretStr, ...]) -> bool:
    return bool(value) if isinstance(value, tuple) else bool(value.get_secret_value())
