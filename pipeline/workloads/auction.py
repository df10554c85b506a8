"""NEXMark's three kinds of event: of each 50 the first is a new person, three are new auctions, 46 are bids.

After the Apache Beam generator's proportions (Tucker et al., "NEXMark: a benchmark for queries over data streams").
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.workloads.keys import turn_column
from pipeline.workloads.spec import RunSpec

_EVENTS = 50
_PEOPLE = 1
_AUCTIONS = 3
# Bids go to this many of the newest auctions, people bid who came among so many of the newest.
_OPEN_AUCTIONS = 100
_ACTIVE_PEOPLE = 1000
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def key_column(spec: RunSpec, sequence: Column) -> Column:
    """A person's own number, an auction's for it and for its bids."""
    kind = _kind(spec, sequence)
    number = F.when(kind < _PEOPLE, _person(spec, sequence)).otherwise(
        F.when(kind < _PEOPLE + _AUCTIONS, _auction(spec, sequence)).otherwise(
            _auction_bid_on(spec, sequence)
        )
    )
    name = F.when(kind < _PEOPLE, "person-").otherwise("auction-")
    return F.concat(name, number.cast("string")).cast("binary")


def value_column(spec: RunSpec, sequence: Column) -> Column:
    kind = _kind(spec, sequence)
    at_ms = (F.lit(spec.start_timestamp_ms) + sequence).alias("dateTime")
    person = F.to_json(
        F.struct(
            F.lit("person").alias("type"),
            _person(spec, sequence).alias("id"),
            F.concat(F.lit("person "), _person(spec, sequence).cast("string")).alias("name"),
            F.concat(F.hex(_hash(spec, "mail", sequence)), F.lit("@example.com")).alias("emailAddress"),
            at_ms,
        )
    )
    auction = F.to_json(
        F.struct(
            F.lit("auction").alias("type"),
            _auction(spec, sequence).alias("id"),
            F.concat(F.lit("item "), F.hex(_hash(spec, "item", sequence))).alias("itemName"),
            _below(spec, "initial", sequence, 1000).alias("initialBid"),
            _below(spec, "reserve", sequence, 10_000).alias("reserve"),
            _recent_person(spec, sequence).alias("seller"),
            _below(spec, "category", sequence, 10).alias("category"),
            at_ms,
        )
    )
    channels = F.array(*map(F.lit, _CHANNELS))
    bid = F.to_json(
        F.struct(
            F.lit("bid").alias("type"),
            _auction_bid_on(spec, sequence).alias("auction"),
            _recent_person(spec, sequence).alias("bidder"),
            _below(spec, "price", sequence, 10_000).alias("price"),
            F.element_at(channels, (_below(spec, "channel", sequence, len(_CHANNELS)) + 1).cast("int")).alias(
                "channel"
            ),
            at_ms,
        )
    )
    text = F.when(kind < _PEOPLE, person).when(kind < _PEOPLE + _AUCTIONS, auction).otherwise(bid)
    return text.cast("binary")


def _kind(spec: RunSpec, sequence: Column) -> Column:
    """Place of the event among its producer's 50."""
    return turn_column(spec, sequence) % _EVENTS


def _round(spec: RunSpec, sequence: Column) -> Column:
    return F.floor(turn_column(spec, sequence) / _EVENTS).cast("bigint")


def _owned(spec: RunSpec, number: Column, sequence: Column) -> Column:
    """Numbered over all producers, so that each has its own."""
    return (number * spec.producers + sequence % spec.producers).cast("bigint")


def _person(spec: RunSpec, sequence: Column) -> Column:
    return _owned(spec, _round(spec, sequence), sequence)


def _auction(spec: RunSpec, sequence: Column) -> Column:
    return _owned(spec, _round(spec, sequence) * _AUCTIONS + _kind(spec, sequence) - _PEOPLE, sequence)


def _auction_bid_on(spec: RunSpec, sequence: Column) -> Column:
    newest = _round(spec, sequence) * _AUCTIONS + _AUCTIONS - 1
    return _owned(
        spec, F.greatest(newest - _below(spec, "bid on", sequence, _OPEN_AUCTIONS), F.lit(0)), sequence
    )


def _recent_person(spec: RunSpec, sequence: Column) -> Column:
    newest = _round(spec, sequence)
    return _owned(
        spec, F.greatest(newest - _below(spec, "who", sequence, _ACTIVE_PEOPLE), F.lit(0)), sequence
    )


def _hash(spec: RunSpec, what: str, sequence: Column) -> Column:
    return F.xxhash64(F.lit(spec.seed), F.lit(what), sequence)


def _below(spec: RunSpec, what: str, sequence: Column, bound: int) -> Column:
    return F.pmod(_hash(spec, what, sequence), F.lit(bound))
