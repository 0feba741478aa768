"""Options of a bucket: names, the environment, and the obstore clients made from them.

`bucket_options` combines the user's options and the environment into one complete flat mapping of strings (for the
`StoreSpec`); `make_clients` makes obstore stores from it. Only `open_store` passes the environment.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from mergelake.core.base.errors import InvalidInputError
from mergelake.core.model.settings import truth

Client: TypeAlias = S3Store | GCSStore | AzureStore

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az"}
"""URL schemes and the kind of bucket each stands for."""

_SHORT = {"endpoint_url": "endpoint", "s3_endpoint": "endpoint", "default_region": "region", "token": "session_token"}
_OWN = {
    "allow_http": "false",
    "timeout_s": "30",
    "connect_timeout_s": "5",
    "max_retries": "6",
    "coalesce_gap": str(1 << 20),
    "chunk_size": str(8 << 20),
    "max_requests_in_flight": "64",
    "read_ahead_bytes": str(256 << 20),
}
"""Our own options with their defaults; the others are obstore's, with or without the `aws_` prefix."""

_S3_ENVIRONMENT = {
    "endpoint": ("S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "allow_http": ("AWS_ALLOW_HTTP",),
    "skip_signature": ("AWS_SKIP_SIGNATURE",),
    "virtual_hosted_style_request": ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",),
}
_S3_IDENTITY = {
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "container_credentials_relative_uri": ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    "container_credentials_full_uri": ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    "container_authorization_token_file": ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",),
    "web_identity_token_file": ("AWS_WEB_IDENTITY_TOKEN_FILE",),
    "role_arn": ("AWS_ROLE_ARN",),
    "role_session_name": ("AWS_ROLE_SESSION_NAME",),
    "metadata_endpoint": ("AWS_METADATA_ENDPOINT",),
    "ec2_metadata_disabled": ("AWS_EC2_METADATA_DISABLED",),
}


@dataclass(frozen=True, slots=True)
class Clients:
    """Two clients of the same bucket."""

    once: Client
    """Never retries: for conditional puts, whose outcome a hidden retry would hide, and for all requests that
    `BucketStore` retries itself."""
    patient: Client
    """Retries: for multipart uploads, where it repeats only failed parts."""


def bucket_options(scheme: str, options_given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """All options for a bucket, the user's before the environment's; names in lower case without `aws_`."""
    prefix = {"s3": "aws_", "gs": "google_", "az": "azure_"}[scheme]
    options: dict[str, str] = {}
    for name, value in options_given.items():
        plain = name.lower().removeprefix(prefix)
        plain = _SHORT.get(plain, plain)
        if options.get(plain, str(value)) != str(value):
            raise InvalidInputError(f"option {plain} is given twice, once as {name}", name="BAD_ARGUMENTS")
        options[plain] = str(value)
    if scheme != "s3":
        # obstore knows the many option names of these two; those of the environment become part of the spec.
        from_environment = {
            name.lower().removeprefix(prefix): value
            for name, value in environment.items()
            if name.lower().startswith(prefix)
        }
        return {**from_environment, **options}
    wanted = dict(_S3_ENVIRONMENT)
    if not {"access_key_id", "secret_access_key", "skip_signature", "role_arn"} & options.keys():
        wanted |= _S3_IDENTITY  # never a mixture of two identities
    for name, variables in wanted.items():
        value = next((environment[v] for v in variables if environment.get(v)), "")
        if value:
            options.setdefault(name, value)
    if options.get("endpoint", "").startswith("http://"):
        options["allow_http"] = "true"
    options.setdefault("region", "us-east-1")
    return options


def make_clients(scheme: str, bucket: str, prefix: str, options: Mapping[str, str]) -> Clients:
    """The obstore clients; `InvalidInputError` for unknown options or missing credentials."""
    own = {name: options.get(name, default) for name, default in _OWN.items()}
    rest: dict[str, Any] = {name: value for name, value in options.items() if name not in _OWN}
    if not bucket:
        raise InvalidInputError("the URL names no bucket", name="BAD_ARGUMENTS", hint="Write s3://bucket/prefix")
    make: Callable[..., Client]
    if scheme == "s3":
        make = S3Store
        rest = _s3_config(bucket, rest)
    else:
        make = GCSStore if scheme == "gs" else AzureStore
    common: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {
            "allow_http": truth(own["allow_http"], "option allow_http"),
            "timeout": f"{own['timeout_s']}s",
            "connect_timeout": f"{own['connect_timeout_s']}s",
        },
    }
    retries = whole_number(own, "max_retries", 6)
    try:
        once = make(bucket, **rest, **common, retry_config=_retry_config(0))
        patient = make(bucket, **rest, **common, retry_config=_retry_config(retries))
    except (BaseError, ValueError, TypeError) as problem:
        message = str(problem).split("\n\nDebug source", 1)[0]
        raise InvalidInputError(
            f"the options for {scheme}://{bucket} are not valid: {message}",
            name="BAD_ARGUMENTS",
            hint="Options are named as obstore's (access_key_id, secret_access_key, endpoint, region, …)",
        ) from problem
    return Clients(once, patient)


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """The value of a numeric option; BAD_ARGUMENTS if it is not a whole number."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdecimal()):
        raise InvalidInputError(f"option {name} is '{text}', not a whole number", name="BAD_ARGUMENTS")
    return int(text)


def _retry_config(retries: int) -> Any:
    return {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=120),
        "backoff": {
            "init_backoff": timedelta(milliseconds=50),
            "max_backoff": timedelta(seconds=2),
            "base": 2,
        },
    }


def _s3_config(bucket: str, options: dict[str, Any]) -> dict[str, Any]:
    config = dict(options)
    no_metadata_service = truth(str(config.pop("ec2_metadata_disabled", "false")), "option ec2_metadata_disabled")
    for name in ("skip_signature", "virtual_hosted_style_request"):
        if name in config:
            config[name] = truth(str(config[name]), f"option {name}")
    # Custom endpoints rarely have a DNS name for each bucket.
    config.setdefault("virtual_hosted_style_request", "endpoint" not in config)
    key, secret = config.pop("access_key_id", None), config.pop("secret_access_key", None)
    if bool(key) != bool(secret):
        raise _no_credentials(bucket, "an access key id and a secret access key go together")
    if key and secret:
        # As a provider, because obstore would otherwise add the AWS_SESSION_TOKEN of this process's environment.
        identity = {
            "access_key_id": key,
            "secret_access_key": secret,
            "token": config.pop("session_token", None),
            "expires_at": None,
        }
        config["credential_provider"] = lambda: identity
    elif not config.get("skip_signature") and not any("token_file" in name or "container" in name for name in config):
        endpoint = config.get("metadata_endpoint", "http://169.254.169.254")
        if no_metadata_service or not _answers(endpoint):
            raise _no_credentials(bucket, "no credentials were given, and this machine has no role")
    return config


def _answers(endpoint: str) -> bool:
    """Whether a machine's metadata service can be reached; obstore alone would try for three minutes."""
    parts = urlsplit(endpoint)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), timeout=1).close()
    except OSError:
        return False
    return True


def _no_credentials(bucket: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"s3://{bucket} cannot be opened: {reason}",
        name="S3_ERROR",
        hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give the options access_key_id and "
        "secret_access_key, or skip_signature=true for a public bucket",
    )
