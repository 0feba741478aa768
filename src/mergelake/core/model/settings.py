"""Table settings: ClickHouse's MergeTree settings that have an effect here, with its names and defaults.

A table stores its explicit settings as text; `TableSettings(values)` validates and types them. `accepted_settings` has
ClickHouse's other settings. Unknown names are refused (UNKNOWN_SETTING) with the most similar known one.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mergelake.core.base.errors import error
from mergelake.core.model.accepted_settings import ACCEPTED, REFUSED


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    default: int | float | str
    """Default value; its type is that of the setting."""
    description: str
    """For `system.merge_tree_settings` and the documentation: Markdown, one line."""


MIB = 1 << 20
GIB = 1 << 30

_TABLE = (
    Setting("index_granularity", 8192, "Most rows of a granule"),
    Setting(
        "index_granularity_bytes", 10 * MIB, "Most bytes of a granule; 0: every granule has `index_granularity` rows"
    ),
    Setting("min_bytes_for_wide_part", 0, "Parts of fewer bytes in memory are written in the layout Compact; 0: none"),
    Setting("min_rows_for_wide_part", 0, "Parts of fewer rows are written in the layout Compact; 0: none"),
    Setting("part_profile", "classic", "`'classic'`, or `'modern'` for the part format of ClickHouse 25.11 and newer"),
    Setting("min_bytes_for_full_part_storage", 10 * MIB, "Parts of fewer bytes are stored as one object (packed)"),
    Setting(
        "max_bytes_to_share_object", MIB, "Packed parts of one insert of up to this many bytes share objects; 0: none"
    ),
    Setting("max_shared_object_bytes", 16 * MIB, "Most bytes of an object that parts share"),
    Setting(
        "min_compress_block_size",
        65536,
        "At a mark, a compressed block ends if it has this many bytes before compression",
    ),
    Setting("max_compress_block_size", MIB, "Most bytes of a compressed block, before compression"),
    Setting(
        "default_compression_codec",
        "",
        "Codec of columns that have no CODEC of their own; empty: LZ4, and ZSTD(3) in parts of `min_bytes_for_zstd`",
    ),
    Setting(
        "min_bytes_to_split_merge",
        4 * GIB,
        "Merges in Spark whose source parts have this many bytes are cut into slices by the primary key, a task each; "
        "0: none",
    ),
    Setting("merge_slice_bytes", GIB, "Bytes of the source parts of a slice of a merge, about; 0: no merge is cut"),
    Setting(
        "min_bytes_for_zstd",
        400 * MIB,
        "Without `default_compression_codec`, parts of this many bytes before compression are written with ZSTD(3), "
        "smaller ones with LZ4; 0: all with LZ4",
    ),
    Setting(
        "max_bytes_to_merge_at_max_space_in_pool", 150 * GIB, "Largest sum of the bytes of the source parts of a merge"
    ),
    Setting(
        "merge_with_ttl_timeout",
        14400,
        "Seconds after a merge of a partition that removes expired rows until a TTL asks for the next one there",
    ),
    Setting(
        "merge_with_recompression_ttl_timeout",
        14400,
        "Seconds after a merge of a partition for `TTL … RECOMPRESS` until a TTL asks for the next one there",
    ),
    Setting("ttl_only_drop_parts", False, "Nodes drop parts of which no row stays, and make no merge for single rows"),
    Setting("max_number_of_merges_with_ttl_in_pool", 2, "Merges that TTLs ask for that a node runs at once"),
    Setting("max_parts_to_merge_at_once", 100, "Most source parts of a merge; 0: no limit"),
    Setting("min_parts_to_merge_at_once", 0, "Fewest source parts of a merge"),
    Setting("merge_selector_base", 5.0, "How many times larger the sum of a merge is than its largest source"),
    Setting("merge_selector_window_size", 1000, "How many parts of a partition the selector looks at"),
    Setting(
        "merge_selector_enable_heuristic_to_remove_small_parts_at_right",
        True,
        "Leave a very small last part out of a merge",
    ),
    Setting(
        "merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once",
        True,
        "Merge fewer parts at once when a partition has few",
    ),
    Setting(
        "merge_selector_heuristic_to_lower_max_parts_to_merge_at_once_exponent",
        5,
        "Exponent used by `merge_selector_enable_heuristic_to_lower_max_parts_to_merge_at_once`",
    ),
    Setting(
        "min_age_to_force_merge_seconds",
        0,
        "Merge parts that are all older than this many seconds, whatever their sizes; 0: off",
    ),
    Setting(
        "min_age_to_force_merge_on_partition_only",
        False,
        "`min_age_to_force_merge_seconds` applies to whole partitions only",
    ),
    Setting("parts_to_delay_insert", 1000, "Number of active parts of a partition from which inserts are delayed"),
    Setting("parts_to_throw_insert", 3000, "Number of active parts of a partition from which inserts are refused"),
    Setting(
        "max_parts_in_total",
        100_000,
        "Number of active parts of all partitions from which inserts are refused; 0: no limit",
    ),
    Setting("max_partitions_to_read", -1, "Most partitions that a SELECT may read; -1: no limit"),
    Setting("max_delay_to_insert", 1, "Longest delay of an insert, in seconds"),
    Setting("max_partitions_per_insert_block", 100, "Most partitions that one insert may touch; 0: no limit"),
    Setting("max_insert_block_size", 1_048_449, "Most rows of a block of an insert, and so of a part that it writes"),
    Setting("max_insert_block_bytes", 256 * MIB, "Most bytes of a block of an insert"),
    Setting(
        "non_replicated_deduplication_window",
        0,
        "Number of inserts without a token whose rows are remembered for deduplication; 0: none",
    ),
    Setting(
        "replicated_deduplication_window",
        10_000,
        "Accepted, no effect: the last 10,000 inserts with a token are remembered",
    ),
    Setting(
        "replicated_deduplication_window_seconds",
        3600,
        "Accepted, no effect: inserts are forgotten by number, not by age",
    ),
    Setting(
        "min_age_to_apply_mutations_seconds",
        10,
        "Nodes rewrite parts for mutations once the oldest one is this many seconds old; readers apply them at once",
    ),
    Setting(
        "mutations_to_apply_early",
        10,
        "Number of pending mutations from which nodes rewrite parts without waiting",
    ),
    Setting(
        "number_of_mutations_to_throw",
        1000,
        "Number of unfinished mutations from which further ones are refused; 0: no limit",
    ),
    Setting(
        "immutable_partitions",
        "",
        "A condition over `_partition_id`, or columns by which the table is partitioned: "
        "[partitions for which it is true](partitions.md#immutable-partitions) are not changed. Empty: none",
    ),
    Setting("merge_max_block_size", 8192, "Accepted, no effect"),
    Setting("merge_max_chunk_bytes", 64 * MIB, "Bytes of the key range that a merge holds in memory at a time"),
    Setting(
        "deduplicate_merge_projection_mode",
        "throw",
        "What merges that remove or combine rows do with projections: `'rebuild'` or `'drop'`; `'throw'`: such a table "
        "has none",
    ),
    Setting(
        "lightweight_mutation_projection_mode",
        "throw",
        "What DELETE FROM does with projections: `'rebuild'` or `'drop'`; `'throw'`: it is refused where there are any",
    ),
    Setting(
        "merge_upload_policy",
        "auto",
        "`'direct'`: merges write to the store; `'volatile'`: to the disk of a node first, and to the store within "
        "`write_amplification_target`; `'auto'`: `'volatile'` while a node with a disk of its own lives",
    ),
    Setting(
        "max_bytes_to_merge_volatile",
        4 * GIB,
        "Largest sum of the bytes of the source parts of a merge on the disk of a node",
    ),
    Setting(
        "write_amplification_target",
        2.1,
        "Bytes that inserts and merges in the background write to the store, by bytes inserted, where merges are "
        "volatile; 0: no target, each merge is uploaded at once",
    ),
    Setting("merge_selector_direct_base", 15.0, "Accepted, no effect: `write_amplification_target` decides"),
    Setting(
        "volatile_upload_age_seconds",
        600,
        "Upload the volatile parts of a partition without inserts for this many seconds, and for four times as long as "
        "the last ones were apart",
    ),
    Setting(
        "volatile_peer_reads",
        True,
        "1: nodes that listen serve the bytes of their volatile parts to readers with `read_volatile = 'peers'`; 0: "
        "they do not",
    ),
    Setting(
        "parts_to_upload_volatile",
        900,
        "Number of parts of a partition in the store from which merges write more than `write_amplification_target`",
    ),
    Setting(
        "volatile_lease_seconds",
        60,
        "Seconds without news of a node after which another node builds its volatile parts",
    ),
    Setting("optimize_on_insert", True, "Apply the engine's merge rule to each inserted block"),
    Setting(
        "allow_dimensions_outside_sorting_key",
        False,
        "Let an AggregatingMergeTree have columns that are neither in a key nor aggregated; they take the first row",
    ),
    Setting(
        "allow_experimental_replacing_merge_with_cleanup",
        False,
        "Let `OPTIMIZE TABLE … FINAL CLEANUP` remove rows of a ReplacingMergeTree that are marked deleted",
    ),
    Setting(
        "old_parts_lifetime", 480, "Accepted, no effect: `history_retention_seconds` and `gc_grace_seconds` decide"
    ),
    Setting(
        "history_retention_seconds",
        7 * 86400,
        "How long older versions can be read, in seconds; `gc_grace_seconds` at least",
    ),
    Setting(
        "retention_max_bytes",
        10 * GIB,
        "Most bytes of replaced and dropped parts kept for older versions, unless `retention_max_ratio` allows more",
    ),
    Setting(
        "retention_max_ratio", 1.0, "The same as a multiple of the bytes of the active parts; the larger limit counts"
    ),
    Setting(
        "gc_grace_seconds",
        86400,
        "Seconds between noting an object as unused and deleting it; an insert or merge that takes longer may fail",
    ),
    Setting("checkpoint_interval", 64, "Number of log entries between checkpoints"),
    Setting("allow_nullable_key", False, "Allow Nullable columns in keys"),
    Setting("compress_marks", False, "Accepted, no effect: `part_profile` decides"),
    Setting("compress_primary_key", False, "Accepted, no effect: `part_profile` decides"),
    Setting("ratio_of_defaults_for_sparse_serialization", 1.0, "Accepted, no effect: no column is written sparse"),
    Setting("enable_mixed_granularity_parts", True, "Accepted, no effect"),
    Setting("storage_policy", "default", "Accepted, no effect: only `'default'`"),
)

TABLE_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _TABLE}
"""Every table setting by name."""


class TableSettings:
    """Validated and typed table settings: `settings["index_granularity"]`."""

    def __init__(self, values: Mapping[str, str | int | float | bool] | None = None) -> None:
        """Sizes may be text (`'10Mi'`, `'100G'`).

        Raises UNKNOWN_SETTING, ClickHouse's error for an invalid value, and NOT_IMPLEMENTED for a refused setting.
        """
        self._values: dict[str, int | float | str] = {
            name: _typed(name, value) for name, value in (values or {}).items()
        }

    def __getitem__(self, name: str) -> int | float | str:
        return self._values.get(name, TABLE_SETTINGS[name].default)

    def integer(self, name: str) -> int:
        """The value of an integer setting."""
        value = self[name]
        assert isinstance(value, int)
        return value

    def number(self, name: str) -> float:
        """The value of a numeric setting."""
        return float(self[name])

    def text(self, name: str) -> str:
        """The value of a text setting."""
        return str(self[name])

    def as_text(self) -> dict[str, str]:
        """The explicit settings as text, as they are stored in the log."""
        return {name: str(value) for name, value in self._values.items()}


def is_table_setting(name: str) -> bool:
    """Whether a table may have the setting."""
    return name in TABLE_SETTINGS or name in ACCEPTED or name in REFUSED


def kind_of_setting(name: str) -> str:
    """`flag`, `size`, `positive`, `number` or `text`. Raises UNKNOWN_SETTING with the most similar name."""
    if name in ACCEPTED:
        return ACCEPTED[name]
    if name in REFUSED:
        return "text"
    setting = TABLE_SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, [*TABLE_SETTINGS, *ACCEPTED, *REFUSED], n=1)
        hint = f"Maybe you meant {near[0]}" if near else "system.merge_tree_settings lists what there is"
        raise error("UNKNOWN_SETTING", f"Unknown setting '{name}' for storage MergeTree", hint)
    if isinstance(setting.default, bool):
        return "flag"
    if isinstance(setting.default, int):
        return "positive" if name in _POSITIVE else "size"
    return "number" if isinstance(setting.default, float) else "text"


_POSITIVE = ("index_granularity", "merge_max_block_size", "checkpoint_interval")
_SIZE = re.compile(r"\+?(\d+)(k|ki|K|Ki|M|Mi|G|Gi|T|Ti)?", re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """The integer that ClickHouse reads from `10`, `10k` (thousands) or `10Ki` (multiples of 1024).

    >>> parse_size("10Mi"), parse_size("100G")
    (10485760, 100000000000)
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    unit = match.group(2) or ""
    number: int = int(match.group(1)) * (1024 if unit[1:] else 1000) ** _POWERS[unit[:1].lower()]
    return number


@lru_cache(1024, typed=True)
def _typed(name: str, value: str | float | bool) -> int | float | str:
    """The value converted to the setting's type, booleans to 1 and 0."""
    kind = kind_of_setting(name)
    if kind == "text":
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if name in REFUSED and text != REFUSED[name][0]:
            taken, hint = REFUSED[name]
            if text.lower() != {"0": "false", "1": "true"}.get(taken):
                raise error("NOT_IMPLEMENTED", f"The table setting {name} = {text or repr('')} is not supported", hint)
        return text
    typed = _number(name, kind, value)
    if name == "max_partitions_to_read" and typed == -1:
        return typed
    if typed < 0:
        raise error("CANNOT_CONVERT_TYPE", f"Setting {name} cannot be {value}: it is negative")
    if kind == "positive" and typed < 1:
        raise error("BAD_ARGUMENTS", f"Setting {name} cannot be {value}: it must be greater than 0")
    if (kind == "flag" and typed > 1) or typed >= 1 << 64:
        raise error("CANNOT_CONVERT_TYPE", f"Setting {name} cannot be {value}: it is out of range")
    return typed


def truth(text: str, what: str) -> bool:
    """The boolean `true`, `1`, `false` or `0`, in any case. Raises BAD_ARGUMENTS, which names `what`."""
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower())
    if value is None:
        raise error("BAD_ARGUMENTS", f"{what} is '{text}', which is neither true nor false", "Write true or false")
    return value


def _whole(name: str, text: str) -> int:
    return -1 if name == "max_partitions_to_read" and text == "-1" else parse_size(text)


def _number(name: str, kind: str, value: str | float | bool) -> int | float:
    if not isinstance(value, str):
        if kind == "flag" and value > 1:
            return 2  # out of range, also where int() would truncate it to 1
        return float(value) if kind == "number" else int(value)
    if kind == "flag":
        flag = {"1": 1, "0": 0, "true": 1, "false": 0}.get(value.lower())
        if flag is None:
            raise error("CANNOT_PARSE_BOOL", f"Setting {name} is 1 or 0, not '{value}'")
        return flag
    try:
        number = float(value) if kind == "number" else _whole(name, value)
    except ValueError:
        number = None
    if number is not None and math.isfinite(number):
        return number
    if number is not None:
        raise error("CANNOT_PARSE_NUMBER", f"Setting {name} must be finite, got '{value}'")
    if not value:
        raise error("ATTEMPT_TO_READ_AFTER_EOF", f"Setting {name} wants a number, got an empty text")
    if value[:1] == "-":
        raise error("CANNOT_PARSE_NUMBER", f"Setting {name} cannot be negative, got '{value}'")
    hint = "Write it plainly, or with k, M, G, T (thousands) or Ki, Mi, Gi, Ti (of 1024)" if kind != "number" else ""
    raise error("CANNOT_PARSE_INPUT_ASSERTION_FAILED", f"Setting {name} wants a number, got '{value}'", hint)
