"""Rules of engines that make one row of several, applied to values that come in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.engines.rules.combining import GroupStream
from mergelake.engines.rules.mode import Rule


def combined(rule: Rule, groups: Sequence[Sequence[Any]], cuts: Sequence[int], kind: pa.DataType) -> list[Any]:
    """What a rule makes of groups of values that come in arrays which end at `cuts`."""
    values = pa.array([value for group in groups for value in group], kind)
    begins = np.array([at == 0 for group in groups for at in range(len(group))], np.bool_)
    stream, out = GroupStream(rule), []
    for start, end in itertools.pairwise([0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]):
        out += stream.push(values.slice(start, end - start), begins[start:end]).to_pylist()
    last = stream.finish()
    return out + (last.to_pylist() if last is not None else [])
