"""Every setting of Drydock, typed, read from the environment; all mistakes are reported at once.

To add a setting, add one line to `Environment`: the name, its type, a default and one sentence. The variable is
`DRYDOCK_` and the name in capitals; `docs/settings.md` follows with `make docs`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from drydock.addresses import Database, check_broker_url, parse_database_url
from drydock.core.errors import DrydockError


class InvalidSettings(DrydockError):
    """Some settings in the environment cannot be used."""

    code = "invalid_settings"


def default_state() -> Path:
    """The folder for engines and keys when DRYDOCK_STATE is not set."""
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
    """One setting: its default, one sentence on what it does, and pydantic's constraints."""
    if callable(default):
        return Field(default_factory=default, description=description, **constraints)
    return Field(default, description=description, **constraints)


class Environment(BaseSettings):
    """The settings. Read them in code as `django.conf.settings.DRYDOCK.<name>`."""

    model_config = SettingsConfigDict(
        env_prefix="DRYDOCK_", frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    # fmt: off
    # Where things are
    database_url: str = setting("", "PostgreSQL 15 or later as `postgresql://user:password@host:port/name?sslmode=...`; a socket's folder goes in `?host=/folder`. Empty: a private PostgreSQL is started.", validation_alias="DATABASE_URL")
    prepared_statements: bool = setting(True, "The engine's most frequent statements are planned once a connection, which halves their cost. Off behind a pooler that gives each transaction another connection and does not know prepared statements (PgBouncer before 1.22).")
    broker_url: str = setting("", "Redis or Valkey as `redis://host:port/number`, `rediss://...` or `redis+socket:///path`. Empty: a private one is started.", validation_alias="BROKER_URL")
    broker_prefix: str = setting("drydock:", "Put before every key in the broker, so that several installations can share one server.")
    state: Folder = setting(default_state, "Folder of the private engines and generated keys; `/var/lib/drydock` as root, else `drydock` in the user's state folder.")

    # Keys
    secret_key: SecretStr = setting(SecretStr(""), "Django's secret key (sessions, tokens). Generated into the state folder when the private PostgreSQL is used, else required.")
    encryption_keys: Secrets = setting((), "Fernet keys for secrets at rest, comma separated: the first encrypts, all decrypt, so a new one is put in front. Unset: generated into the state folder, or with `DATABASE_URL` derived from the secret key, which then cannot be changed without them.")
    ownership_key: SecretStr = setting(SecretStr(""), "Key of the HMAC tag that proves which provider objects are ours. Unset: like the encryption keys.")

    # Web
    debug: bool = setting(False, "Django's debug pages. Never where strangers can reach the web address.")
    allowed_hosts: Words = setting(("localhost", "127.0.0.1", "[::1]"), "Host names the web process answers to, comma separated.")
    trusted_origins: Words = setting((), "Origins such as `https://drydock.example.org` that may post forms from behind a proxy, comma separated.")
    https: bool = setting(False, "The web process is reached over HTTPS only: secure cookies, HSTS, redirect from HTTP.")
    behind_proxy: bool = setting(False, "A proxy in front sets `X-Forwarded-Proto`, and clients cannot.")
    web_address: str = setting("127.0.0.1", "Address `make up` listens on.")
    web_port: int = setting(8000, "Port `make up` listens on.", ge=1, le=65535)
    web_threads: int = setting(16, "Requests `make up` serves at the same time.", ge=1, le=256)
    readiness_seconds: float = setting(3.0, "How long `/readyz` waits for the database and the broker together.", gt=0, le=30)
    metrics_token: SecretStr = setting(SecretStr(""), "Bearer token for `/metrics`, also on the machine itself, where tenants may run. Empty: one is generated into `keys/metrics_token` of the state folder.")
    metrics_seconds: float = setting(5.0, "Longest time of one statement for `/metrics`.", gt=0, le=60)
    log_format: str = setting("line", "`line`: for people; `json`: one object a line, with the ids of lease, resource and request.", pattern="^(line|json)$")
    log_level: str = setting("INFO", "DEBUG, INFO, WARNING or ERROR.", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    # REST
    body_limit_bytes: int = setting(1 << 20, "A JSON body with more bytes is refused before any of it is read.", ge=1024)
    file_limit_bytes: int = setting(64 << 20, "The same for the content of one file.", ge=1024)
    tree_limit_bytes: int = setting(4 << 30, "The same for a tree of files; it passes through the web process's temporary folder.", ge=1024)
    requests_per_minute: int = setting(1200, "Requests that one user may make a minute, with however many tokens, in each web process; then 429.", ge=1)
    longest_wait_seconds: float = setting(30.0, "Longest that a request may wait for a lease (`?wait=`); the client asks again.", ge=0, le=600)
    body_seconds: float = setting(30.0, "Longest that the body of a request, other than a file or tree, may take to come.", gt=0, le=3600)
    host_seconds: float = setting(10.0, "Longest that a request may wait for the answer of a leased host, such as for a job's state or a folder; then it is 504 and names the host. Half the threads may wait so, and three eighths for one user. A worker that looks at a job or a watched lease waits no longer, either.", gt=0, le=300)
    transfer_seconds: float = setting(600.0, "Longest that one copying of a file or tree through the web process may take.", gt=0, le=86_400)
    token_days_limit: int = setting(366, "Longest life of a token, in days.", ge=1)
    tokens_limit: int = setting(100, "Maximum number of valid tokens of one user.", ge=1)

    # Workers
    worker_concurrency: int = setting(4, "Processes of one worker started by `make up`.", ge=1, le=256)
    inline: bool | None = setting(None, "A Python program that waits for a lease does the work itself, in threads of its own, where no worker lives. Unset: with private engines.")
    sweep_interval_seconds: float = setting(2.0, "How often the sweep looks for what is due.", gt=0)
    lost_worker_seconds: float = setting(30.0, "A worker not heard of for so long counts as lost.", gt=0)
    publish_timeout_seconds: float = setting(0.08, "Bound on connecting to the broker, and again on its answer, when a hint is sent.", gt=0, le=5)
    visibility_timeout_seconds: int = setting(600, "The broker hands an unacknowledged message to another worker after this.", ge=10)

    # Engine
    step_token_seconds: float = setting(60.0, "A step whose worker has not reported for so long may be taken over.", gt=0)
    step_retry_limit: int = setting(8, "Attempts at one step before it counts as failed.", ge=1)
    step_backoff_seconds: float = setting(2.0, "Wait before the second attempt at a step; doubled for each further one.", gt=0)
    step_backoff_limit_seconds: float = setting(300.0, "Longest wait between two attempts at a step.", gt=0)
    head_reservation_seconds: float = setting(30.0, "The head of a queue that has waited longer than this reserves a resource.", ge=0)
    candidate_limit: int = setting(50, "Number of resources with room that are weighed against each other for one lease.", ge=1, le=1000)
    look_again_seconds: float = setting(30.0, "The longest time between two checks of a waiting lease.", gt=0)
    serve_limit: int = setting(200, "Number of leases that one task grants before it leaves the rest of the queue to the next.", ge=1)
    sweep_batch: int = setting(500, "Number of rows that one check of the sweep acts on; the rest is for the next sweep.", ge=1)
    bounce_limit: int = setting(5, "So often a lease waits again because its resource or its setting up failed; then it is broken.", ge=0)
    unreachable_limit_seconds: float = setting(300.0, "A resource that has not answered for so long loses its leases; one that Drydock built is replaced.", gt=0)
    check_failure_limit: int = setting(3, "Number of consecutive failed health checks after which a resource is taken out of service.", ge=1)
    remember_step_seconds: float = setting(60.0, "A failed build of unclear cause is remembered for so long: its offer is not tried meanwhile.", ge=0)
    remember_offer_seconds: float = setting(300.0, "The same when the offer itself failed, for example sold out.", ge=0)
    remember_zone_seconds: float = setting(300.0, "The same for all offers of a zone, when the zone failed.", ge=0)
    remember_location_seconds: float = setting(900.0, "The same for all offers of a location that a refused quota counts.", ge=0)
    remember_blueprint_seconds: float = setting(600.0, "The same for all of a blueprint, when the blueprint failed.", ge=0)
    ageing_seconds: float = setting(300.0, "A waiting lease gains one step of priority for each such span.", gt=0)
    discovery_interval_seconds: float = setting(60.0, "How often a kind that discovers looks at what is there.", gt=0)
    inventory_interval_seconds: float | None = setting(None, "How often the offers of an account are read; unset: as its provider says (ec2 600 s, gce 1,800 s, azure 300 s).", gt=0)
    status_interval_seconds: float | None = setting(None, "How often our resources in an account are listed; unset: as its provider says (ec2 and gce 5 s, azure 10 s).", gt=0)
    choose: Literal["order", "price", "fastest"] = setting("order", "Which of the blueprints that could build is taken, unless the request says: the first in the operators' order, the cheapest, or the one that is soonest ready.")
    orphan_interval_seconds: float = setting(300.0, "How often things at a provider that bear our tag are compared with the rows.", gt=0)
    orphan_apart_seconds: float = setting(900.0, "An orphan is destroyed when it is seen again so long after the first time.", ge=0)
    orphan_dry_run: bool = setting(False, "Orphans are only listed, with what would be done to them, until an operator says so of one.")
    metrics_interval_seconds: float = setting(30.0, "How often what a watched lease uses is read on its host; the younger it is, the more often.", gt=0)
    gather_seconds: float = setting(60.0, "A watched lease that has ended is cleaned after this at the latest, whether or not its last figures and its output could be gathered.", ge=0, le=3600)
    kept_head_kib: int = setting(64, "KiB of the beginning of a workload's output that are kept after the end of its lease.", ge=0, le=4096)
    kept_tail_kib: int = setting(64, "The same for the end of its output.", ge=0, le=4096)
    event_retention_days: int = setting(90, "Events older than this are pruned.", ge=1)
    lease_retention_days: int = setting(90, "Leases that ended, and resources that were gone, longer ago than this are pruned; idempotency keys with them.", ge=1)
    usage_retention_days: int = setting(1095, "Records of what leases cost that ended longer ago than this are pruned.", ge=1)
    lease_hours: float = setting(168.0, "Hours after it is active that a lease ends which is requested without an end, heartbeats or workload; instances do not. A shorter default of a quota or blueprint replaces it. 0: never.", ge=0, le=87_600)
    lease_hours_limit: float = setting(2160.0, "Hours after it is active that a lease ends at the latest, unless an operator requests or extends it. Quotas and blueprints may have a lower limit. 0: no limit.", ge=0, le=87_600)
    budget_hour_seconds: float = setting(3600.0, "A lease without an end under a budget reserves its price for so long, again and again.", gt=0)
    budget_notice_seconds: float = setting(600.0, "So long before its end a lease is told that its budget is not enough for another hour.", ge=0)
    attention_wait_seconds: float = setting(900.0, "A lease that waits longer, to be served or cleaned, is shown as needing attention.", gt=0)
    lock_timeout_ms: int = setting(1000, "How long a claim waits for a row that another claim holds.", ge=1)

    # Private engines
    engine_linger_seconds: float = setting(1.0, "The private engines stop this long after their last user has gone.", ge=0)
    engine_deadline_seconds: float = setting(120.0, "Longest wait for a private engine to start.", gt=0)
    engine_account: int = setting(0, "As root: numeric user id the private engines run under. 0: a free one is chosen.", ge=0)
    disk_low_mib: int = setting(1024, "Less than this left on the disk of the state folder is shown as needing attention.", ge=0)
    disk_full_mib: int = setting(64, "Less than this left there, and the installation is not ready: the database may refuse to write.", ge=0)
    engine_durable: bool = setting(True, "The private PostgreSQL waits for the disk at each commit. Off only where losing data is fine.")
    # fmt: on

    @property
    def database(self) -> Database | None:
        """The user's database, or None for the private one."""
        return parse_database_url(self.database_url) if self.database_url else None

    @property
    def secrets(self) -> list[str]:
        """Every secret that the environment gives, for blotting out."""
        given = [value for _, value in self if isinstance(value, SecretStr)]
        words = [secret.get_secret_value() for secret in (*given, *self.encryption_keys)]
        passwords = [self.database.password] if self.database else []
        return [word for word in (*words, *passwords, urlsplit(self.broker_url).password or "") if word]

    @property
    def private_database(self) -> bool:
        """True when PostgreSQL is ours to start."""
        return not self.database_url

    @property
    def private_broker(self) -> bool:
        """True when the broker is ours to start."""
        return not self.broker_url


def variable(name: str) -> str:
    """The environment variable of a setting."""
    alias = Environment.model_fields[name].validation_alias
    return str(alias) if alias else f"DRYDOCK_{name.upper()}"


def load() -> Environment:
    """Read the environment; raises InvalidSettings naming every mistake at once."""
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
        raise InvalidSettings("Settings to mend:\n  " + "\n  ".join(mistakes))
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
            "`python -m drydock.keys` prints fresh keys."
            for name in ("secret_key",)
            if not _given(getattr(environment, name))
        ]
    return found


def _given(value: SecretStr | tuple[SecretStr, ...]) -> bool:
    return bool(value) if isinstance(value, tuple) else bool(value.get_secret_value())


def reference() -> str:
    """The page docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "All settings come from environment variables, and all mistakes in them are reported at once.",
        "This page is made from `drydock/environment.py` by `make docs`.",
        "",
        "| variable | default | what it does |",
        "| --- | --- | --- |",
    ]
    for name, field in Environment.model_fields.items():
        default = None if field.default_factory else field.default
        lines.append(f"| `{variable(name)}` | {_shown(default)} | {field.description} |")
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if isinstance(default, SecretStr) or default in ("", (), None):
        return ""
    if isinstance(default, bool):
        return f"`{int(default)}`"
    return f"`{','.join(default)}`" if isinstance(default, tuple) else f"`{default}`"


if __name__ == "__main__":
    print(reference(), end="")
