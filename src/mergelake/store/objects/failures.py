"""Interprets exceptions of obstore: status and code of the response, whether to retry, and our error for it.

obstore has a class for a few responses and `GenericError` for the rest, with the HTTP details in the text (source:
`object_store::client::retry::RetryError`, whose wording the tests pin down):

- 404 is `FileNotFoundError`, for a missing key *and* a missing bucket; the code in the body distinguishes them.
- 412 is `AlreadyExistsError` for a create. So is 409, but S3 returns 409 (ConditionalRequestConflict) also if nothing
  was stored, so the outcome is unknown; Azure returns 409 for an existing object.
- 416 (a range that starts after the end), 5xx, time-outs and cut connections are `GenericError`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from mergelake.core.base.errors import InvalidInputError, MergelakeError, NotFoundError, UnavailableError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TOOK = re.compile(r" in [\d.]+(?:ns|µs|ms|s) - ")
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName", "ContainerNotFound"}
_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/latest/api/token", "Credential")

OBSTORE_ERRORS = (BaseError, OSError, ValueError)
"""What a call into obstore may raise."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The details of one failed request."""

    status: int
    """HTTP status, 0 if there was no response."""
    code: str
    """The server's own code such as `NoSuchKey`, or empty."""
    text: str
    """One line for people."""
    denied: bool
    exists: bool
    missing: bool
    impossible: bool
    """obstore refused the key without a request."""

    @staticmethod
    def of(problem: BaseException) -> Failure:
        """Read obstore's exception."""
        full_text = str(problem)
        answer = full_text.split("\n\nDebug source", 1)[0]
        status, code = _STATUS.search(answer), _CODE.search(answer)
        number = int(status.group(1)) if status else 0
        text = re.sub(r"<\?xml.*", "", answer, flags=re.DOTALL)
        text = _TOOK.sub(": ", text).strip().rstrip(":")
        name = code.group(1) if code else ""
        # Statuses of requests for credentials are not responses of the bucket.
        credentials = any(word in answer for word in _METADATA_SERVICES)
        return Failure(
            status=number,
            code=name,
            text=f"{text}: {name}" if name else text,
            denied=isinstance(problem, PermissionDeniedError | UnauthenticatedError)
            or number in (401, 403)
            or credentials,
            exists=isinstance(problem, AlreadyExistsError | PreconditionError),
            missing=isinstance(problem, FileNotFoundError) or number == 404,
            impossible=isinstance(problem, ValueError) and not isinstance(problem, BaseError),
        )

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed a moment later."""
        if self.denied or self.missing or self.impossible:
            return False
        return self.status == 0 or self.status >= 500 or self.status in (408, 409, 429)

    @property
    def behind_the_end(self) -> bool:
        """Whether a range starts after the object's last byte."""
        return self.status == 416


def translate(problem: BaseException, url: str, key: str) -> MergelakeError:
    """Our error for obstore's, to be raised `from` it."""
    failure = Failure.of(problem)
    if failure.impossible:
        return InvalidInputError(f"'{key}' cannot be the key of an object: {problem}", name="BAD_ARGUMENTS")
    if failure.code in _NO_BUCKET or (failure.missing and not key):
        return InvalidInputError(
            f"the bucket of {url} does not exist ({failure.code or failure.status})",
            name="S3_ERROR",
            hint="Create the bucket, or correct its name, the endpoint or the region",
        )
    if failure.denied:
        return InvalidInputError(
            f"access to {url} was denied: {failure.text}",
            name="S3_ERROR",
            hint="Check the credentials (options access_key_id and secret_access_key, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY) and what they permit",
        )
    if failure.missing:
        return NotFoundError(f"there is no object '{key}' in {url}", name="FILE_DOESNT_EXIST")
    if failure.status in (301, 307):
        return InvalidInputError(f"{url} lies in another region: {failure.text}", name="S3_ERROR", hint="Set `region`")
    if failure.transient:
        return UnavailableError(
            f"{url} did not answer for '{key}': {failure.text}",
            name="S3_ERROR" if failure.status else "NETWORK_ERROR",
            hint="Check the endpoint and the network, and try again",
        )
    return InvalidInputError(f"{url} refused the request for '{key}': {failure.text}", name="S3_ERROR")
