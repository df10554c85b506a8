"""Regular expressions over topic names: Python's own say what matches, and RE2's rules what is none."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.topic_pattern import PatternError, TopicPattern

PIECES = [
    "a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "(a|b)", "(?:ab)", "a*", "(ab)*", "[a-c]{1,2}", "b+", "a?", "a*?",
    "(?i:A)", "^", "$", "\\b", "x{2}", "b{2,}", "(a*)*", "(a|ab)(c|bcd)", "|", "\\.", "(?P<n>b)",
]  # fmt: skip
pattern_texts = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)


@given(pattern_texts, st.text("abcdxA1.[", max_size=6))
def test_matches_what_python_matches(text: str, name: str) -> None:
    assert TopicPattern(text).matches(name) == bool(re.compile(text, re.ASCII).fullmatch(name))


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("(?i)OrDers-[A-C]", "orders-b", True),
        ("(?i:a)B", "ab", False),
        ("a(?i)b|c", "aC", False),  # the flag holds for the rest of its group, the other branch included
        ("a(?i)b|c", "C", True),
        ("(?-i)a", "A", False),
        ("\\Qa.b\\E", "a.b", True),
        ("\\Qa.b\\E", "axb", False),
        ("\\Qab\\E+", "abbb", True),
        ("\\x41\\x{42}", "AB", True),
        ("[[:alpha:]_]+[[:^digit:]]", "ab_c", True),
        ("[[:alpha:]]+", "ab1", False),
        ("[^\\d.]*", "abc", True),
        ("[^\\d.]*", "ab.c", False),
        ("[\\D]", "1", False),
        ("[]a]*", "]a", True),
        ("[a-]*", "a-a", True),
        ("a{,2}", "a{,2}", True),
        ("\\Atopic\\z", "topic", True),
        ("a\\Bb", "ab", True),
        ("", "", True),
        ("orders", "orders-eu", False),
    ],
)
def test_syntax(text: str, name: str, matches: bool) -> None:
    assert TopicPattern(text).matches(name) is matches


@pytest.mark.parametrize(
    "text",
    ["a(", "a)", "(?:a", "*", "+a", "a**", "a{2}{3}", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "\\1", "(a)\\1", "[a", "[]",
     "[z-a]", "[\\d-z]", "[[:nope:]]", "a{2,1}", "a{1001}", "(?<n", "(?<1>a)", "(?x)a", "(?", "\\", "\\p{L}", "\\Z",
     "\\xg", "\\x{", "(" * 51 + ")" * 51, "(a{500}){500}", "((((a{9}){9}){9}){9}){9}", "a" * 1001],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(PatternError):
        TopicPattern(text)


@given(st.text("ab()[]{}|*+?^$\\.,-:<>=!09iP", max_size=20))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    try:
        pattern = TopicPattern(text)
    except PatternError:
        return
    pattern.matches("ab0-.")


def test_work_grows_with_the_name_and_not_with_the_alternatives() -> None:
    pattern = TopicPattern("(a*)*(a|aa|b)*c")
    assert not pattern.matches("a" * 200)
    once = pattern.work
    assert once < 10_000
    assert not pattern.matches("a" * 200)
    assert pattern.work == once, "states that were met before cost nothing"


def test_a_class_of_many_characters_takes_no_longer_than_one_of_few() -> None:
    """Its ranges are in no count of the work, and one expression held the loop for 16 seconds."""

    def seconds(characters: str) -> float:
        pattern = TopicPattern(f"(?:[^{characters}]?){{190}}")
        began = time.process_time()
        assert pattern.matches("orders-eu-3")
        return time.process_time() - began

    scattered = "".join(chr(0x4E00 + 2 * number) for number in range(980))
    assert seconds(scattered) < 20 * seconds(scattered[:1])


@pytest.mark.parametrize(
    "text", ["[a-é]", "[^a-é]", "[^é]", "[\\x00-\\x7f]", "[[:^digit:]]", "(?i)[X-b]", "[é-ü]"]
)
def test_classes_reach_beyond_ascii(text: str) -> None:
    python = re.compile({"[[:^digit:]]": "[^0-9]", "(?i)[X-b]": "[A-BX-bx-z]"}.get(text, text))
    pattern = TopicPattern(text)
    characters = [chr(code) for code in (0, 9, 48, 65, 90, 97, 98, 122, 127, 128, 0xE9, 0x10FFFF)]
    assert [pattern.matches(char) for char in characters] == [bool(python.fullmatch(x)) for x in characters]


def test_states_are_kept_by_their_size() -> None:
    """A thousand states of a thousand instructions each were tens of megabytes."""
    pattern = TopicPattern(".*[a-m].{300}")
    rng = random.Random(1)
    largest = 0
    for _ in range(20):
        pattern.matches("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=200)))
        largest = max(largest, sum(len(state.at) for state in pattern._states) + len(pattern._steps))
    assert 10_000 < largest < 51_000


def test_states_are_forgotten_when_they_are_too_many() -> None:
    pattern = TopicPattern("(.*a.{10}|.*b.{11}|.*c.{12})d")
    names = [f"{number:b}".replace("0", "a").replace("1", "b").rjust(12, "c") + "d" for number in range(4096)]
    assert [pattern.matches(name) for name in names] == [
        bool(re.fullmatch("(.*a.{10}|.*b.{11}|.*c.{12})d", name)) for name in names
    ]
