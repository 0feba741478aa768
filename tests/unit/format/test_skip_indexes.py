"""Granules of skip indexes: the specification's vectors, pieces of any size, damage."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import CorruptDataError, MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.indexes.skip_bloom import decode_filters, hash_values
from mergelake.format.indexes.skip_files import (
    IndexFileWriter,
    index_stem,
    index_stems,
    is_index_file,
    packed_members,
    parse_index_marks,
)
from mergelake.format.indexes.skip_index import granule_builder
from mergelake.format.indexes.skip_minmax import decode_bounds
from mergelake.format.indexes.skip_set import decode_sets
from mergelake.format.indexes.skip_text import (
    decode_text,
    filter_of,
    may_hold,
    pieces_of,
    pieces_of_like,
    pieces_of_part,
)
from mergelake.format.indexes.skip_types import Bloom, MinMax, TextBloom, ValueSet, bloom_shape, parse_index_type
from mergelake.format.kernels.memory import region

CHANCES = {
    0.282: (3, 2), 0.25: (3, 2), 0.23: (19, 13), 0.225: (19, 13), 0.221: (19, 13), 0.2: (4, 2), 0.18: (4, 2),
    0.15: (4, 3), 0.14: (5, 2), 0.12: (5, 2), 0.1: (5, 3), 0.05: (7, 3), 0.025: (8, 4), 0.01: (10, 5), 0.005: (12, 5),
    0.001: (15, 7), 0.0005: (16, 10), 0.0001: (19, 13), 1e-5: (19, 13), 0.283: (2, 2), 1.0: (2, 2),
}  # fmt: skip


def test_a_chance_of_false_positives_gives_clickhouses_bits_and_hashes():
    assert {chance: bloom_shape(chance) for chance in CHANCES} == CHANCES


def test_index_types_are_read_and_nonsense_is_refused_with_clickhouses_code():
    assert parse_index_type("minmax") == MinMax()
    assert parse_index_type("set( 100 )") == ValueSet(100)
    assert parse_index_type("bloom_filter") == Bloom(8, 4)
    assert parse_index_type("ngrambf_v1(3, 256, 2, 7)") == TextBloom(3, 256, 2, 7)
    assert parse_index_type("tokenbf_v1(256, 2, 7)") == TextBloom(0, 256, 2, 7)
    wrong = {
        "foo": 80, "set": 80, "set(-1)": 80, "set(1, 2)": 80, "set('a')": 80, "bloom_filter(2)": 36,
        "bloom_filter(1)": 36, "bloom_filter(1.5)": 36, "bloom_filter('x')": 36, "bloom_filter(0.1, 2)": 42,
        "tokenbf_v1(1, 2)": 36,
        "tokenbf_v1('a', 2, 3)": 36, "tokenbf_v1(0, 2, 3)": 36, "tokenbf_v1(10, 0, 3)": 36, "ngrambf_v1(1, 2, 3)": 36,
        "ngrambf_v1(0, 10, 2, 3)": 36, "hypothesis": 127, "text": 48, "": 62,
    }  # fmt: skip
    for text, code in wrong.items():
        with pytest.raises(MergelakeError) as caught:
            parse_index_type(text)
        assert caught.value.code == code, text


@pytest.mark.parametrize(
    "text", ["minmax", "set(0)", "bloom_filter", "tokenbf_v1(16, 2, 0)", "ngrambf_v1(2, 16, 1, 0)"]
)
def test_a_granule_of_several_of_the_part_is_that_of_their_rows(text: str) -> None:
    kind, values = parse_index_type(text), pa.array([b"a b", b"c", b"a", b"", b"xy z", b"q"], pa.binary())
    several = granule_builder(kind, [parse_type("String")], 2)
    one = granule_builder(kind, [parse_type("String")], 1)
    found = [builder.feed([values], np.array(cuts)) for builder, cuts in ((several, [1, 3, 4, 6]), (one, [3, 6]))]
    assert found[0][0] == found[1][0]
    assert found[0][1].tolist() == found[1][1].tolist()


def test_files_are_named_after_the_escaped_index():
    assert index_stem("a b") == "skp_idx_a%20b"
    assert index_stems("a b") == ("skp_idx_a%20b", "skp_idx_a b")
    assert len(index_stem("x" * 200)) == 32
    assert is_index_file("skp_idx_a.idx2")
    assert is_index_file("skp_idx.packed")
    assert not is_index_file("skp_idx_a.mrk2")
    assert not is_index_file("primary.idx")


ROWS = 500
ARRAYS = {
    "Int32": pa.array([(i * 7919) % 50 - 20 for i in range(ROWS)], pa.int32()),
    "String": pa.array([b"word %d of %d" % (i % 13, i // 40) for i in range(ROWS)], pa.binary()),
    "Nullable(Float64)": pa.array([None if i % 5 == 0 else float(i % 9) for i in range(ROWS)], pa.float64()),
}
KINDS = ["minmax", "set(0)", "set(20)", "bloom_filter", "tokenbf_v1(40, 2, 1)", "ngrambf_v1(3, 40, 2, 1)"]


@pytest.mark.parametrize("text", KINDS)
@pytest.mark.parametrize("granularity", [1, 3])
def test_granules_do_not_depend_on_how_the_rows_come(text: str, granularity: int):
    kind = parse_index_type(text)
    names = ["String"] if isinstance(kind, TextBloom) else list(ARRAYS)
    arrays, types = [ARRAYS[name] for name in names], [parse_type(name) for name in names]
    cuts = np.append(np.arange(32, ROWS, 32), ROWS)

    def built(step: int) -> tuple[bytes, list[int]]:
        builder = granule_builder(kind, types, granularity)
        data, ends = b"", []
        for start in range(0, ROWS, step):
            stop = min(start + step, ROWS)
            own = cuts[(cuts > start) & (cuts <= stop)] - start
            for more, at in [builder.feed([array.slice(start, stop - start) for array in arrays], own)]:
                ends += (at + len(data)).tolist()
                data += more
        more, at = builder.finish()
        return data + more, ends + (at + len(data)).tolist()

    whole = built(ROWS)
    assert len(whole[1]) == -(-len(cuts) // granularity)
    assert all(built(step) == whole for step in (1, 7, 32, 100))


def test_minmax_and_set_come_back_and_damage_is_told():
    types = [parse_type("Int32"), parse_type("String"), parse_type("Nullable(Float64)")]
    cuts = np.append(np.arange(50, ROWS, 50), ROWS)
    data, ends = granule_builder(MinMax(), types, 1).feed(list(ARRAYS.values()), cuts)
    (low, high), *_ = decode_bounds(data, types, len(ends))
    values = ARRAYS["Int32"].to_numpy().reshape(-1, 50)
    assert low.to_pylist() == values.min(axis=1).tolist()
    assert high.to_pylist() == values.max(axis=1).tolist()
    data, ends = granule_builder(ValueSet(0), types, 2).feed(list(ARRAYS.values()), cuts)
    found = decode_sets(region(data), types, len(ends))
    rows = list(zip(*(array.to_pylist() for array in ARRAYS.values()), strict=True))
    expected = [row for start in range(0, ROWS, 100) for row in dict.fromkeys(rows[start : start + 100])]
    assert list(zip(*(array.to_pylist() for array in found.columns), strict=True)) == expected
    for size in (3, 20, len(data) - 1):
        with pytest.raises(CorruptDataError):
            decode_sets(region(data[:size]), types, len(ends))
    with pytest.raises(CorruptDataError):
        decode_sets(region(b"\xff" * 8 + data), types, len(ends))


def test_a_bloom_filter_holds_what_was_put_in():
    kind, data_type = Bloom(10, 5), parse_type("String")
    cuts = np.array([250, 500])
    data, ends = granule_builder(kind, [data_type], 1).feed([ARRAYS["String"]], cuts)
    granules = decode_filters(region(data), kind, 1, len(ends))
    hashes = hash_values(ARRAYS["String"], data_type)
    assert granules.may_hold(0, hashes[:250])[0].all()
    assert granules.may_hold(0, hashes[250:])[1].all()
    others = hash_values(pa.array([b"no %d" % i for i in range(1000)], pa.binary()), data_type)
    assert granules.may_hold(0, others).mean() < 0.05
    with pytest.raises(CorruptDataError):
        decode_filters(region(data[:-1]), kind, 1, 2)


def test_text_filters_hold_the_pieces_of_their_strings():
    kind = TextBloom(0, 200, 3, 7)
    data, ends = granule_builder(kind, [parse_type("String")], 1).feed([ARRAYS["String"]], np.array([40, 500]))
    granules = decode_text(region(data), kind, 1, len(ends))[:, 0]
    assert may_hold(granules, filter_of([b"word", b"12", b"of"], kind)).all()
    assert may_hold(granules, filter_of([b"11", b"0"], kind))[0]
    assert not may_hold(granules, filter_of([b"absent"], kind)).all()
    with pytest.raises(CorruptDataError):
        decode_text(region(data[:-1]), kind, 1, 2)


def test_constants_give_the_pieces_that_every_match_has():
    words, grams = TextBloom(0, 8, 1, 0), TextBloom(3, 8, 1, 0)
    assert pieces_of(b"Hello, w\xc3\xb6rld-1", words) == [b"Hello", b"w\xc3\xb6rld", b"1"]
    assert pieces_of("añoz".encode(), grams) == ["año".encode(), "ñoz".encode()]
    assert pieces_of(b"ab", grams) == []
    assert pieces_of_part(b"Serv", words, prefix=False, suffix=False) == []
    assert pieces_of_part(b" not re", words, prefix=False, suffix=False) == [b"not"]
    assert pieces_of_part(b"Service is", words, prefix=True, suffix=False) == [b"Service"]
    assert pieces_of_like(rb"%foo bar% x\_y z_ end", words) == [b"x", b"y", b"end"]
    assert pieces_of_like(rb"ab\%cd%efg_h", grams) == [b"ab%", b"b%c", b"%cd", b"efg"]


def test_marks_of_an_index_find_its_granules_and_lies_are_refused():
    writer = IndexFileWriter("i", MinMax(), parse_codec("LZ4"), min_block=100, max_block=300)
    granules = [bytes([i]) * (40 + i) for i in range(20)]
    for one in granules:
        writer.append(one, np.array([len(one)], np.int64))
    files: dict[str, bytes] = {}
    for name, data in [*writer.drain(), *writer.finish()]:
        files[name] = files.get(name, b"") + data
    assert {name: (d.size, len(files[name])) for name, d in writer.digests().items()} == {
        name: (len(data), len(data)) for name, data in files.items()
    }
    body = files["skp_idx_i.idx2"]
    marks = parse_index_marks("skp_idx_i.mrk2", files["skp_idx_i.mrk2"], len(body))
    assert len(marks) == 20
    for first in range(20):
        for end in range(first + 1, 21):
            start, stop = marks.byte_range(first, end, len(body))
            assert marks.plain(first, body[start:stop]).tobytes().startswith(b"".join(granules[first:end]))
    for broken in (files["skp_idx_i.mrk2"][:-1], b"\xff" * 24, (1 << 40).to_bytes(8, "little") + bytes(16)):
        with pytest.raises(CorruptDataError):
            parse_index_marks("skp_idx_i.mrk2", broken, len(body))


def test_members_of_a_packed_file_are_listed():
    data = b"\x01" + (1).to_bytes(8, "little") + b"\x01a" + b"".join(n.to_bytes(8, "little") for n in (40, 3, 9))
    assert packed_members(data) == {"a": (40, 3)}
    for broken in (b"\x07" + data[1:], data[:-1], data[:1] + b"\xff" * 8):
        with pytest.raises(CorruptDataError):
            packed_members(broken)
