"""Our scenarios for kafkajs, which npm installs below build/."""

from __future__ import annotations

from pathlib import Path

from tests.compat.report import HERE, SuiteResult
from tests.compat.suite import ROOT, Missing, Target, last_lines, need, read_json_lines, run

VERSION = "2.2.4"
FOLDER = ROOT / "build" / "compat" / "kafkajs"
TIMEOUT_S = 600


def run_suite(target: Target, date: str) -> SuiteResult:
    try:
        _install()
    except Missing as missing:
        return SuiteResult("kafkajs", f"kafkajs {VERSION}", date, str(missing))
    command: list[str | Path] = ["node", HERE / "kafkajs_scenarios.js", target.bootstrap, *target.only]
    environment = {"NODE_PATH": str(FOLDER / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    ran = run(command, target.logs / "kafkajs.log", TIMEOUT_S, environment=environment)
    return SuiteResult("kafkajs", f"kafkajs {VERSION}", date, "", read_json_lines(target, ran))


def _install() -> None:
    need("node", "sudo apt-get install -y nodejs npm")
    npm = need("npm", "sudo apt-get install -y npm")
    if (FOLDER / "node_modules" / "kafkajs" / "package.json").exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    ran = run([npm, "install", "--prefix", FOLDER, f"kafkajs@{VERSION}"], FOLDER.with_suffix(".log"), 300)
    if ran.code != 0:
        raise Missing(f"npm could not install kafkajs: {last_lines(ran.output)}")
