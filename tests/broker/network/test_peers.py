"""Connections between nodes: who is let in, who is not, and what either is told."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.environment import Network, ProtocolFactory
from broker.membership.identity import StartError
from broker.network.accepted_peers import MAX_HANDSHAKES
from broker.network.dialled_peers import REFUSED_PAUSE_S, PeerLink
from broker.network.peers import HANDSHAKE_TIMEOUT_S, MAX_HANDSHAKE_FRAME_BYTES
from broker.scheduling.budget import LoopBudget
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.turn import Turn
from broker.security.cluster_secret import NO_SECRET, ClusterSecret
from broker.security.handshake import Acceptor, Dialler, Refusal
from broker.security.proofs import Authenticator
from protocol.errors import ErrorCode
from protocol.framing import FrameReader
from protocol.peer import Hello, HelloReply, Ping, decode_peer, encode_peer
from protocol.peer_frames import FrameCheck, plain_frame
from protocol.peer_handshake import (
    PEER_PROTOCOL_VERSION,
    AcceptorProof,
    DiallerProof,
    HandshakeChallenge,
    HandshakeMessage,
    HandshakeRequest,
    decode_handshake,
    encode_handshake,
)
from protocol.schema import NIL_UUID
from tests.broker.world import SECRET, World, empty, running
from tests.simulator.peer_speaker import PeerSpeaker

OTHER = ClusterSecret(b"the secret of another world")


def authenticator(secret: ClusterSecret = SECRET) -> Authenticator:
    return Authenticator(secret, bytes)


def connect(world: World, speaker: PeerSpeaker, node_id: int = 1, host: str = "stranger") -> PeerSpeaker:
    """... and wait until it is connected."""
    network = world.network.of(host)
    task = world.loop.create_task(network.connect(f"n{node_id}", 9093, lambda: speaker))
    world.wait(task.done)
    task.result()
    return speaker


def hello_of(world: World, node_id: int) -> Hello:
    return world.nodes[node_id].cluster.hello()


def introduced(world: World, as_node: int, to: int) -> PeerSpeaker:
    """A newer connection of a node, by somebody who knows the secret. The node itself cannot dial any more."""
    world.network.refuse(f"n{as_node}", f"n{to}")
    handshake = Dialler(authenticator(), as_node, to, f"n{to}:9093")
    speaker = connect(world, PeerSpeaker(handshake, hello_of(world, as_node)), to)
    world.wait(lambda: speaker.is_introduced)
    return speaker


def links(world: World) -> list[Any]:
    """The present connections between the nodes."""
    return [link._stream for node in world.nodes.values() for link in node.cluster.links.values()]


def whole(world: World) -> bool:
    return all(link.is_ready for node in world.nodes.values() for link in node.cluster.links.values())


class _Acceptor(asyncio.BufferedProtocol):
    """Listens as node 9, proves itself, and answers Hello with `answer`. `said` is what it is told."""

    def __init__(self, answer: Callable[[], HelloReply], secret: ClusterSecret = SECRET) -> None:
        self._answer = answer
        self._frames = FrameReader(1 << 16)
        self._handshake = Acceptor(authenticator(secret), 9)
        self._checks: tuple[FrameCheck, FrameCheck] | None = None
        self._transport: asyncio.Transport
        self.said: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        for frame, _ in self._frames.received(nbytes):
            if self._checks is not None:
                incoming, outgoing = self._checks
                self.said.append(decode_peer(incoming.open(frame)))
                self._transport.writelines(outgoing.seal(encode_peer(self._answer())))
                continue
            message = decode_handshake(frame)
            self.said.append(message)
            if isinstance(message, HandshakeRequest):
                reply = self._handshake.requested(message)
                assert isinstance(reply, HandshakeChallenge)
                self._transport.writelines(plain_frame(encode_handshake(reply)))
            elif isinstance(message, DiallerProof):
                proof = self._handshake.proved(message)
                if isinstance(proof, Refusal):
                    return
                self._checks = proof[1]
                self._transport.writelines(plain_frame(encode_handshake(proof[0])))


def _reply(error_code: int = 0) -> HelloReply:
    return HelloReply(
        error_code=error_code, cluster_id=None, node_id=9, directory_id=NIL_UUID, boot_id=NIL_UUID
    )


def _dialled(
    world: World, accept: Callable[[], asyncio.BufferedProtocol], network: Network | None = None
) -> PeerLink:
    """A link of node 1 to somebody who listens as node 9."""
    listening = world.loop.create_task(world.network.of("n9").listen("n9", 9093, accept))
    world.wait(listening.done)
    turn = Turn(world.loop, CommitDelay(world.loop.time, 0), LoopBudget(world.loop, world.loop.time))
    begin = partial(Dialler, authenticator(), 1, 9, "n9:9093")
    network = network or world.network.of("client")
    return PeerLink(9, "n9", 9093, network, turn, world.nodes[1].cluster, begin)


@pytest.mark.parametrize(
    ("error_code", "reason"),
    [(int(ErrorCode.UNSUPPORTED_VERSION), "UNSUPPORTED_VERSION"), (9999, "UNKNOWN_SERVER_ERROR")],
)
def test_a_refusal_is_logged_and_the_link_dials_again(error_code: int, reason: str) -> None:
    """A newer peer may refuse with an error code that this build does not know."""
    with running() as world, capture_logs() as logs:
        dialled: list[_Acceptor] = []

        def accept() -> _Acceptor:
            dialled.append(_Acceptor(lambda: _reply(error_code)))
            return dialled[-1]

        link = _dialled(world, accept)
        task = world.loop.create_task(link.run())
        world.wait(lambda: len(dialled) == 2, limit_s=2)
        task.cancel()
        refusals = [entry for entry in logs if entry["event"] == "refused by peer"]
        assert [entry["reason"] for entry in refusals] == [reason], "each reason is logged once"
        assert not link.is_ready


def test_a_peer_that_does_not_introduce_itself_is_disconnected() -> None:
    """Links whose handshake has succeeded stay open."""
    with running() as world:
        silent = connect(world, PeerSpeaker())
        streams = links(world)
        world.wait(lambda: silent.is_lost, limit_s=HANDSHAKE_TIMEOUT_S + 0.5)
        world.loop.run_for(3)
        assert links(world) == streams
        assert silent.bytes_told == 0


def test_a_slow_stranger_is_disconnected_in_time() -> None:
    """A byte now and then does not put off the deadline."""
    with running() as world:
        slow = connect(world, PeerSpeaker())
        for _ in range(int(HANDSHAKE_TIMEOUT_S / 0.1) + 2):
            if not slow.is_lost:
                slow.send_bytes(b"\0")
            world.loop.run_for(0.1)
        assert slow.is_lost
        assert slow.bytes_told == 0


def test_a_stranger_learns_nothing() -> None:
    """Whatever it says, it is told a nonce and the number of an error, and no name or id of the cluster."""
    with running() as world:
        streams = links(world)
        cluster_id = world.nodes[1].cluster_id
        assert cluster_id is not None
        hello = hello_of(world, 2)
        secrets = [cluster_id.encode(), hello.directory_id.bytes, hello_of(world, 1).directory_id.bytes,
                   hello.boot_id.bytes, hello_of(world, 1).boot_id.bytes]  # fmt: skip
        begin = HandshakeRequest(version=PEER_PROTOCOL_VERSION, has_secret=True, nonce=bytes(32))
        older = HandshakeRequest(version=3, has_secret=True, nonce=bytes(32))
        without = HandshakeRequest(version=PEER_PROTOCOL_VERSION, has_secret=False, nonce=bytes(32))
        forged = DiallerProof(node_id=2, target_id=1, address="n1:9093", proof=bytes(32))
        ping = Ping(number=1, boot_id=hello.boot_id, list_version=1, base_version=0, echo_number=0,
                    echo_boot_id=hello.boot_id, applied_version=0)  # fmt: skip

        def handshake(*messages: HandshakeMessage) -> bytes:
            return b"".join(b"".join(plain_frame(encode_handshake(message))) for message in messages)

        said = [
            b"".join(plain_frame(encode_peer(hello))),
            b"".join(plain_frame(encode_peer(ping))),
            handshake(begin, forged),
            handshake(begin) + b"".join(plain_frame(encode_peer(hello))),
            handshake(begin, begin),
            handshake(older),
            handshake(without),
            b"GET / HTTP/1.1\r\n\r\n",
        ]
        for data in said:
            stranger = connect(world, PeerSpeaker())
            stranger.send_bytes(data)
            world.wait(lambda stranger=stranger: stranger.is_lost)  # type: ignore[misc]
            for message in stranger.told:
                assert isinstance(message, HandshakeChallenge | AcceptorProof)
                told = b"".join(encode_handshake(message))
                assert not any(secret in told for secret in secrets)
                assert getattr(message, "message", None) is None
        assert links(world) == streams, "the nodes have noticed nothing"


def test_a_wrong_secret_is_refused_with_a_reason_on_both_sides() -> None:
    with running() as world, capture_logs() as logs:
        world.kill(3)
        world.secrets[3] = OTHER
        world.start(3)
        world.loop.run_for(3)
        node = world.nodes[3]
        assert not any(link.is_ready for link in node.cluster.links.values())
        reasons = {entry["reason"] for entry in logs if entry["event"] == "refused by peer"}
        assert reasons == {
            "it has another cluster secret than this node (varve.cluster.secret, VARVE_CLUSTER_SECRET)"
        }
        refused = {entry["reason"] for entry in logs if entry["event"] == "peer refused"}
        assert refused == {"it does not know the cluster secret (varve.cluster.secret, VARVE_CLUSTER_SECRET)"}
        # It is told the right one, and is one of them again.
        world.kill(3)
        world.secrets[3] = SECRET
        world.start(3)
        world.wait_ready(3)
        world.wait(lambda: whole(world))


def test_a_node_without_a_secret_does_not_listen_beyond_this_machine() -> None:
    with empty() as world:
        world.secrets[1] = NO_SECRET
        world.start(1)
        world.wait(world.starts[1].done)
        with pytest.raises(StartError, match="varve cluster secret --out FILE"):
            world.starts[1].result()


def test_nodes_of_one_machine_need_no_secret() -> None:
    """... and refuse who says that it has one."""
    with running(size=1, settings={"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"},
                 secret=NO_SECRET) as world:  # fmt: skip
        without = PeerSpeaker(Dialler(authenticator(NO_SECRET), 2, 1, "localhost:9093"))
        connect(world, without, host="n1")
        world.wait(lambda: without.outgoing is not None)
        having = PeerSpeaker()
        connect(world, having, host="n1")
        having.send_handshake(Dialler(authenticator(), 2, 1, "localhost:9093").begin())
        world.wait(lambda: having.is_lost)
        (challenge,) = having.told
        assert isinstance(challenge, HandshakeChallenge)
        assert challenge.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_a_secret_is_changed_without_a_pause() -> None:
    """Node by node; a majority is there all the while."""
    old, new = SECRET.own, b"the new secret of this world"
    with running() as world:
        world.create_topic("t")
        world.produce("t", b"before")
        for stage in (ClusterSecret(old, new), ClusterSecret(new, old), ClusterSecret(new)):
            for node_id in world.ids:
                world.stop(node_id)
                world.secrets[node_id] = stage
                world.start(node_id)
                world.wait_ready(node_id)
                world.wait(lambda: whole(world))
                world.produce("t", b"during")
        world.wait_equal("t")


def test_a_frame_before_hello_is_small() -> None:
    """A larger one is refused when its size is known, however little of it has come."""
    with running() as world:
        for size in (MAX_HANDSHAKE_FRAME_BYTES + 1, 100 << 20, 2**31 - 1):
            stranger = connect(world, PeerSpeaker())
            stranger.send_bytes(size.to_bytes(4, "big"))
            world.wait(lambda stranger=stranger: stranger.is_lost, limit_s=1)  # type: ignore[misc]
        # So it is between the proofs and the introduction.
        proved = connect(world, PeerSpeaker(Dialler(authenticator(), 2, 1, "n1:9093")))
        world.wait(lambda: proved.outgoing is not None)
        proved.send_bytes((MAX_HANDSHAKE_FRAME_BYTES + 1).to_bytes(4, "big"))
        world.wait(lambda: proved.is_lost, limit_s=1)


def test_strangers_cost_less_than_a_megabyte() -> None:
    """Hundreds of them, each with the largest frame that is not whole: few are kept, and who is at home gets in."""
    with running() as world, capture_logs() as logs:
        world.loop.run_for(1)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            strangers = []
            for _ in range(4 * MAX_HANDSHAKES):
                stranger = connect(world, PeerSpeaker())
                stranger.send_bytes(
                    MAX_HANDSHAKE_FRAME_BYTES.to_bytes(4, "big") + bytes(MAX_HANDSHAKE_FRAME_BYTES - 1)
                )
                strangers.append(stranger)
            world.loop.run_for(0.1)
            accepted = world.nodes[1].cluster._accepted
            assert len(accepted._in_handshake) == MAX_HANDSHAKES == sum(not x.is_lost for x in strangers)
            assert tracemalloc.get_traced_memory()[0] - before < 4 << 20, (
                "with the simulated network, and our side"
            )
        finally:
            tracemalloc.stop()
        assert sum(each._frames.pending_bytes for each in accepted._in_handshake) < 300_000
        # A node dials again in the middle of it.
        world.processes[2].call(world.nodes[2].cluster.links[1].reconnect)
        world.wait(lambda: world.nodes[2].cluster.links[1].is_ready, limit_s=1)
        world.loop.run_for(HANDSHAKE_TIMEOUT_S)
        assert all(x.is_lost for x in strangers)
        assert len({x["cause"] for x in logs if x["event"] == "peer refused"}) == 1


def test_a_connection_is_not_taken_over_by_strangers_of_other_addresses() -> None:
    """The oldest handshake of the busiest address ends, not the oldest of all."""
    with running() as world:
        patient = connect(world, PeerSpeaker(), host="elsewhere")
        strangers = [connect(world, PeerSpeaker()) for _ in range(2 * MAX_HANDSHAKES)]
        world.wait(lambda: sum(x.is_lost for x in strangers) == MAX_HANDSHAKES + 1)
        assert not patient.is_lost


def test_who_has_proved_itself_as_one_node_cannot_be_another() -> None:
    with running() as world, capture_logs() as logs:
        handshake = Dialler(authenticator(), 2, 1, "n1:9093")
        liar = connect(world, PeerSpeaker(handshake, hello_of(world, 3)))
        world.wait(lambda: liar.is_lost)
        assert "node 2 has proved itself and says that it is 3" in [x.get("reason") for x in logs]


def test_the_first_message_is_hello() -> None:
    with running() as world:
        hasty = connect(world, PeerSpeaker(Dialler(authenticator(), 2, 1, "n1:9093")))
        world.wait(lambda: hasty.outgoing is not None)
        hasty.send(_reply())
        world.wait(lambda: hasty.is_lost, limit_s=1)


def pings_heard(world: World, by: int) -> list[int]:
    """The numbers of those that this node hears from now on, in their order. Nothing else is made of them."""
    heard: list[int] = []

    def ping_received(node_id: int, ping: Ping) -> bool:
        del node_id
        heard.append(ping.number)
        return True

    world.nodes[by].cluster._host.ping_received = ping_received  # type: ignore[method-assign]
    return heard


def ping_of(world: World, node_id: int, number: int) -> Ping:
    return Ping(number=number, boot_id=hello_of(world, node_id).boot_id, list_version=1, base_version=0, echo_number=0,
                echo_boot_id=NIL_UUID, applied_version=0)  # fmt: skip


def test_an_older_connection_of_a_node_ends_before_a_newer_one_is_heard() -> None:
    """What was said before, and is still on its way, would be handled after what was said later."""
    with running() as world:
        older = introduced(world, 2, 1)
        heard = pings_heard(world, 1)
        held = world.network.stall("stranger", "n1")
        older.send(ping_of(world, 2, 901))
        world.loop.run_for(0.1)
        newer = PeerSpeaker(Dialler(authenticator(), 2, 1, "n1:9093"), hello_of(world, 2))
        connect(world, newer, host="n2 dials anew")
        world.wait(lambda: newer.is_introduced)
        newer.send(ping_of(world, 2, 902))
        world.loop.run_for(0.1)
        held()
        world.wait(lambda: older.is_lost)
        newer.send(ping_of(world, 2, 903))
        world.loop.run_for(0.1)
        assert [number for number in heard if number > 900] == [902, 903]


def test_an_older_connection_does_not_replace_a_newer_one() -> None:
    with running() as world:
        older = connect(world, PeerSpeaker(Dialler(authenticator(), 2, 1, "n1:9093")))
        world.wait(lambda: older.outgoing is not None)
        newer = introduced(world, 2, 1)
        older.send(hello_of(world, 2))
        world.wait(lambda: older.is_lost, limit_s=1)
        assert not older.is_introduced
        heard = pings_heard(world, 1)
        newer.send(ping_of(world, 2, 901))
        world.wait(lambda: 901 in heard, limit_s=1)


def test_who_does_not_get_through_its_introduction_leaves_no_trace() -> None:
    with running() as world, capture_logs() as logs:
        hasty = connect(world, PeerSpeaker(Dialler(authenticator(), 2, 1, "n1:9093")))
        world.wait(lambda: hasty.outgoing is not None)
        world.network.refuse("n2", "n1")
        held = world.network.stall("stranger", "n1")
        hasty.send(hello_of(world, 2))
        hasty.send_bytes(bytes(3))  # a part of the next frame
        world.loop.run_for(0.1)
        held()
        world.wait(lambda: hasty.is_lost)
        assert "a message before the answer to Hello" in [x.get("reason") for x in logs]
        introduced(world, 2, 1)


class _SlowToReturn:
    """As uvloop: `connect` returns some time after the connection was made, which may have ended by then."""

    def __init__(self, network: Network) -> None:
        self.listen = network.listen
        self._connect = network.connect

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.BaseTransport:
        transport = await self._connect(host, port, factory)
        await asyncio.sleep(0.01)
        return transport


def test_a_connection_that_ends_while_it_is_made_is_dialled_again() -> None:
    """And again: the link must not take an earlier one for the present one."""
    with running() as world:
        dialled: list[_Acceptor] = []

        class Closing(_Acceptor):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                self._transport.abort()

        def accept() -> _Acceptor:
            dialled.append(Closing(_reply))
            return dialled[-1]

        link = _dialled(world, accept, _SlowToReturn(world.network.of("client")))
        task = world.loop.create_task(link.run())
        world.loop.run_for(1)
        task.cancel()
        assert len(dialled) >= 5


@pytest.mark.parametrize("change", ["flip", "lose", "double", "swap", "foreign"])
def test_a_frame_that_is_not_the_next_one_closes_the_connection(change: str) -> None:
    """Nothing of it is believed, and nothing behind it."""
    with running() as world, capture_logs() as logs:
        speaker, other = introduced(world, 2, 1), introduced(world, 3, 1)
        heard = pings_heard(world, 1)
        assert speaker.outgoing is not None and other.outgoing is not None

        def ping(check: FrameCheck, number: int) -> bytes:
            return b"".join(check.seal(encode_peer(ping_of(world, 2, number))))

        one, two, three = (ping(speaker.outgoing, number) for number in (901, 902, 903))
        foreign = ping(other.outgoing, 904)
        flipped = bytearray(two)
        flipped[10] ^= 4
        sent = {
            "flip": [one, bytes(flipped), three],
            "lose": [one, three],
            "double": [one, one, two],
            "swap": [one, three, two],
            "foreign": [one, foreign, two],
        }[change]
        speaker.send_bytes(b"".join(sent))
        world.wait(lambda: speaker.is_lost)
        assert [number for number in heard if number > 900] == [901]
        assert len([x for x in logs if x["event"] == "peer connection closed: bad message"]) == 1


def test_a_peer_that_closes_every_connection_is_not_dialled_in_a_loop() -> None:
    with running() as world:
        dialled: list[_Acceptor] = []

        class Closing(_Acceptor):
            def buffer_updated(self, nbytes: int) -> None:
                super().buffer_updated(nbytes)
                if any(isinstance(x, Hello) for x in self.said):
                    self._transport.close()

        def accept() -> _Acceptor:
            dialled.append(Closing(_reply))
            return dialled[-1]

        task = world.loop.create_task(_dialled(world, accept).run())
        world.loop.run_for(1)
        task.cancel()
        assert 5 <= len(dialled) <= 10


def test_who_listens_in_the_place_of_a_node_learns_nothing_of_the_cluster() -> None:
    """The dialler says who it is and whom it looks for, and nothing more until the other has proved itself."""
    with running() as world, capture_logs() as logs:
        dialled: list[_Acceptor] = []

        def accept() -> _Acceptor:
            dialled.append(_Acceptor(_reply, OTHER))
            return dialled[-1]

        link = _dialled(world, accept)
        task = world.loop.create_task(link.run())
        world.loop.run_for(HANDSHAKE_TIMEOUT_S + REFUSED_PAUSE_S)
        task.cancel()
        assert [type(x) for x in dialled[0].said] == [HandshakeRequest, DiallerProof]
        assert not link.is_ready
        assert not [x for x in logs if x["event"] == "unexpected error"]
