"""What an exception of obstore means: the answer's status and code, whether to try again, which error of ours.

obstore gives a class for a few answers and `GenericError` for the rest, with the whole HTTP story in the
text (source: `object_store::client::retry::RetryError`, whose wording the tests pin down). Read here:

- 404 is `FileNotFoundError`, for a missing key *and* a missing bucket; the body's code tells them apart.
- 412 is `AlreadyExistsError` for a create. 409 too, but S3 says 409 (ConditionalRequestConflict) also when
  nothing was stored, so it leaves the outcome unknown; Azure says 409 for "exists".
- 416 (a range that starts behind the end), 5xx, time-outs and cut connections are `GenericError`.
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

from mergelake.core.errors import InvalidInputError, MergelakeError, NotFoundError, UnavailableError

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TOOK = re.compile(r" in [\d.]+(?:ns|µs|ms|s) - ")
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName", "ContainerNotFound"}
_METADATA_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/latest/api/token", "Credential")

OBSTORE_ERRORS = (BaseError, OSError, ValueError)
"""What a call into obstore may raise."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request, understood."""

    status: int
    """HTTP status, 0 if there was no answer."""
    code: str
    """The server's own code such as `NoSuchKey`, or empty."""
    text: str
    """One line for people."""
    denied: bool
    exists: bool
    missing: bool
    impossible: bool
    """obstore refused the key before asking anybody."""

    @staticmethod
    def of(problem: BaseException) -> Failure:
        """Read obstore's exception."""
        whole = str(problem)
        story = whole.split("\n\nDebug source", 1)[0]
        status, code = _STATUS.search(story), _CODE.search(story)
        number = int(status.group(1)) if status else 0
        text = re.sub(r"<\?xml.*", "", story, flags=re.DOTALL)
        text = _TOOK.sub(": ", text).strip().rstrip(":")
        name = code.group(1) if code else ""
        # Requests for credentials fail with statuses of their own; those are not the bucket's answers.
        credentials = any(word in story for word in _METADATA_SERVICES)
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
        """A range read that starts behind the object's last byte."""
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
