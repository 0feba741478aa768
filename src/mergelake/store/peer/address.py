"""`HOST:PORT`, as users write it and as it is stored in a log."""

from __future__ import annotations

from mergelake.core.base.errors import error


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; an IPv6 host is in brackets. Raises BAD_ARGUMENTS.

    >>> parse_address("[::1]:9440"), parse_address("lake-1:0")
    (('::1', 9440), ('lake-1', 0))
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not bare or (":" in bare and not bracketed) or not 0 <= number <= 65535 or not bare.isprintable():
        raise error("BAD_ARGUMENTS", f"'{text}' is no address", "Write HOST:PORT, such as 10.0.0.5:9440 or [::1]:9440")
    return bare, number


def address_of(host: str, port: int) -> str:
    """Inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
