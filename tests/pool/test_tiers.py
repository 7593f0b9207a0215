"""Slots and budgets: what is taken is there, and what comes back was taken."""

from __future__ import annotations

import pytest

from streamglm.pool.tiers import Budget, Slots


def test_slots_go_lowest_first_and_come_back() -> None:
    slots = Slots(3)
    assert [slots.take(), slots.take()] == [0, 1]
    slots.give(0)
    assert (slots.take(), slots.take(), slots.free) == (0, 2, 0)


def test_a_slot_is_neither_taken_nor_given_twice() -> None:
    slots = Slots(1)
    slots.take()
    with pytest.raises(AssertionError, match="taken"):
        slots.take()
    slots.give(0)
    for slot in (0, 1, -1):
        with pytest.raises(AssertionError):
            slots.give(slot)


def test_a_budget_is_never_passed_nor_overpaid() -> None:
    budget = Budget(100)
    budget.take([60])
    with pytest.raises(AssertionError):
        budget.take([41])
    budget.take([40])
    assert (budget.free, budget.used) == ([0], 100)
    budget.give([60])
    with pytest.raises(AssertionError):
        budget.give([41])


def test_a_budget_is_each_ranks_own() -> None:
    """Fails when one rank's bytes pay for another's, or when all are charged the same."""
    budget = Budget(100, ranks=3)
    budget.take([70, 10, 10])
    budget.take([10, 70, 10])
    assert (budget.free, budget.used) == ([20, 20, 80], 80)
    for sizes in ([21, 1, 1], [1, 21, 1]):
        with pytest.raises(AssertionError, match="of 20 free"):
            budget.take(sizes)
    budget.take([10, 10, 70])
    budget.give([70, 10, 10])
    assert budget.free == [80, 20, 20]
    with pytest.raises(AssertionError, match="back of 20 taken"):
        budget.give([21, 1, 1])
