"""What a load is told: settings of its producers, and where it writes; what cannot be is refused beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from click.testing import CliRunner

from pipeline.__main__ import main
from pipeline.load.job import LoadOptions, check_producer_config
from pipeline.load.progress import LineAddress
from pipeline.producer.settings import producer_settings
from pipeline.run_files import deliveries_uri, is_loaded, write_json
from pipeline.summary import update_summary


def options(run: Path, **config: str) -> LoadOptions:
    named = {key.replace("_", "."): value for key, value in config.items()}
    return LoadOptions("127.0.0.1:1", run, linger_ms=5.0, producer_config=named)


def test_the_users_settings_win_by_either_name(tmp_path: Path) -> None:
    own = options(tmp_path, queue_buffering_max_ms="50", batch_size="65536")
    check_producer_config(own)
    client = producer_settings(
        own.producer_settings(LineAddress("", 0, b"")).client_config(), None, None
    ).client
    assert client["linger.ms"] == "50"
    assert client["batch.size"] == "65536"
    assert client["acks"] == "all"


def test_less_than_idempotence_is_possible_when_it_is_said(tmp_path: Path) -> None:
    check_producer_config(options(tmp_path, acks="1", enable_idempotence="false"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--deliveries", "runs/001"), "'runs/001' is no URI"),
        (("--out", "s3a://bucket/runs/001"), "executors can write to an object store by --deliveries"),
    ],
)
def test_folders_that_cannot_be_are_refused(tmp_path: Path, arguments: tuple[str, str], reason: str) -> None:
    line = ["load", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(main, [*line, *arguments])
    assert done.exit_code == 2
    assert reason in " ".join(done.stderr.split())


def test_a_load_counts_as_finished_by_what_can_be_seen_of_its_deliveries(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    assert not is_loaded(here)
    for run, deliveries in ((here, None), (elsewhere, "s3a://bucket/runs/001")):
        run.mkdir()
        write_json(run / "config.json", {"options": {"deliveries": deliveries}})
        assert not is_loaded(run)
    update_summary(elsewhere, "load", {})
    (here / "deliveries.parquet").mkdir()
    assert not is_loaded(here), "there are parts"
    (here / "deliveries.parquet" / "_SUCCESS").touch()
    assert is_loaded(here) and is_loaded(elsewhere)
    assert deliveries_uri(here) == (here / "deliveries.parquet").as_uri()
    assert deliveries_uri(elsewhere) == "s3a://bucket/runs/001"


def test_deliveries_elsewhere_are_another_folder_for_each_run(tmp_path: Path) -> None:
    one = LoadOptions("127.0.0.1:1", tmp_path / "one", deliveries="s3a://bucket/runs/001/")
    assert one.for_run(tmp_path / "fill").deliveries == "s3a://bucket/runs/001-fill"
    assert options(tmp_path).for_run(tmp_path / "fill").deliveries is None


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("acks=1", "acks=1 contradicts enable.idempotence=true"),
        ("compression.type=brotli", "librdkafka does not accept the settings"),
        ("no.such.setting=1", "no.such.setting"),
        ("message.timeout.ms=5", "give --message-timeout-ms"),
        ("metadata.broker.list=other:9092", "give --bootstrap-server"),
        ("transactional.id=mine", "a workload says"),
        ("batch.size", "a setting is KEY=VALUE"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(
    tmp_path: Path, setting: str, reason: str
) -> None:
    run = tmp_path / "run"
    arguments = ["load", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--out", str(run)]
    done = CliRunner().invoke(main, [*arguments, "--producer-config", setting])
    assert done.exit_code == 2
    assert reason in " ".join(done.stderr.split())
    assert not run.exists()
