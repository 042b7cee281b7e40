"""The Kubernetes client of all kinds that use DPF, below them: one client for every version of DPF.

What others use is exported here:

- `connect(credential)` returns a `Cluster`, which reads, lists, creates, applies, annotates, deletes and watches
  objects. Every call has a deadline and raises `KubeError` only, whose `answer()` is the answer of a step.
  `Credential` declares the fields of a stored credential.
- `read_dialect(cluster)` returns the `Dialect` of a server: which kinds and fields it has. Kinds decide by it what they
  write, never by a version: `dialect.has("DPUSet", "spec.dpuNodeSelector")`, `dialect.missing(manifest)`.
- `ensure(...)` creates an object under its deterministic `object_name`, or adopts it if its labels prove that it is
  ours.
- `follow(...)` reports changes of a type of objects, resuming at a stored `Bookmark`.
- `role(...)` returns the role that an account needs, from the `Rule`s that a kind declares.

`blueprints.kube.check` compares manifests with CRD files without a server. The official client is imported in `client`
only, and cel-python in `cel` only, both when they are used.
"""

from blueprints.kube.cluster import MANAGER, Cluster, connect
from blueprints.kube.comparison import dropped
from blueprints.kube.credential import Credential, read
from blueprints.kube.dialect import DPF_GROUPS, Dialect, KnownType, dialect, dialect_of_crds, find_type, read_dialect
from blueprints.kube.errors import (
    AnswerInvalid,
    ApiUnavailable,
    CertificateUntrusted,
    CredentialInvalid,
    CredentialRefused,
    FieldOwner,
    FieldsDropped,
    KindUnknown,
    KubeError,
    LibraryMissing,
    ManagerConflict,
    ObjectAbsent,
    ObjectChanged,
    ObjectExists,
    ObjectForeign,
    ObjectRefused,
    RequestForbidden,
    VersionExpired,
)
from blueprints.kube.fieldsets import other_managers
from blueprints.kube.objects import (
    CONFIG_MAP,
    NODE,
    POD,
    SECRET,
    SERVICE_ACCOUNT,
    Condition,
    Json,
    Object,
    ObjectType,
    at,
    conditions,
)
from blueprints.kube.ownership import ensure, has_labels, label_value, labelled, object_name, proof_labels, selector
from blueprints.kube.roles import FOLLOW, MANAGE, READ, Rule, role
from blueprints.kube.schemas import Findings
from blueprints.kube.watch import Bookmark, Changed, Follower, Listed, Marked, News, Pause, follow

__all__ = [
    "CONFIG_MAP",
    "DPF_GROUPS",
    "FOLLOW",
    "MANAGE",
    "MANAGER",
    "NODE",
    "POD",
    "READ",
    "SECRET",
    "SERVICE_ACCOUNT",
    "AnswerInvalid",
    "ApiUnavailable",
    "Bookmark",
    "CertificateUntrusted",
    "Changed",
    "Cluster",
    "Condition",
    "Credential",
    "CredentialInvalid",
    "CredentialRefused",
    "Dialect",
    "FieldOwner",
    "FieldsDropped",
    "Findings",
    "Follower",
    "Json",
    "KindUnknown",
    "KnownType",
    "KubeError",
    "LibraryMissing",
    "Listed",
    "ManagerConflict",
    "Marked",
    "News",
    "Object",
    "ObjectAbsent",
    "ObjectChanged",
    "ObjectExists",
    "ObjectForeign",
    "ObjectRefused",
    "ObjectType",
    "Pause",
    "RequestForbidden",
    "Rule",
    "VersionExpired",
    "at",
    "conditions",
    "connect",
    "dialect",
    "dialect_of_crds",
    "dropped",
    "ensure",
    "find_type",
    "follow",
    "has_labels",
    "label_value",
    "labelled",
    "object_name",
    "other_managers",
    "proof_labels",
    "read",
    "read_dialect",
    "role",
    "selector",
]
