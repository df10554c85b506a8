"""Where settings come from: defaults < file < environment < flags; later ones win key by key.

The file has the syntax of server.properties (Java's Properties). The environment follows the rule of Apache's
container images: `KAFKA_` and the key with `.` as `_`, `_` as `__`, `-` as `___`; and CLUSTER_ID.

Nothing is silently dropped. A key that nobody knows is an error in a file or a flag, with the nearest name, and a
warning in the environment, where images and shells set variables of their own. A key that Kafka knows and Varve has no
use for is accepted and named in one note.
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
#: Every name that sets something, the coarser ones included, with the attribute it sets.
_ATTRIBUTES: dict[str, str] = {
    name: attribute
    for attribute, key in NODE_KEYS.items()
    for name in (key.name, *(scaled for scaled, _ in key.scaled))
}

#: Kafka settings whose promise we would break by passing them over: name -> (harmless values, why not).
_REFUSED: dict[str, tuple[frozenset[str], str]] = {
    "authorizer.class.name": (frozenset({""}), "access control is not built yet, everybody would be let in"),
    "ssl.client.auth": (
        frozenset({"", "none", "requested"}),
        "TLS is not built yet, nobody would be checked",
    ),
    "security.inter.broker.protocol": (frozenset({"", "PLAINTEXT"}), "only PLAINTEXT is built so far"),
    "remote.log.storage.system.enable": (frozenset({"", "false"}), "there is no tiered storage"),
    "create.topic.policy.class.name": (frozenset({""}), "Java policies cannot run here"),
    "alter.config.policy.class.name": (frozenset({""}), "Java policies cannot run here"),
}


class Given(NamedTuple):
    value: str
    #: For messages: "server.properties", "KAFKA_NODE_ID", "--override".
    origin: str


@dataclass
class Loaded:
    config: NodeConfig
    #: Lines worth a warning: unknown variables of the environment, listeners that only this machine can reach.
    warnings: list[str] = field(default_factory=list)
    #: Lines for information.
    notes: list[str] = field(default_factory=list)


def parse_properties(source: str) -> dict[str, str]:
    """The pairs of a Java properties text. The last of several values of a key counts.

    Comments begin with # or !; a backslash at the end continues a line; `\\:`, `\\=`, `\\ ` and `\\uXXXX` are escapes.
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
        assert match is not None, "the pattern takes the empty text"
        pairs[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return pairs


def _unescape(part: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, part)


def key_of_variable(name: str) -> str:
    """The setting that a `KAFKA_*` variable names: KAFKA_NODE_ID -> node.id."""
    parts = re.split("(_+)", name.removeprefix("KAFKA_").lower())
    separators = {"_": ".", "__": "_", "___": "-"}
    return "".join(separators.get(part, part) for part in parts)


def read_environment(environ: Mapping[str, str]) -> tuple[dict[str, Given], list[str], list[str]]:
    """(settings, warnings, notes) from `KAFKA_*` and CLUSTER_ID."""
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
    notes = [f"for Kafka's start scripts, not used here: {', '.join(unused)}"] if unused else []
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
    from_flags = {key: Given(value, "the command line") for key, value in (flags or {}).items()}
    _refuse_unknown(from_flags)
    given |= from_environment
    given |= from_flags

    for key, (harmless, reason) in _REFUSED.items():
        if key in given and given[key].value not in harmless:
            raise ConfigError(f"{key} in {given[key].origin}: {reason}")
    unused = [key for key in sorted(given) if key not in _ATTRIBUTES]
    if unused:
        notes.append(f"settings of Kafka that Varve has no use for: {', '.join(unused)}")

    values: dict[str, Any] = {}
    for attribute, declared in NODE_KEYS.items():
        found = _pick(declared, given)
        if found is not None:
            values[attribute] = found
    config = NodeConfig(**values, given=frozenset(key for key in given if key in _ATTRIBUTES))
    config = _complete(config)
    config.validate()
    return Loaded(config, warnings + _advice(config), notes)


def _pick(key: Key, given: Mapping[str, Given]) -> Any:
    """The value of a key from its fine name or else its coarser ones; None where none is given."""
    for name, factor in [(key.name, 1), *key.scaled]:
        if name not in given:
            continue
        try:
            value = key.parse(given[name].value.strip())
            # -1 says "no bound" in every unit.
            return value * factor if isinstance(value, int) and factor != 1 and value > 0 else value
        except ValueError as error:
            raise ConfigError(f"{name} in {given[name].origin}: {error}") from None
    return None


def _complete(config: NodeConfig) -> NodeConfig:
    """Fill in what follows from other settings: listener names in upper case, a lone node as its own voter."""
    config = dataclasses.replace(
        config,
        controller_listener=config.controller_listener.upper(),
        inter_broker_listener=config.inter_broker_listener.upper(),
    )
    if config.quorum_voters:
        return config
    own = next((x for x in config.listeners if x.name == config.controller_listener), None)
    if own is None:
        return config  # validate says so in plain words
    others = [str(server) for server in config.quorum_bootstrap if server.port != own.port]
    if others or len(config.quorum_bootstrap) > 1:
        raise ConfigError(
            "controller.quorum.bootstrap.servers names several nodes; Varve needs to know the voters: set "
            "controller.quorum.voters to 1@host:port,2@host:port,... on every node"
        )
    address = config.quorum_bootstrap[0] if config.quorum_bootstrap else config.advertised_address(own)
    return dataclasses.replace(config, quorum_voters={config.node_id: Address(*address)})


def _advice(config: NodeConfig) -> list[str]:
    """What is allowed and yet likely to disappoint."""
    return [
        f"{listener} advertises localhost: clients on other machines will be sent to themselves "
        "(set advertised.listeners)"
        for listener in config.client_listeners
        if listener.host in WILDCARD_HOSTS and listener.name not in config.advertised
    ]


def _refuse_unknown(given: Mapping[str, Given]) -> None:
    for key, (_, origin) in given.items():
        if key not in _ATTRIBUTES and not is_kafka_key(key):
            raise ConfigError(f"{key} in {origin}: there is no such setting{_nearest(key)}")


def _nearest(key: str) -> str:
    found = difflib.get_close_matches(key, [*_ATTRIBUTES, *CURRENT_KEYS], n=1)
    return f"; did you mean {found[0]}?" if found else ""
