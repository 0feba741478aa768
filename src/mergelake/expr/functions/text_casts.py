"""Texts that may not be readable as a type: what CAST to a Nullable type, toTOrNull and toTOrZero make of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mergelake.core.convert.text_read import try_read_text
from mergelake.core.types import types as t
from mergelake.expr.values import Data, Vec, data_from_arrow


def gives_null(source: t.DataType, target: t.DataType) -> bool:
    """Whether CAST makes NULL of a text that it cannot read as the other type, or that does not fit into it."""
    is_text = isinstance(t.inner_type(source), t.String)
    return is_text and t.is_nullable(target) and not isinstance(t.inner_type(target), (t.String, t.Bool, t.Enum))


def read_or_null(texts: Vec, target: t.DataType) -> Vec:
    """Values of the plain type `target`, NULL where a text cannot be read."""
    data, bad = read(texts.data, target)
    return Vec(data, ~bad if texts.valid is None else texts.valid & ~bad, texts.codes)


def read(texts: pa.Array, target: t.DataType) -> tuple[Data, npt.NDArray[np.bool_]]:
    """Values of the plain type `target`, and a flag for each text that cannot be read."""
    parsed, bad = try_read_text(texts, target)
    return data_from_arrow(parsed, target), bad
