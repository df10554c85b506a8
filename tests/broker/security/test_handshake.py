"""Two sides of a handshake, and everybody who is neither."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.cluster_secret import NO_SECRET, ClusterSecret
from broker.security.handshake import Acceptor, Dialler, HandshakeRefusedError, Refusal, Session
from broker.security.proofs import Authenticator, Transcript
from protocol.errors import ErrorCode, ProtocolError
from protocol.peer_handshake import (
    HANDSHAKE_KINDS,
    PEER_PROTOCOL_VERSION,
    AcceptorProof,
    DiallerProof,
    HandshakeChallenge,
    HandshakeRequest,
    decode_handshake,
    encode_handshake,
)

SECRET = ClusterSecret(b"the secret of this cluster")
OTHER = ClusterSecret(b"the secret of another cluster")
ADDRESS = "kafka-2:9093"

_seeds = itertools.count()


def authenticator(secret: ClusterSecret = SECRET) -> Authenticator:
    return Authenticator(secret, random.Random(next(_seeds)).randbytes)


def dialler(secret: ClusterSecret = SECRET, node_id: int = 1, target_id: int = 2) -> Dialler:
    return Dialler(authenticator(secret), node_id, target_id, ADDRESS)


def acceptor(secret: ClusterSecret = SECRET, node_id: int = 2) -> Acceptor:
    return Acceptor(authenticator(secret), node_id)


def challenge(one: Dialler, other: Acceptor) -> HandshakeChallenge:
    answer = other.requested(one.begin())
    assert isinstance(answer, HandshakeChallenge)
    return answer


def accepted(other: Acceptor, proof: DiallerProof) -> tuple[AcceptorProof, Session]:
    answer = other.proved(proof)
    assert not isinstance(answer, Refusal), answer.reason
    return answer


def shake(one: Dialler, other: Acceptor) -> tuple[Session, Session]:
    proof, acceptors = accepted(other, one.challenged(challenge(one, other)))
    return one.answered(proof), acceptors


def refused(answer: Any) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


@pytest.mark.parametrize("secret", [SECRET, NO_SECRET], ids=repr)
def test_two_nodes_with_the_same_secret_agree_on_a_session(secret: ClusterSecret) -> None:
    ours, theirs = shake(dialler(secret), acceptor(secret))
    frame = memoryview(b"".join(ours.dialler_frames.seal([b"to the acceptor"])))[4:]
    assert theirs.dialler_frames.open(frame) == b"to the acceptor"
    frame = memoryview(b"".join(theirs.acceptor_frames.seal([b"and back"])))[4:]
    assert ours.acceptor_frames.open(frame) == b"and back"


def test_frames_of_another_session_or_direction_are_noticed() -> None:
    ours, theirs = shake(dialler(), acceptor())
    _, others = shake(dialler(), acceptor())
    frame = memoryview(b"".join(ours.dialler_frames.seal([b"a message"])))[4:]
    for check in (others.dialler_frames, theirs.acceptor_frames):
        with pytest.raises(ProtocolError, match="not the one"):
            check.open(frame)
    assert theirs.dialler_frames.open(frame) == b"a message"


def test_another_secret_is_refused_and_nothing_is_told() -> None:
    one, other = dialler(OTHER), acceptor()
    answer = refused(other.proved(one.challenged(challenge(one, other))))
    assert isinstance(answer.reply, AcceptorProof)
    assert answer.reply == AcceptorProof(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert "does not know the cluster secret" in answer.reason
    with pytest.raises(HandshakeRefusedError, match="another cluster secret"):
        one.answered(answer.reply)


@pytest.mark.parametrize(
    ("ours", "theirs", "here", "there"),
    [
        (
            SECRET,
            NO_SECRET,
            "this node has a cluster secret and that one has none",
            "it has a cluster secret",
        ),
        (NO_SECRET, SECRET, "that node has a cluster secret and this one has none", "it has none"),
    ],
)
def test_nodes_with_and_without_a_secret_refuse_each_other(
    ours: ClusterSecret, theirs: ClusterSecret, here: str, there: str
) -> None:
    one, other = dialler(ours), acceptor(theirs)
    answer = refused(other.requested(one.begin()))
    assert there in answer.reason
    assert isinstance(answer.reply, HandshakeChallenge)
    assert answer.reply.nonce == b""
    with pytest.raises(HandshakeRefusedError, match=here):
        one.challenged(answer.reply)


def test_another_version_is_refused() -> None:
    one, other = dialler(), acceptor()
    request = one.begin()
    request.version = 7
    answer = refused(other.requested(request))
    assert "peer protocol 7" in answer.reason
    assert isinstance(answer.reply, HandshakeChallenge)
    answer.reply.version = 9
    with pytest.raises(HandshakeRefusedError, match="peer protocol 9"):
        one.challenged(answer.reply)


def test_a_proof_of_another_connection_is_refused() -> None:
    one, other = dialler(), acceptor()
    proof = one.challenged(challenge(one, other))
    accepted(other, proof)
    for request in (one.begin(), dialler().begin()):  # the same nonce of the dialler, and another one
        again = acceptor()
        assert isinstance(again.requested(request), HandshakeChallenge)
        assert "does not know" in refused(again.proved(proof)).reason


def test_a_proof_sent_back_is_refused() -> None:
    """Whoever listens where the dialler dials has nothing but what the dialler says."""
    one = dialler()
    proof = one.challenged(HandshakeChallenge(version=PEER_PROTOCOL_VERSION, nonce=bytes(32)))
    with pytest.raises(HandshakeRefusedError, match="does not prove"):
        one.answered(AcceptorProof(proof=proof.proof))
    # ... and with nonces of its own choice on both connections.
    back = acceptor(node_id=1)
    request = one.begin()
    echoed = back.requested(
        HandshakeRequest(version=PEER_PROTOCOL_VERSION, has_secret=True, nonce=request.nonce)
    )
    assert isinstance(echoed, HandshakeChallenge)
    fresh = Dialler(Authenticator(SECRET, lambda size: request.nonce), 1, 2, ADDRESS)
    own_proof = fresh.challenged(echoed)
    assert "is node 1, not node 2" in refused(back.proved(own_proof)).reason


def test_a_proof_for_another_node_is_of_no_use() -> None:
    one, third = dialler(target_id=2), acceptor(node_id=3)
    proof = one.challenged(challenge(one, third))
    answer = refused(third.proved(proof))
    assert answer.reason == f"{ADDRESS} is node 3, not node 2, which node 1 means to reach"
    with pytest.raises(HandshakeRefusedError, match="is node 3, not node 2"):
        one.answered(AcceptorProof(error_code=ErrorCode.INVALID_REQUEST, message=answer.reason))
    # The ids are in the proof, so that they cannot be changed on the way.
    for changed in ({"target_id": 3}, {"node_id": 4}, {"address": "kafka-3:9093"}):
        one, third = dialler(target_id=2), acceptor(node_id=3)
        proof = one.challenged(challenge(one, third))
        for name, value in changed.items():
            setattr(proof, name, value)
        assert "does not know" in refused(third.proved(proof)).reason


def test_an_acceptor_that_proves_nothing_is_refused() -> None:
    for answer in (AcceptorProof(), AcceptorProof(proof=bytes(32))):
        one = dialler()
        one.challenged(HandshakeChallenge(version=PEER_PROTOCOL_VERSION, nonce=bytes(32)))
        with pytest.raises(HandshakeRefusedError, match="does not prove"):
            one.answered(answer)


def test_a_secret_can_be_changed_node_by_node() -> None:
    old, new = b"the old secret of it", b"the new secret of it"
    stages = [ClusterSecret(old), ClusterSecret(old, new), ClusterSecret(new, old), ClusterSecret(new)]
    for before, after in itertools.pairwise(stages):
        for one, other in itertools.product((before, after), repeat=2):
            shake(dialler(one), acceptor(other))
    with pytest.raises(HandshakeRefusedError):
        one_, other_ = dialler(stages[0]), acceptor(stages[-1])
        reply = refused(other_.proved(one_.challenged(challenge(one_, other_)))).reply
        assert isinstance(reply, AcceptorProof)
        one_.answered(reply)


def test_messages_out_of_order_are_no_protocol() -> None:
    one, other = dialler(), acceptor()
    with pytest.raises(ProtocolError):
        one.answered(AcceptorProof())
    with pytest.raises(ProtocolError):
        other.proved(DiallerProof(node_id=1, target_id=2, address=ADDRESS, proof=b""))
    proof = one.challenged(challenge(one, other))
    with pytest.raises(ProtocolError):
        one.challenged(HandshakeChallenge(version=PEER_PROTOCOL_VERSION, nonce=bytes(32)))
    with pytest.raises(ProtocolError):
        other.requested(one.begin())
    accepted(other, proof)
    with pytest.raises(ProtocolError, match="before HandshakeRequest"):
        other.proved(proof)


def test_a_nonce_of_another_size_is_no_protocol() -> None:
    for size in (0, 31, 33):
        with pytest.raises(ProtocolError, match="nonce"):
            acceptor().requested(
                HandshakeRequest(version=PEER_PROTOCOL_VERSION, has_secret=True, nonce=bytes(size))
            )
        with pytest.raises(ProtocolError, match="nonce"):
            dialler().challenged(HandshakeChallenge(version=PEER_PROTOCOL_VERSION, nonce=bytes(size)))


def test_nonces_and_proofs_are_new_for_each_connection() -> None:
    same = Authenticator(SECRET, random.Random(1).randbytes)
    seen = {Dialler(same, 1, 2, ADDRESS).begin().nonce for _ in range(100)}
    assert len(seen) == 100


@given(st.data())
def test_no_two_transcripts_look_the_same(data: st.DataObject) -> None:
    numbers = st.integers(0, 3)
    parts = st.tuples(
        numbers, st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32),
        numbers, numbers, st.text(max_size=4),
    )  # fmt: skip
    labels = st.binary(max_size=4)
    one, label = data.draw(parts), data.draw(labels)
    other, other_label = data.draw(st.one_of(parts, st.just(one))), data.draw(labels)
    same = (one, label) == (other, other_label)
    assert (Transcript(*one).encode(label) == Transcript(*other).encode(other_label)) == same


@given(st.data())
def test_any_bytes_are_answered_or_no_protocol(data: st.DataObject) -> None:
    """Whatever comes before the proofs, nobody is let in and nothing else is raised."""
    kinds = st.sampled_from(sorted(HANDSHAKE_KINDS))
    frames = data.draw(st.lists(st.tuples(kinds, st.binary(max_size=120)), max_size=4))
    other = acceptor()
    for kind, body in frames:
        try:
            message = decode_handshake(memoryview(kind.to_bytes(2, "big") + body))
            if isinstance(message, HandshakeRequest):
                other.requested(message)
            elif isinstance(message, DiallerProof):
                refused(other.proved(message))
        except ProtocolError:
            continue


def test_handshake_messages_survive_the_wire() -> None:
    one, other = dialler(), acceptor()
    request = one.begin()
    answer = challenge(one, other)
    proof = one.challenged(answer)
    for message in (request, answer, proof, accepted(other, proof)[0]):
        assert decode_handshake(memoryview(b"".join(encode_handshake(message)))) == message
