"""One API server: read, list, create, apply, annotate, delete and watch objects, each call with a deadline.

Nothing is ever pruned silently. Each write is sent with `dryRun=All` and `fieldValidation=Strict` first, and what the
server would store is compared with what was sent, because servers before 1.25 ignore `fieldValidation`, drop unknown
fields and answer 201 (https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from blueprints.kube import fieldsets
from blueprints.kube.comparison import dropped
from blueprints.kube.credential import Credential, Source, read
from blueprints.kube.errors import (
    AnswerInvalid,
    AnswerTooLong,
    ApiUnavailable,
    FieldsDropped,
    KubeError,
    LibraryMissing,
    ObjectAbsent,
    ObjectChanged,
    VersionExpired,
)
from blueprints.kube.objects import SECRET, Event, Json, Object, ObjectType, Page
from blueprints.kube.transport import Lines, Reply, Request, Transport, failed, failure, parsed
from drydock.core import forking

MANAGER = "drydock"
"""The field manager of our changes."""
DEADLINE = 10.0
"""Seconds that a call may take by default."""
MOST_OBJECT = 4 << 20
"""Bytes of one object. etcd accepts 1.5 MiB, which JSON may lengthen."""
MOST_PAGE = 24 << 20
"""Bytes of a page of a listing."""
MOST_DOCUMENT = 48 << 20
"""Bytes of the OpenAPI document, which has 5 MB on a small server."""
PAGE = 100
"""Objects of a page. With 250, a watcher of 1,000 DPUs needed 10 MiB more at most."""
WHOLE = 1000
"""Objects of a page of a listing that is kept as a whole: the number of requests is the same for 100 as for 1,000."""
MOST_LISTED = 20_000
"""Objects of a listing as a whole. Use `pages` or a watch for more."""

Query = list[tuple[str, str]]
_EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class Cluster:
    """An open connection to one API server, used by one thread at a time. Every method raises KubeError only.

    Writes are safe to repeat. After ApiUnavailable with `sent`, the change may have been carried out.
    """

    def __init__(self, transport: Transport, *, deadline: float = DEADLINE) -> None:
        self._transport, self._deadline = transport, deadline
        self._watches: set[Lines] = set()
        self._ended = False

    def __enter__(self) -> Self:
        """Return the cluster itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def end_watches(self) -> None:
        """End all watches, now and later; each then raises ApiUnavailable. May be called by another thread."""
        self._ended = True
        for stream in tuple(self._watches):
            stream.close()

    @property
    def where(self) -> str:
        """Host and port of the server, for messages."""
        return self._transport.where

    @property
    def namespace(self) -> str:
        """The namespace that the credential names, `default` if it names none."""
        return self._transport.namespace

    def get(self, type_: ObjectType, name: str, namespace: str = "") -> Object:
        """Read an object. Raises ObjectAbsent if it does not exist."""
        return Object.of(self._read(self._request("get", type_, name, namespace), type_.path(namespace, name)))

    def find(self, type_: ObjectType, name: str, namespace: str = "") -> Object | None:
        """Read an object; return None if it does not exist."""
        try:
            return self.get(type_, name, namespace)
        except ObjectAbsent:
            return None

    def page(
        self,
        type_: ObjectType,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        more: str = "",
    ) -> Page:
        """Read one page of a listing; in all namespaces if `namespace` is empty. `more` is that of the page before.

        `labels` and `fields` are selectors, such as `app=a,tier!=b`. Raises VersionExpired if `more` is too old, and
        AnswerTooLong if `limit` objects are too many at once.
        """
        query = [("limit", str(limit))]
        query += [
            pair for pair in (("labelSelector", labels), ("fieldSelector", fields), ("continue", more)) if pair[1]
        ]
        request = self._request("list", type_, "", namespace)
        found = self._read(request, type_.path(namespace), query, most=MOST_PAGE)
        meta, items = found.get("metadata"), found.get("items")
        version = meta.get("resourceVersion") if isinstance(meta, dict) else None
        if not isinstance(version, str) or not isinstance(items, list | None):
            raise AnswerInvalid(f"The API server at {self.where} did not answer with a list of {type_.resource}.")
        rest = meta.get("continue") if isinstance(meta, dict) else ""
        return Page(
            items=tuple(Object.of(one) for one in items or ()), resource_version=version,
            more=rest if isinstance(rest, str) else "",
        )  # fmt: skip

    def pages(
        self, type_: ObjectType, namespace: str = "", *, labels: str = "", fields: str = "", limit: int = PAGE
    ) -> Iterator[Page]:
        """Return a listing page by page, in smaller pages if an answer is too long."""
        more = ""
        while True:
            try:
                page = self.page(type_, namespace, labels=labels, fields=fields, limit=limit, more=more)
            except AnswerTooLong:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            yield page
            if not page.more or page.more == more:
                return
            more = page.more

    def list(
        self, type_: ObjectType, namespace: str = "", *, labels: str = "", fields: str = "", limit: int = WHOLE
    ) -> tuple[Object, ...]:
        """Return all objects of a type, at most 20,000. Raises AnswerInvalid if there are more."""
        found: list[Object] = []
        for page in self.pages(type_, namespace, labels=labels, fields=fields, limit=limit):
            found += page.items
            if len(found) > MOST_LISTED:
                raise AnswerInvalid(f"The API server at {self.where} has more than {MOST_LISTED} {type_.resource}.")
        return tuple(found)

    def dry_create(self, type_: ObjectType, manifest: Json) -> Object:
        """Return the object as the server would store it. Raises FieldsDropped, ObjectRefused, ObjectExists."""
        request = self._request("create", type_, *_named(manifest))
        return self._write(request, "POST", type_.path(request.namespace), manifest, dry=True)

    def create(self, type_: ObjectType, manifest: Json) -> Object:
        """Create an object, after a dry run of the same request.

        Raises FieldsDropped or ObjectRefused if the server would not store all of it, and ObjectExists if the name is
        taken: `ownership.ensure` then looks whether the object is ours.
        """
        self.dry_create(type_, manifest)
        request = self._request("create", type_, *_named(manifest))
        try:
            return self._write(request, "POST", type_.path(request.namespace), manifest)
        except FieldsDropped as lost:  # the CRD was changed between the two requests
            self._undo(type_, request, lost)
            raise

    def dry_apply(self, type_: ObjectType, manifest: Json, *, uid: str) -> Object:
        """Return the object as the server would store it after `apply`. Raises what `apply` raises."""
        return self._apply(type_, manifest, uid, dry=True)

    def apply(self, type_: ObjectType, manifest: Json, *, current: Object) -> Object:
        """Change an existing object by server-side apply, after a dry run. `manifest` has all fields that are ours.

        Fields of ours that are not in the manifest any more are removed. The fields of others are never overwritten:
        raises ManagerConflict, which names them. Nothing that was deleted meanwhile is created again: raises
        ObjectAbsent or ObjectChanged unless the object still has the uid of `current`, and is not being deleted. A
        manifest with a resourceVersion in its metadata changes the object in this version only: ObjectChanged.
        """
        if current.deleting:
            raise ObjectChanged(f"{type_.kind} {current.name} is being deleted.")
        self._claim_fields(type_, current)
        try:
            self._apply(type_, manifest, current.uid, dry=True)
        except ObjectChanged:
            left = self.find(type_, current.name, current.namespace)
            if left is None or left.uid != current.uid:
                raise ObjectAbsent(f"{type_.kind} {current.name} was deleted meanwhile.") from None
            raise
        stored = self._apply(type_, manifest, current.uid)
        if stored.uid != current.uid:  # deleted between the two requests, by a server that creates it again
            self.delete(type_, stored.name, stored.namespace, uid=stored.uid)
            raise ObjectAbsent(f"{type_.kind} {current.name} was deleted meanwhile.")
        return stored

    def restore(self, type_: ObjectType, manifest: Json, *, current: Object) -> Object:
        """Write our fields of an object again, as in the manifest, also those that others have changed since.

        For an operator who has asked for that. Only what was seen in `current` is overwritten: raises ObjectChanged if
        the object was changed or deleted meanwhile.
        """
        if current.deleting:
            raise ObjectChanged(f"{type_.kind} {current.name} is being deleted.")
        named = {"uid": current.uid, "resourceVersion": current.resource_version}
        sent = {**manifest, "metadata": {**manifest["metadata"], **named}}
        request = self._request("patch", type_, current.name, current.namespace)
        path, media = type_.path(current.namespace, current.name), "application/apply-patch+yaml"
        self._write(request, "PATCH", path, sent, dry=True, media=media, force=True)
        return self._write(request, "PATCH", path, sent, media=media, force=True)

    def annotate(
        self,
        type_: ObjectType,
        current: Object,
        annotations: Mapping[str, str | None],
        labels: Mapping[str, str | None] | None = None,
    ) -> Object:
        """Set or remove (None) annotations and labels of an object that is not ours, and nothing else of it.

        For the handshakes that its owner documents. Raises ObjectChanged if it is not as it was in `current` any more.
        """
        metadata: Json = {"uid": current.uid, "resourceVersion": current.resource_version}
        metadata |= {"annotations": dict(annotations)} if annotations else {}
        metadata |= {"labels": dict(labels)} if labels else {}
        request = self._request("patch", type_, current.name, current.namespace)
        path = type_.path(current.namespace, current.name)
        query, media = [("fieldManager", MANAGER)], "application/merge-patch+json"
        return Object.of(self._changed(request, "PATCH", path, query, {"metadata": metadata}, media))

    def amend(self, type_: ObjectType, current: Object, changes: Json) -> Object:
        """Set or remove (None) fields of an object that others have made for us, in the version of `current` only.

        For fields that nobody else owns: look at `other_managers` before. A dry run comes first, as for every write.
        Raises ObjectChanged if the object is not as it was in `current` any more, and FieldsDropped.
        """
        named = {"uid": current.uid, "resourceVersion": current.resource_version}
        sent = {**changes, "metadata": {**changes.get("metadata", {}), **named}}
        request = self._request("patch", type_, current.name, current.namespace)
        path, media = type_.path(current.namespace, current.name), "application/merge-patch+json"
        for dry in (True, False):
            query = [("fieldManager", MANAGER), ("fieldValidation", "Strict")] + ([("dryRun", "All")] if dry else [])
            stored = self._changed(request, "PATCH", path, query, sent, media)
            if lost := dropped(_given(changes), stored):
                raise FieldsDropped(f"{type_.kind} {current.name}", lost)
        return Object.of(stored)

    def delete(
        self, type_: ObjectType, name: str, namespace: str = "", *, uid: str, resource_version: str = ""
    ) -> Object | None:
        """Delete the object with this uid. Return it while its finalizers keep it, or None once it does not exist.

        Repeat it until it returns None. An object of the same name with another uid is not touched. Given a
        resourceVersion, raises ObjectChanged if the object is there in another one, unless it is being deleted.
        """
        request = self._request("delete", type_, name, namespace)
        exactly = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body = {
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": exactly, "propagationPolicy": "Background",
        }  # fmt: skip
        try:
            self._changed(request, "DELETE", type_.path(namespace, name), [], body, "application/json")
        except ObjectAbsent:
            return None
        except ObjectChanged:
            pass  # another object has its name now, or it was changed at the same moment
        left = self.find(type_, name, namespace)
        if left is not None and left.uid == uid and not left.deleting:
            raise ObjectChanged(f"{type_.kind} {name} was changed while it was deleted.")
        return left if left is not None and left.uid == uid else None

    def watch(
        self, type_: ObjectType, namespace: str = "", *, resource_version: str, labels: str = "", timeout: float
    ) -> Generator[Event, None, None]:
        """Return the events after a resourceVersion, until the server ends the answer, after `timeout` seconds.

        Close it if it is not read to its end. Raises VersionExpired if events are missing, and ApiUnavailable if the
        connection breaks. `watch.follow` handles both.
        """
        query = [
            ("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", resource_version),
            ("timeoutSeconds", str(max(1, round(timeout)))),
        ] + ([("labelSelector", labels)] if labels else [])  # fmt: skip
        request = self._request("watch", type_, "", namespace)
        self._refuse_ended()
        stream = self._transport.stream(
            type_.path(namespace), query=query, deadline=self._deadline, idle=timeout + self._deadline
        )
        return self._events(stream, request)

    def document(self, path: str) -> Json:
        """Read a document of the server, such as `/apis` or `/openapi/v2`."""
        return self._read(Request(verb="get", resource=path, where=self.where), path, most=MOST_DOCUMENT, seconds=60.0)

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ApiUnavailable(f"The watch at {self.where} was ended.")

    def _events(self, stream: Lines, request: Request) -> Generator[Event, None, None]:
        self._watches.add(stream)
        try:
            self._refuse_ended()
            if stream.status != 200:
                body = stream.body(deadline=self._deadline, most=MOST_OBJECT)
                raise failure(Reply(stream.status, stream.headers, body), request)
            for line in stream.lines(MOST_OBJECT):
                if line.strip():
                    yield self._event(parsed(line, self.where), request)
        finally:
            self._watches.discard(stream)
            stream.close()

    def _event(self, found: Json, request: Request) -> Event:
        type_, body = found.get("type"), found.get("object")
        if type_ == "ERROR" and isinstance(body, dict):
            code = body.get("code")
            code = code if type(code) is int and code >= 400 else 500
            if body.get("reason") == "Expired":
                raise VersionExpired(f"The API server at {self.where} no longer has this resourceVersion.")
            raise failed(code, body, request)
        if type_ not in _EVENTS:
            raise AnswerInvalid(f"The API server at {self.where} sent an event of an unknown type.")
        if type_ == "BOOKMARK":
            meta = body.get("metadata") if isinstance(body, dict) else None
            version = meta.get("resourceVersion") if isinstance(meta, dict) else None
            if not isinstance(version, str) or not version:
                raise AnswerInvalid(f"The API server at {self.where} sent a bookmark without resourceVersion.")
            return Event(type="BOOKMARK", resource_version=version)
        changed = Object.of(body)
        return Event(type=type_, resource_version=changed.resource_version, object=changed)

    def _request(self, verb: str, type_: ObjectType, name: str = "", namespace: str = "") -> Request:
        secret = (type_.group, type_.kind) == (SECRET.group, SECRET.kind)
        return Request(
            verb=verb, resource=type_.resource, name=name, namespace=namespace, where=self.where, secret=secret
        )

    def _read(
        self,
        request: Request,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        *,
        most: int = MOST_OBJECT,
        seconds: float = 0.0,
    ) -> Json:
        reply = self._transport.call("GET", path, query=query, deadline=seconds or self._deadline, most=most)
        if reply.status != 200:
            raise self._hidden(failure(reply, request))
        return parsed(reply.body, self.where)

    def _changed(self, request: Request, method: str, path: str, query: Query, body: Any, media: str) -> Json:
        reply = self._transport.call(
            method, path, query=query, body=body, content_type=media, deadline=self._deadline, most=MOST_OBJECT
        )
        if reply.status not in (200, 201, 202):
            raise self._hidden(failure(reply, request))
        return parsed(reply.body, self.where)

    def _write(
        self,
        request: Request,
        method: str,
        path: str,
        manifest: Json,
        *,
        dry: bool = False,
        media: str = "application/json",
        force: bool = False,
    ) -> Object:
        query = [("fieldManager", MANAGER), ("fieldValidation", "Strict")] + ([("dryRun", "All")] if dry else [])
        query += [("force", "true")] if force else []
        stored = self._changed(request, method, path, query, manifest, media)
        if lost := dropped(manifest, stored):
            raise FieldsDropped(f"{manifest.get('kind')} {request.name}", lost)
        return Object.of(stored)

    def _apply(self, type_: ObjectType, manifest: Json, uid: str, *, dry: bool = False) -> Object:
        sent = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
        request = self._request("patch", type_, *_named(manifest))
        path = type_.path(request.namespace, request.name)
        found = self._write(request, "PATCH", path, sent, dry=dry, media="application/apply-patch+yaml")
        if dry and found.uid != uid:
            raise ObjectAbsent(f"{type_.kind} {request.name} was deleted meanwhile.")
        return found

    def _claim_fields(self, type_: ObjectType, current: Object) -> None:
        """Turn the fields that our `create` owns into fields that `apply` owns, which the server tells apart.

        Otherwise our first change of a field would be a conflict with ourselves, as kubectl documents it
        (https://kubernetes.io/docs/reference/using-api/server-side-apply/#upgrading-from-client-side-apply-to-server-side-apply).
        """
        changed = fieldsets.claimed(current.managers, MANAGER)
        if changed is None:
            return
        operations = [
            {"op": "replace", "path": "/metadata/managedFields", "value": changed},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": current.resource_version},
        ]
        request = self._request("patch", type_, current.name, current.namespace)
        path, media = type_.path(current.namespace, current.name), "application/json-patch+json"
        self._changed(request, "PATCH", path, [("fieldManager", MANAGER)], operations, media)

    def _undo(self, type_: ObjectType, request: Request, lost: FieldsDropped) -> None:
        left = self.find(type_, request.name, request.namespace)
        if left is not None and left.managers and all(one.get("manager") == MANAGER for one in left.managers):
            self.delete(type_, left.name, left.namespace, uid=left.uid)

    def _hidden(self, error: KubeError) -> KubeError:
        error.message = self._transport.hidden(error.message)
        error.args = (error.message,)
        return error


def connect(
    credential: Credential | Mapping[str, Any],
    *,
    deadline: float = DEADLINE,
    again: Callable[[], Credential] | None = None,
) -> Cluster:
    """Return a connection to the API server of a credential. Nothing is sent before it is used.

    `again` reads the stored credential anew after a 401, for connections that are kept. Raises CredentialInvalid,
    LibraryMissing.
    """
    given = credential if isinstance(credential, Credential) else read(credential)
    source = Source(given, again)
    source.access()
    return Cluster(_transport(source), deadline=deadline)


def _transport(source: Source) -> Transport:
    try:
        # By name, so that only those who connect load the official client.
        made: Transport = forking.load("blueprints.kube.client").Connection(source)
    except ImportError as error:
        raise LibraryMissing("Access to Kubernetes", "kubernetes>=37") from error
    return made


def _named(manifest: Json) -> tuple[str, str]:
    metadata = manifest.get("metadata") or {}
    return str(metadata.get("name", "")), str(metadata.get("namespace", ""))


def _given(changes: Any) -> Any:
    """Return a merge patch without what it removes."""
    if not isinstance(changes, dict):
        return changes
    return {key: _given(value) for key, value in changes.items() if value is not None}
