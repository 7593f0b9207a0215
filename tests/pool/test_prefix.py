"""The tree of prompts against a list of them, and the digests that name prefixes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from streamglm.pool.prefix import Node, PrefixTree, chain, common_pages

ROWS = 4


def put(tree: PrefixTree[str], identity: bytes, tokens: Sequence[int], value: str) -> Node[str]:
    node = tree.place(identity, tokens, len(tokens) // ROWS)
    node.value = value
    return node


def found(tree: PrefixTree[str], identity: bytes, tokens: Sequence[int]) -> list[str]:
    """The values along a prompt, the shortest prefix first."""
    return [node.value for node in tree.walk(identity, tokens) if node.value is not None]


def test_a_prompt_meets_the_values_of_its_prefixes_of_whole_pages() -> None:
    tree: PrefixTree[str] = PrefixTree(ROWS)
    put(tree, b"", range(4), "one")
    put(tree, b"", range(12), "three")
    assert found(tree, b"", range(11)) == ["one"]
    assert found(tree, b"", range(12)) == ["one", "three"]
    assert found(tree, b"", range(100)) == ["one", "three"]
    assert found(tree, b"", [0, 1, 2, 4, *range(4, 12)]) == []


@pytest.mark.parametrize("place", range(12))
def test_one_other_token_anywhere_is_another_prompt(place: int) -> None:
    """Fails when pages are matched by anything less than all of their tokens."""
    tree: PrefixTree[str] = PrefixTree(ROWS)
    put(tree, b"", range(12), "kept")
    other = list(range(12))
    other[place] += 1
    assert found(tree, b"", other) == []
    assert tree.shared(b"", other) == place


def test_identities_share_nothing() -> None:
    tree: PrefixTree[str] = PrefixTree(ROWS)
    put(tree, b"one", range(8), "kept")
    assert found(tree, b"other", range(8)) == []
    assert tree.shared(b"other", range(8)) == 0
    assert list(tree.others(b"other")) == [b"one"]
    assert not list(tree.others(b"one"))


def test_the_same_tokens_in_another_order_of_pages_are_another_prompt() -> None:
    tree: PrefixTree[str] = PrefixTree(ROWS)
    put(tree, b"", [*range(4), *range(8, 12)], "kept")
    assert found(tree, b"", [*range(8, 12), *range(4)]) == []


def test_a_forgotten_value_takes_its_pages_with_it_but_not_those_of_others() -> None:
    tree: PrefixTree[str] = PrefixTree(ROWS)
    short = put(tree, b"", range(4), "short")
    long = put(tree, b"", range(16), "long")
    tree.prune(short)
    tree.check()
    assert found(tree, b"", range(16)) == ["long"]
    tree.prune(long)
    tree.check()
    assert len(tree) == 0


def test_a_bare_leaf_is_found_by_the_check() -> None:
    tree: PrefixTree[str] = PrefixTree(ROWS)
    tree.place(b"", range(8), 2)
    with pytest.raises(AssertionError, match="bare leaf"):
        tree.check()


def test_random_prompts_are_found_as_a_list_finds_them() -> None:
    draw = random.Random(3)
    tree: PrefixTree[str] = PrefixTree(ROWS)
    known: dict[tuple[int, ...], Node[str]] = {}
    for step in range(2_000):
        tokens = tuple(draw.randrange(2) for _ in range(draw.randrange(4, 24)))
        whole = tokens[: len(tokens) // ROWS * ROWS]
        if whole in known and draw.random() < 0.5:
            tree.prune(known.pop(whole))
        elif whole not in known:
            known[whole] = put(tree, b"", whole, str(step))
        expected = [len(k) for k in known if tokens[: len(k)] == k]
        got = [n.depth * ROWS for n in tree.walk(b"", tokens) if n.value is not None]
        assert got == sorted(expected)
        near = max((_common(tokens, k) for k in known), default=0)
        assert tree.shared(b"", tokens) == near
        tree.check()


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def test_a_node_has_the_digest_of_its_chain() -> None:
    tree: PrefixTree[str] = PrefixTree(ROWS)
    node = put(tree, b"id", range(12), "kept")
    assert node.digest == list(chain(b"id", range(14), ROWS))[2]


def test_a_digest_depends_on_every_token_before_it_and_on_the_identity() -> None:
    digests = [tuple(chain(b"", range(12), ROWS))]
    for place in range(12):
        other = list(range(12))
        other[place] += 1
        digests.append(tuple(chain(b"", other, ROWS)))
    digests.append(tuple(chain(b"x", range(12), ROWS)))
    assert len({one[2] for one in digests}) == len(digests)
    assert digests[5][0] == digests[0][0] != digests[1][0]


def test_common_pages_is_where_the_chains_part() -> None:
    one = list(chain(b"", range(40), ROWS))
    for place in range(40):
        other = list(range(40))
        other[place] += 1
        assert common_pages(one, list(chain(b"", other, ROWS))) == place // ROWS
    assert common_pages(one, one[:3]) == 3
    assert common_pages(one, one) == 10
    assert common_pages(one, []) == 0
