"""File ids: what Pyrogram writes in the form of the Bot API is read back, and no text breaks the reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrogram.file_id import FileId, FileType, ThumbnailSource

from peik.integrations.tl import NOWHERE, FileAddress, read_file_id

_LONG = st.integers(min_value=-(2**63), max_value=2**63 - 1)


@given(
    kind=st.sampled_from([FileType.DOCUMENT, FileType.VIDEO, FileType.VOICE, FileType.PHOTO]),
    media_id=_LONG,
    access_hash=_LONG,
    reference=st.binary(max_size=300),
    dc_id=st.integers(1, 5),
)
def test_a_file_id_is_read_as_it_was_written(
    kind: FileType, media_id: int, access_hash: int, reference: bytes, dc_id: int
) -> None:
    text = FileId(
        file_type=kind,
        dc_id=dc_id,
        media_id=media_id,
        access_hash=access_hash,
        file_reference=reference,
        thumbnail_source=ThumbnailSource.THUMBNAIL,
        thumbnail_file_type=kind,
        thumbnail_size="x",
        volume_id=0,
        local_id=0,
    ).encode()
    assert read_file_id(text) == FileAddress(id=media_id, access_hash=access_hash, reference=reference, dc_id=dc_id)


@given(st.text())
def test_any_text_is_read_without_a_surprise(text: str) -> None:
    assert isinstance(read_file_id(text), FileAddress)


@pytest.mark.parametrize("text", ["", "A", "AAAA", "ünreadable", "AgADAgAD" * 8])
def test_what_is_no_file_id_leads_nowhere(text: str) -> None:
    assert read_file_id(text) == NOWHERE
