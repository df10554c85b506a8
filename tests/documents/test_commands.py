"""The commands that documents tell people to type exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.documents.command_lines import NoSuchCommandLine, check, command_lines
from tests.documents.markdown import blocks, code_spans, documents, table_cells
from tests.integration.test_java_groups import class_path
from tests.storage.test_kafka_reads_our_files import TOOL
from tests.test_tidy import ROOT

TABLE = ROOT / "docs" / "commands.md"


def complaint(line: str, *, mention: bool = False) -> str:
    try:
        check(line, mention=mention)
    except NoSuchCommandLine as error:
        return str(error)
    return ""


def commands_of_the_table(program: str) -> list[str]:
    spans = [span.content for cell in table_cells(TABLE) for span in cell if span.type == "code_inline"]
    return [span for span in spans if span.startswith(program)]


def test_what_varve_takes_and_what_it_does_not() -> None:
    """Else the tests below would prove nothing."""
    good = (
        "varve topic create T --partitions 3",
        "varve consume T -n 10 -e",
        "varve cluster features",
        "varve cluster features set transaction.version=1",
        "varve topic describe a b --format=json",
    )
    bad = {
        "varve topic make T": "has no command make",
        "varve topic compact": "names is missing",
        "varve topic create T --parts 3": "No such option",
        "varve topic create T --partitions": "requires an argument",
        "varve produce T U": "takes no U",
        "varve topic": "needs a command",
    }
    assert not [why for line in good if (why := complaint(line))]
    for line, why in bad.items():
        assert why.lower() in complaint(line).lower()
    assert complaint("varve topic", mention=True) == ""
    script = (
        "x=1 .venv/bin/varve topic list | wc -l  # varve nothing\nseq 3 | varve produce T && echo varve\n"
    )
    assert list(command_lines(script)) == ["varve topic list", "varve produce T"]


def test_the_varve_commands_of_the_table_exist() -> None:
    commands = commands_of_the_table("varve ")
    assert len(commands) > 50
    assert not [why for line in commands if (why := complaint(line))]


def test_the_varve_commands_in_blocks_of_code_exist() -> None:
    lines = [
        (f"{document.relative_to(ROOT)}:{block.line}", line)
        for document in documents()
        for block in blocks(document)
        if block.language in ("", "sh", "bash", "shell")
        for line in command_lines(block.text)
    ]
    assert len(lines) > 40
    assert not [(where, why) for where, line in lines if (why := complaint(line))]


def test_the_varve_commands_in_sentences_exist() -> None:
    """`varve cluster up, status, down` would not: each stands for itself."""
    spans = [
        (str(document.relative_to(ROOT)), span)
        for document in documents()
        for span in code_spans(document)
        if re.match(r"varve [a-z]", span)
    ]
    assert not [(where, why) for where, span in spans if (why := complaint(span, mention=True))]


# -- Kafka's ---------------------------------------------------------------------------------------------

_TOOLS = "org.apache.kafka.tools"
#: kafka-NAME.sh -> the class that it starts. What formats a directory needs it before it prints its options.
CLASSES = {
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "features": f"{_TOOLS}.FeatureCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": f"{_TOOLS}.TopicCommand",
    "transactions": f"{_TOOLS}.TransactionsCommand",
}


@cache
def options_of(tool: str, verb: str) -> frozenset[str]:
    words = [CLASSES[tool], *([verb] if verb else []), "--help"]
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path(), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]*", done.stdout + done.stderr))


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(TOOL).exists() or not shutil.which("java"), reason="no Java, or no Kafka jars here"
)
def test_the_kafka_commands_of_the_table_have_these_options() -> None:
    commands = commands_of_the_table("kafka-")
    assert len(commands) > 40
    wrong = []
    for command in commands:
        if command.startswith("kafka-server-start.sh"):
            continue  # takes a file, and has no options of this kind
        script, *words = command.split()
        tool = script.removeprefix("kafka-").removesuffix(".sh")
        verb = words[0] if words and not words[0].startswith("-") else ""
        known = options_of(tool, verb)
        wrong += [f"{command}: {word}" for word in words if word.startswith("--") and word not in known]
    assert not wrong
