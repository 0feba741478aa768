"""hasToken: whether a text has a word, a run of ASCII letters, digits and bytes above 127, between separators.

Source: ClickHouse, `HasTokenImpl.h`, `StringSearcher.h` (`TokenSearcher`).
"""

from __future__ import annotations

import re

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.functions.strings import as_binary, regex_kernel
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

_EDGE = r"[\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]"
"""Separators: ASCII characters other than letters and digits."""
_SEPARATOR = re.compile(_EDGE.encode())


def _has_token(name: str, *, ignore_case: bool) -> None:
    @function(name, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        text, token = args
        if not isinstance(text.type, (t.String, t.FixedString)) or not isinstance(token.type, t.String):
            raise illegal(name, text.type, token.type)
        if not isinstance(token.value, bytes):
            raise error("NOT_IMPLEMENTED", f"The token of {name} must be constant")
        if not token.value or _SEPARATOR.search(token.value):
            raise error("BAD_ARGUMENTS", "Needle must not contain whitespace or separator characters")
        pattern = f"(^|{_EDGE})".encode() + token.value + f"({_EDGE}|$)".encode()
        test, binary = regex_kernel(b"(?s)" + pattern, ignore_case=ignore_case), as_binary(text.type)
        return Resolved(t.UINT8, lambda x, _: test(binary(x)), cost=60)


_has_token("hasToken", ignore_case=False)
_has_token("hasTokenCaseInsensitive", ignore_case=True)
