"""Where a node's cluster secret comes from, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.security import secret_file
from broker.security.cluster_secret import (
    NO_SECRET,
    ClusterSecret,
    SecretError,
    new_secret,
    parse_secret,
    refusal_to_listen,
)
from broker.security.secret_file import MAX_FILE_BYTES, load_secret, write_secret

TEXT = "a secret of some length"
OTHER = "another secret of some length"


def written(folder: Path, data: str | bytes, mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)
    return str(path)


def test_a_new_secret_is_one_that_is_accepted() -> None:
    text = new_secret(random.Random(1).randbytes)
    assert parse_secret(text, "").own == text.encode()
    assert len(text) == 44


def test_a_written_secret_is_its_owners_and_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    write_secret(file, TEXT)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_secret(file, OTHER)
    assert load_secret(str(file), None).own == TEXT.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_the_source_is_a_file_or_the_variable(tmp_path: Path) -> None:
    file = written(tmp_path, f"  {TEXT}\n")
    assert load_secret(None, None) == NO_SECRET
    assert not NO_SECRET
    expected = ClusterSecret(TEXT.encode())
    assert load_secret(file, None) == load_secret(None, TEXT + "\n") == load_secret(file, TEXT) == expected
    assert expected


def test_a_second_secret_is_accepted_and_not_used(tmp_path: Path) -> None:
    secret = load_secret(written(tmp_path, f"{TEXT}\n\n{OTHER}\n"), None)
    assert secret.own == TEXT.encode()
    assert secret.accepted == (TEXT.encode(), OTHER.encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "is empty"),
        (" \n\t\n", "is empty"),
        ("fifteen bytes..", "less than 16 bytes"),
        (f"{TEXT}\nshort", "less than 16 bytes"),
        (f"{TEXT}\n{OTHER}\nand a third one, why", "has 3 lines"),
        (b"\xff" * 32, "is no text"),
        ("a" * (MAX_FILE_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_no_secret_is_refused(tmp_path: Path, data: str | bytes, message: str) -> None:
    with pytest.raises(SecretError, match=message):
        load_secret(written(tmp_path, data), None)


def test_two_sources_that_differ_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="differ"):
        load_secret(written(tmp_path, TEXT), OTHER)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(SecretError, match=r"chmod 600 .*/secret"):
        load_secret(written(tmp_path, TEXT, mode), None)


def test_secrets_that_a_container_is_given_may_be_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, TEXT, 0o444)
    with pytest.raises(SecretError, match="others"):
        load_secret(file, None)
    monkeypatch.setattr(secret_file, "MOUNTED_SECRETS", (tmp_path,))
    assert load_secret(file, None).own == TEXT.encode()


@pytest.mark.parametrize("name", ["missing/file", "", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(name: str) -> None:
    with pytest.raises(SecretError, match="cannot be read"):
        load_secret(name, None)


def test_no_message_shows_a_secret(tmp_path: Path) -> None:
    """Somebody may take the setting for the secret itself."""
    for file, variable in ((TEXT, None), (written(tmp_path, TEXT), OTHER), (None, "a" * 15)):
        with pytest.raises(SecretError) as refused:
            load_secret(file, variable)
        assert not any(text in str(refused.value) for text in (TEXT, OTHER, "a" * 15))
    assert TEXT not in repr(ClusterSecret(TEXT.encode()))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "::1"])
def test_a_node_without_a_secret_listens_on_this_machine_only(host: str) -> None:
    assert refusal_to_listen(NO_SECRET, host, "CONTROLLER") is None


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.168.0.1", "kafka-1", "localhost.example", "[::1]"]
)
def test_beyond_this_machine_a_secret_is_needed(host: str) -> None:
    reason = refusal_to_listen(NO_SECRET, host, "CONTROLLER")
    assert reason is not None
    assert "varve cluster secret --out FILE" in reason
    assert "CONTROLLER://localhost" in reason
    assert refusal_to_listen(ClusterSecret(TEXT.encode()), host, "CONTROLLER") is None
