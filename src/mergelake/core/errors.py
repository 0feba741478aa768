"""Public path of `mergelake.core.base.errors`."""

from mergelake.core.base.errors import (
    CLICKHOUSE_CODES as CLICKHOUSE_CODES,
    ConflictError as ConflictError,
    CorruptDataError as CorruptDataError,
    FencedError as FencedError,
    InternalError as InternalError,
    InvalidInputError as InvalidInputError,
    MergelakeError as MergelakeError,
    NotFoundError as NotFoundError,
    UnavailableError as UnavailableError,
    UnsupportedError as UnsupportedError,
    error as error,
)
