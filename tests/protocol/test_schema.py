"""The promises of a declared message class."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceResponse
from protocol.schema import INT32, Message, Versions, array, field


def test_constructors_need_fields_without_a_default() -> None:
    with pytest.raises(TypeError, match="index"):
        PartitionProduceResponse()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no_such_field"):
        PartitionProduceResponse(index=1, no_such_field=2)  # type: ignore[call-arg]


def test_array_defaults_are_not_shared() -> None:
    one, other = PartitionProduceResponse(index=1), PartitionProduceResponse(index=1)
    assert one == other
    one.record_errors.append(None)  # type: ignore[arg-type]
    assert other.record_errors == []
    assert one != other


def test_messages_are_mutable_slotted_and_readable() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    request.topics = None
    assert repr(request).startswith("MetadataRequest(topics=None, allow_auto_topic_creation=True")
    with pytest.raises(AttributeError):
        request.no_such_field = 1  # type: ignore[attr-defined]


def test_the_first_instance_of_a_class_is_like_all_others() -> None:
    class Fresh(Message):
        numbers: list[int] = field(array(INT32), default_factory=list)
        count: int = field(INT32, default=3)

    assert [Fresh(count=1).count, Fresh().count, Fresh().numbers] == [1, 3, []]


def test_version_ranges_are_parsed() -> None:
    assert [Versions.parse(text) for text in ("none", "3", "3+", "3-11")] == [
        (0, -1), (3, 3), (3, 32767), (3, 11),
    ]  # fmt: skip


def test_nothing_is_generated_at_import() -> None:
    """So that the start is fast: neither codecs nor the libraries of single compression codecs are loaded."""
    script = (
        "import sys, protocol.messages, protocol.peer, protocol.records.validate, protocol.codec as codec\n"
        "assert not codec._decoders and not codec._encoders, 'a codec was generated'\n"
        "heavy = {'zstandard', 'lz4.frame', 'cramjam', 'crcmod', 'dataclasses', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_generated_source_can_be_printed() -> None:
    command = [sys.executable, "-m", "protocol.codec", "Produce", "9"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "def decode(buf, pos, room=" in printed
    assert "def encode(message):" in printed
