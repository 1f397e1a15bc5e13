"""The stored sets of releases by symbol."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit.abi.symbol_table import SymbolTable, build_table, hash_name, unpack_table
from patchkit.errors import ObjectFormatError

_NAMES = st.text(st.characters(codec="ascii"), min_size=1, max_size=8)
_EXPORTS = st.dictionaries(
    st.sampled_from(["2.0", "2.1", "2.2+cpu", "3.0"]),
    st.dictionaries(st.sampled_from(["libc10.so", "libtorch_cpu.so", "libtorch_cuda.so"]), st.sets(_NAMES), max_size=3),
    min_size=1,
)


def _table(exports: dict[str, dict[str, set[str]]]) -> SymbolTable:
    return build_table(
        {
            release: {library: [hash_name(name) for name in names] for library, names in libraries.items()}
            for release, libraries in exports.items()
        }
    )


@given(_EXPORTS)
def test_stored_form_gives_the_same_answers(exports: dict[str, dict[str, set[str]]]) -> None:
    table = _table(exports)
    again = unpack_table(table.pack(), "t")
    assert (again.releases, again.libraries, len(again)) == (table.releases, table.libraries, len(table))
    everything = {name for libraries in exports.values() for names in libraries.values() for name in names}
    for name in everything:
        having = tuple(
            release for release, libraries in exports.items() if any(name in names for names in libraries.values())
        )
        assert again.releases_of(name) == having
        assert set(again.libraries_of(name)) == {
            library for libraries in exports.values() for library, names in libraries.items() if name in names
        }
    assert again.pack() == table.pack()


def test_unknown_name_is_in_none() -> None:
    table = _table({"1": {"a.so": {"f"}}})
    assert table.releases_of("g") == ()
    assert table.libraries_of("g") == ()
    assert not table.has("g", "1")
    assert table.hashes_of("1") == {hash_name("f")}


def test_hash_is_the_documented_one() -> None:
    # BLAKE2b with 8 bytes of digest, little-endian: a change would make every stored table worthless.
    assert hash_name("_ZN3c104cuda9SetDeviceEa") == hash_name(b"_ZN3c104cuda9SetDeviceEa") == 0xF7F3288516F71632


def test_table_of_schema_1_stays_readable() -> None:
    head = {"schema": 1, "count": 1, "releases": ["9.0"], "libraries": ["a.so"], "patterns": [1]}
    columns = hash_name("f").to_bytes(8, "little") + b"\0\0" + b"\1"
    table = unpack_table(json.dumps(head).encode() + b"\n" + zlib.compress(columns), "t")
    assert table.releases_of("f") == ("9.0",)


_GOOD = _table({"1": {"a.so": {"f", "g"}}, "2": {"a.so": {"f"}}}).pack()
_HEAD, _, _STREAM = _GOOD.partition(b"\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        _HEAD,
        _GOOD[:-8],
        _STREAM,
        _HEAD.replace(b'"count":2', b'"count":3') + b"\n" + _STREAM,
        _HEAD.replace(b'"count":2', b'"count":99999999999') + b"\n" + _STREAM,
        _HEAD.replace(b'"count":2', b'"count":-1') + b"\n" + _STREAM,
        _HEAD.replace(b'"schema":1', b'"schema":2') + b"\n" + _STREAM,
        _HEAD.replace(b'"patterns":[1,3]', b'"patterns":[]') + b"\n" + _STREAM,
        _HEAD.replace(b'"patterns":[1,3]', b'"patterns":[1,-3]') + b"\n" + _STREAM,
        b"[]\n" + _STREAM,
        b"[" * 100000 + b"\n" + _STREAM,
    ],
)
def test_damaged_table_is_an_error(content: bytes) -> None:
    with pytest.raises(ObjectFormatError, match="not a symbol table"):
        unpack_table(content, "t")
