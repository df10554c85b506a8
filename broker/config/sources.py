"""The sources of settings: defaults, file, environment, flags. For each key the last source that sets it wins.

The file has the syntax of server.properties (Java's Properties). Environment variables are named as in Apache's
container images: `KAFKA_` and the key with `.` as `_`, `_` as `__`, `-` as `___`. There is also CLUSTER_ID.

No setting is dropped silently. An unknown key in a file or a flag is an error that names the nearest known key. In the
environment it is a warning, because images and shells set variables of their own. A key of Kafka that has no effect
here is accepted and named in a note.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.config.kafka_keys import CURRENT_KEYS, LAUNCHER_VARIABLES, is_kafka_key
from broker.config.node_config import WILDCARD_HOSTS, NodeConfig
from broker.config.values import Address, ConfigError, Key, keys_of

NODE_KEYS: dict[str, Key] = keys_of(NodeConfig)
#: Name -> the attribute that it sets, for all names of settings, names in coarser units included.
_ATTRIBUTES: dict[str, str] = {
    name: attribute
    for attribute, key in NODE_KEYS.items()
    for name in (key.name, *(scaled for scaled, _ in key.scaled))
}

#: Settings of Kafka that would be dangerous to ignore: name -> (values that are accepted, why others are not).
_REFUSED: dict[str, tuple[frozenset[str], str]] = {
    "authorizer.class.name": (frozenset({""}), "access control is not built yet, everybody would be let in"),
    "ssl.client.auth": (
        frozenset({"", "none", "requested"}),
        "TLS is not built yet, no client would be authenticated",
    ),
    "security.inter.broker.protocol": (frozenset({"", "PLAINTEXT"}), "only PLAINTEXT is built so far"),
    "remote.log.storage.system.enable": (frozenset({"", "false"}), "there is no tiered storage"),
    "create.topic.policy.class.name": (frozenset({""}), "Java policies cannot run here"),
    "alter.config.policy.class.name": (frozenset({""}), "Java policies cannot run here"),
}

#: Settings that destroy data when they are true. A file or a variable could bring them along unnoticed.
_ONLY_ON_THE_COMMAND_LINE = ("varve.unsafe.uncoordinated.compaction",)


class Given(NamedTuple):
    value: str
    #: For messages: "server.properties", "KAFKA_NODE_ID", "the command line".
    origin: str


@dataclass
class Loaded:
    config: NodeConfig
    #: Warnings: unknown environment variables, listeners that only this machine can reach.
    warnings: list[str] = field(default_factory=list)
    #: Lines for information.
    notes: list[str] = field(default_factory=list)


def parse_properties(source: str) -> dict[str, str]:
    """The pairs of a file in the syntax of Java properties. Of several values of a key the last one counts.

    Comments begin with # or !. A backslash at the end continues a line. `\\:`, `\\=`, `\\ ` and `\\uXXXX` are escapes.
    """
    pairs: dict[str, str] = {}
    pending = ""
    for raw in [*source.splitlines(), ""]:
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        match = re.match(r"((?:\\.|[^\\:=\s])*)[ \t\f]*[:=]?[ \t\f]*(.*)", line)
        assert match is not None, "the pattern matches the empty string"
        pairs[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return pairs


def _unescape(part: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, part)


def key_of_variable(name: str) -> str:
    """The key that a `KAFKA_*` variable sets: KAFKA_NODE_ID -> node.id."""
    parts = re.split("(_+)", name.removeprefix("KAFKA_").lower())
    separators = {"_": ".", "__": "_", "___": "-"}
    return "".join(separators.get(part, part) for part in parts)


def read_environment(environ: Mapping[str, str]) -> tuple[dict[str, Given], list[str], list[str]]:
    """(settings, warnings, notes) of `KAFKA_*` and CLUSTER_ID."""
    given: dict[str, Given] = {}
    warnings: list[str] = []
    unused: list[str] = []
    for name in sorted(environ):
        if name == "CLUSTER_ID":
            given.setdefault("cluster.id", Given(environ[name], name))
        if not name.startswith("KAFKA_"):
            continue
        key = key_of_variable(name)
        if name in LAUNCHER_VARIABLES:
            unused.append(name)
        elif key in _ATTRIBUTES or is_kafka_key(key):
            given[key] = Given(environ[name], name)
        else:
            warnings.append(f"{name} is not used: there is no setting {key}{_nearest(key)}")
    notes = [f"variables for Kafka's start scripts, not used here: {', '.join(unused)}"] if unused else []
    return given, warnings, notes


def load(
    *,
    properties: Mapping[str, str] | None = None,
    properties_name: str = "the file",
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Loaded:
    """The configuration of a node from its sources. Raises ConfigError."""
    from_environment, warnings, notes = read_environment(environ or {})
    given: dict[str, Given] = {
        key: Given(value, properties_name) for key, value in (properties or {}).items()
    }
    _refuse_unknown(given)
    _refuse_unsafe({**given, **from_environment})
    from_flags = {key: Given(value, "the command line") for key, value in (flags or {}).items()}
    _refuse_unknown(from_flags)
    given |= from_environment
    given |= from_flags

    for key, (harmless, reason) in _REFUSED.items():
        if key in given and given[key].value not in harmless:
            raise ConfigError(f"{key} in {given[key].origin}: {reason}")
    unused = [key for key in sorted(given) if key not in _ATTRIBUTES]
    if unused:
        notes.append(f"settings of Kafka without effect here: {', '.join(unused)}")

    values: dict[str, Any] = {}
    for attribute, declared in NODE_KEYS.items():
        found = _given_value(declared, given)
        if found is not None:
            values[attribute] = found
    config = NodeConfig(**values, given=frozenset(key for key in given if key in _ATTRIBUTES))
    config = _derive_settings(config)
    config.validate()
    return Loaded(config, warnings + _listener_warnings(config), notes)


def _given_value(key: Key, given: Mapping[str, Given]) -> Any:
    """The value of a setting, from its name or else from its names in coarser units. None if no source sets it."""
    for name, factor in [(key.name, 1), *key.scaled]:
        if name not in given:
            continue
        try:
            value = key.parse(given[name].value.strip())
            # -1 means no bound in every unit.
            return value * factor if isinstance(value, int) and factor != 1 and value > 0 else value
        except ValueError as error:
            raise ConfigError(f"{name} in {given[name].origin}: {error}") from None
    return None


def _derive_settings(config: NodeConfig) -> NodeConfig:
    """Set what follows from other settings: listener names in upper case, and a single node as its own voter."""
    config = dataclasses.replace(
        config,
        controller_listener=config.controller_listener.upper(),
        inter_broker_listener=config.inter_broker_listener.upper(),
    )
    if config.quorum_voters:
        return config
    own = next((x for x in config.listeners if x.name == config.controller_listener), None)
    if own is None:
        return config  # `validate` raises the error.
    others = [str(server) for server in config.quorum_bootstrap if server.port != own.port]
    if others or len(config.quorum_bootstrap) > 1:
        raise ConfigError(
            "controller.quorum.bootstrap.servers names several nodes; Varve needs to know the voters: set "
            "controller.quorum.voters to 1@host:port,2@host:port,... on every node"
        )
    address = config.quorum_bootstrap[0] if config.quorum_bootstrap else config.advertised_address(own)
    return dataclasses.replace(config, quorum_voters={config.node_id: Address(*address)})


def _listener_warnings(config: NodeConfig) -> list[str]:
    """Listeners that are valid, but that only clients of this machine can use."""
    return [
        f"{listener} advertises localhost, so clients on other machines cannot use it "
        "(set advertised.listeners)"
        for listener in config.client_listeners
        if listener.host in WILDCARD_HOSTS and listener.name not in config.advertised
    ]


def _refuse_unknown(given: Mapping[str, Given]) -> None:
    for key, (_, origin) in given.items():
        if key not in _ATTRIBUTES and not is_kafka_key(key):
            raise ConfigError(f"{key} in {origin}: there is no such setting{_nearest(key)}")


def _refuse_unsafe(given: Mapping[str, Given]) -> None:
    for key in _ONLY_ON_THE_COMMAND_LINE:
        if key in given and given[key].value.strip().lower() != "false":
            raise ConfigError(
                f"{key} in {given[key].origin}: it destroys data, so only `varve start --override` can set it"
            )


def _nearest(key: str) -> str:
    found = difflib.get_close_matches(key, [*_ATTRIBUTES, *CURRENT_KEYS], n=1)
    return f"; did you mean {found[0]}?" if found else ""
