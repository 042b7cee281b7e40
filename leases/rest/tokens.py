"""Creating, finding and revoking tokens.

A token is `ddk_` followed by 256 random bits. Only its SHA-256 digest is stored and looked up, so that nobody can use a
token who only reads the database. A secret that cannot be guessed needs neither a salt nor a slow hash.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet, Value
from django.db.models.functions import Least, Now

from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock.core.units import duration, in_words
from drydock_client.values import TokenInfo
from leases.agents import enrolment
from leases.engine.core.database import lookup, rows
from leases.engine.core.transitions import record_event
from leases.models import Agent
from leases.operations.callers import Caller, on_behalf
from leases.rest.models import AGENT, Scope, Token

PREFIX = "ddk_"
LIFE = dt.timedelta(days=90)
AGENT_LIFE = dt.timedelta(hours=24)
OVERLAP = dt.timedelta(minutes=5)
"""How long an agent's earlier token stays valid after a new one was created, in case the agent did not receive it."""
_USED = dt.timedelta(minutes=1)
"""The minimum time between two updates of a token's last use, so that not every read of the API causes a write."""


def digest(secret: str) -> str:
    """Return the digest of a secret, under which its token is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create(
    who: Caller, *, name: str, scope: str = Scope.LEASE, ttl: str | float | dt.timedelta | None = None,
    owner: Any = None, by: Token | None = None,
) -> tuple[TokenInfo, str]:  # fmt: skip
    """Create a token for the caller or, if an operator asks for it, for `owner`.

    Returns the token with its secret, which is not stored. If `by`, the token of the request, is given, the new
    token cannot exceed its scope or lifetime, and is revoked together with it. Raises InvalidRequest with the
    field, NotAllowed, and Conflict if the user has too many tokens.
    """
    _check_name(name)
    if scope not in Scope.values:
        raise InvalidRequest(
            f"Scope {scope!r} does not exist.", field="scope", hint=f"Choose one of: {', '.join(Scope)}."
        )
    if by is not None and not by.allows(scope):
        raise NotAllowed(f"A token with scope {by.scope!r} cannot create a token with scope {scope!r}.", field="scope")
    span, holder = _span(ttl, by), on_behalf(who, owner)
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        if by is not None:
            _hold(by.pk)
        _room(holder)
        token = Token.objects.create(
            user_id=holder.id, name=name, scope=scope, digest=digest(secret), tail=secret[-4:],
            expires_at=_end(span, by), made_by=by,
            maker=who.maker or ("" if holder.id == who.id else who.name),
        )  # fmt: skip
        said = f"Token {name!r} for {holder.name}, scope {scope}, for {in_words(span)}."
        record_event("token.created", said, actor=who.actor, details={"token": token.pk, "user": holder.name})
    return info(_seen().get(pk=token.pk)), secret


def create_for_agent(agent: Agent) -> tuple[str, dt.datetime]:
    """Create a token for an agent, and let its earlier ones expire soon. Return the secret and its expiry.

    Raises Replaced if the agent was revoked, or has joined again since `agent` was read.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        enrolment.hold(agent)
        earlier = Token.objects.filter(agent=agent)
        earlier.filter(expires_at__lte=Now()).delete()
        earlier.update(expires_at=Least(F("expires_at"), Now() + OVERLAP))
        token = Token.objects.create(
            agent=agent, name=f"agent {agent.pk}", scope=AGENT, digest=digest(secret), tail=secret[-4:],
            expires_at=Now() + AGENT_LIFE,
        )  # fmt: skip
    token.refresh_from_db(fields=["expires_at"])
    return secret, token.expires_at


_RARE = ("drivers", "offered", "secrets")
"""Columns of an agent that are read from the database where they are used: they are large, or encrypted."""
_FIELDS: list[Any] = [field for field in Agent._meta.concrete_fields if field.name not in _RARE]
_NAMES = [field.attname for field in _FIELDS]
_CONVERTED = [(n, field) for n, field in enumerate(_FIELDS) if hasattr(field, "from_db_value")]
_AGENT = f"""
    SELECT {", ".join(f"a.{field.column}" for field in _FIELDS)}, t.expires_at <= statement_timestamp()
    FROM rest_token t JOIN leases_agent a ON a.id = t.agent_id
    WHERE t.digest = %s AND t.scope = %s AND t.revoked_at IS NULL AND a.revoked_at IS NULL"""  # noqa: S608  (our columns)


def agent_of(secret: str) -> tuple[Agent, bool] | None:
    """Return the agent with this token, and whether the token has expired; None if one of them was revoked.

    Every agent sends its token once a minute, and the ORM takes ten times as long to compose a statement like this one.
    """
    found = lookup(_AGENT, (digest(secret), AGENT)) if secret.startswith(PREFIX) else []
    if not found:
        return None
    *values, expired = found[0]
    for n, field in _CONVERTED:
        values[n] = field.from_db_value(values[n], None, connection)
    return Agent.from_db(connection.alias, _NAMES, values), bool(expired)


def _room(holder: Caller) -> None:
    """Lock the user's row, and raise Conflict if the user may not have another token.

    Because of the lock, two requests that create tokens for one user at the same time cannot exceed the limit
    together.
    """
    get_user_model().objects.select_for_update(no_key=True).get(pk=holder.id)
    limit = settings.DRYDOCK.tokens_limit
    if Token.objects.filter(user_id=holder.id, revoked_at=None, expires_at__gt=Now()).count() >= limit:
        raise Conflict(
            f"{holder.name} already has {limit} valid tokens, which is the limit for one user.",
            hint="Revoke a token that is not needed.",
        )


def _end(span: dt.timedelta, by: Token | None) -> Any:
    """Return the expiry of a new token as a database expression, because this machine's clock may differ.

    The token never expires later than `by`, the token with which it is created.
    """
    end = Now() + span
    return end if by is None else Least(end, Value(by.expires_at))


def _hold(token_id: int) -> None:
    """Lock a token, so that it cannot be revoked while another token is created with it.

    Raises NotAllowed if the token is revoked.
    """
    if not Token.objects.select_for_update(no_key=True).filter(pk=token_id, revoked_at=None).exists():
        raise NotAllowed("This token was revoked.")


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > 63 or not name.isprintable():
        raise InvalidRequest(
            "The name of a token must have 1 to 63 characters.", field="name", hint="Name its purpose."
        )


def _span(ttl: str | float | dt.timedelta | None, by: Token | None) -> dt.timedelta:
    """Return the lifetime of a new token: `ttl` or the default.

    It never exceeds the remaining lifetime of `by`, the token with which it is created. Raises InvalidRequest if
    `ttl` is too long.
    """
    span = LIFE if ttl is None else duration(ttl, field="ttl")
    longest = dt.timedelta(days=settings.DRYDOCK.token_days_limit)
    if ttl is not None and span > longest:
        raise InvalidRequest(f"A token can be valid for at most {in_words(longest)}.", field="ttl")
    if by is None:
        return min(span, longest)
    left = by.expires_at - clock.now()
    if ttl is not None and span > left:
        raise InvalidRequest(
            f"Your token is valid for another {in_words(left)} and cannot create a token that is valid for longer.",
            field="ttl",
            hint="Omit ttl to get the longest possible validity. The console and `drydock tokens` on the server "
                "can create tokens that are valid for longer.",
        )  # fmt: skip
    return min(span, longest, left)


def list_(who: Caller, *, owner: Any = None, limit: int | None = None, before: int | None = None) -> list[TokenInfo]:
    """Return the tokens of the caller, newest first. An operator gets the tokens of all users, or those of `owner`.

    `before` returns only ids below it, for paging.
    """
    found = _theirs(who)
    if owner is not None:
        found = found.filter(user_id=on_behalf(who, owner).id)
    if before is not None:
        found = found.filter(pk__lt=before)
    return [info(token) for token in found[:limit]]


def get(who: Caller, token_id: int) -> TokenInfo:
    """Return a token. Raises NotFound if it does not exist or belongs to somebody else."""
    token = _theirs(who).filter(pk=token_id).first()
    if token is None:
        raise NotFound(f"Token {token_id} does not exist or is not yours.", field="token")
    return info(token)


_FAMILY = """
    WITH RECURSIVE family AS (
        SELECT id FROM rest_token WHERE id = %s
        UNION SELECT t.id FROM rest_token t JOIN family f ON t.made_by_id = f.id
    ) UPDATE rest_token SET revoked_at = now() WHERE id = ANY(ARRAY(
        SELECT id FROM rest_token WHERE id IN (SELECT id FROM family) AND revoked_at IS NULL
        ORDER BY id FOR NO KEY UPDATE))
    RETURNING id, name"""


def revoke(who: Caller, token_id: int) -> TokenInfo:
    """Revoke a token and all tokens created with it. Revoking it again changes nothing.

    Raises NotFound.
    """
    before = get(who, token_id)
    with transaction.atomic():
        Token.objects.select_for_update(no_key=True).get(pk=token_id)
        for gone, name in rows(_FAMILY, (token_id,)):
            said = f"Token {name!r} " + (f"of {before.user}." if gone == token_id else f"created with {before.name!r}.")
            record_event("token.revoked", said, actor=who.actor, details={"token": gone})
    return get(who, token_id)


def _seen() -> QuerySet[Token]:
    """Return tokens with their users, and with `expired` according to the database's clock."""
    over = ExpressionWrapper(Q(expires_at__lte=Now()), output_field=BooleanField())
    return Token.objects.select_related("user").annotate(expired=over)


def _theirs(who: Caller) -> QuerySet[Token]:
    """Return the tokens that the caller may see. Those of agents are not among them: agents are revoked instead."""
    return _seen().filter(agent=None) if who.operator else _seen().filter(user_id=who.id)


def info(token: Any) -> TokenInfo:
    """Return a token's row as a value."""
    return TokenInfo(
        id=token.pk, user=token.user.get_username(), name=token.name, scope=token.scope, tail=token.tail,
        created_at=token.created_at, expires_at=token.expires_at, expired=token.expired,
        revoked_at=token.revoked_at, last_used_at=token.last_used_at, made_by=token.made_by_id,
    )  # fmt: skip


def find(secret: str) -> Any:
    """Return the token with this secret, even if it is revoked or expired, or None if there is no such token."""
    return _seen().filter(digest=digest(secret)).first() if secret.startswith(PREFIX) else None


def used(token: Token) -> None:
    """Record that a token was used, unless that was recorded less than `_USED` ago."""
    if token.last_used_at is not None and clock.now() - token.last_used_at < _USED:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lt=Now() - _USED)
    Token.objects.filter(stale, pk=token.pk).update(last_used_at=Now())
