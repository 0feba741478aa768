"""The probe checks that a store's create-if-absent works, once, before the first write to a warehouse.

The correctness of the log depends on `create` having one winner. Some S3 look-alikes ignore `If-None-Match` and
overwrite. The probe creates one object twice: the first must win, the second must lose, and the bytes must
be the first ones. It cannot show a race that only occurs under load, but it detects every store that ignores the
condition.
"""

from __future__ import annotations

from mergelake.core.base.errors import InvalidInputError, MergelakeError, UnavailableError
from mergelake.core.base.ids import IdSource
from mergelake.store.interface.protocol import Lost, OutcomeUnknown, Store, Stored

PROBE_DIRECTORY = "_catalog/_probe"


def probe_create_if_absent(store: Store, ids: IdSource) -> None:
    """Return if the store's `create` is exclusive; costs four requests and leaves nothing behind.

    Raises `InvalidInputError` (SUPPORT_IS_DISABLED) if it is not, `UnavailableError` if the store gives no clear
    answer, and the store's errors for missing credentials or a missing bucket.
    """
    key = f"{PROBE_DIRECTORY}/{ids.new_id()}"
    first, second = b"first", b"second"
    try:
        outcomes = store.create(key, first), store.create(key, second)
        if isinstance(outcomes[0], OutcomeUnknown) or isinstance(outcomes[1], OutcomeUnknown):
            reason = next(outcome.reason for outcome in outcomes if isinstance(outcome, OutcomeUnknown))
            raise UnavailableError(
                f"{store.url} gave no clear answer to a conditional put: {reason}",
                name="NETWORK_ERROR",
                hint="Try again when the store is well",
            )
        body = store.get(key)
        if outcomes != (Stored(), Lost()) or body != first:
            raise _liar(store.url, "a second put to the same key was accepted" if body == second else "a put was lost")
    finally:
        _clean(store, key)


def _clean(store: Store, key: str) -> None:
    try:
        store.delete([key])
    except MergelakeError:
        return  # the probe's own answer or error matters more than a stray object


def _liar(url: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{url} has no reliable create-if-absent: {reason}",
        name="SUPPORT_IS_DISABLED",
        hint="Commits would overwrite each other there. Use a store that honours `If-None-Match: *` on PUT (Amazon S3, "
        "Google Cloud Storage, Azure, Ceph radosgw, MinIO), or a local directory",
    )
