"""The law: whoever leaves Poisson batches because of whom they hold is told; who leaves some regularly is not."""

import numpy as np
import pytest

from privgate.privacy_claims.watch_sampling import Draws, as_sets, is_again, matched, used

N, RATE = 200, 0.1
TRIES = 60


class Loader:
    """Draws as Opacus does, and notes what is drawn and used."""

    def __init__(self, seed, rate=RATE, a_pass=10):
        self.rng, self.rate, self.a_pass = np.random.default_rng(seed), rate, a_pass
        self.draws = Draws(None, "poisson", N, rate, 0)
        self.clipped = []

    def __iter__(self):
        self.draws.passes.append(len(self.draws.batches))
        for _ in range(self.a_pass):
            self.draws.batches.append(np.flatnonzero(self.rng.random(N) < self.rate))
            yield self.draws.batches[-1]

    def step(self, batch):
        self.clipped.append([(len(batch), {0: len(self.draws.batches)})])

    def epoch(self, until=None):
        for number, batch in enumerate(self):
            if number == until:
                break
            self.step(batch)

    def evaluate(self):
        return list(self)

    def peek(self):
        next(iter(self))

    @property
    def kind(self):
        return used(self.clipped, [self.draws], N).kind


def second_of_two_where_the_first_is_anothers(loader):
    loader.a_pass = 2
    for _ in range(100):
        second = iter(loader)
        first = next(second)
        if 0 in first:
            loader.step(first)
            continue
        loader.step(next(second))


def new_pass_where_the_first_is_anothers(loader):
    for _ in range(100):
        batch = next(iter(loader))
        if 0 not in batch:
            batch = next(iter(loader))
        loader.step(batch)


def one_or_two_of_a_pass(loader):
    loader.a_pass = 2
    for _ in range(100):
        for number, batch in enumerate(loader):
            if number and 0 not in batch:
                break
            loader.step(batch)


def better_of_two_passes(loader):
    for _ in range(20):
        state = loader.rng.bit_generator.state
        if sum(0 in b for b in loader.evaluate()) >= 1:
            loader.rng.bit_generator.state = state  # this one again
        loader.epoch()


def another_pass_where_the_first_is_anothers(loader):
    for _ in range(30):
        for number, batch in enumerate(loader):
            if number == 0 and 0 not in batch:
                break
            loader.step(batch)


def the_same_pass_each_time(loader):
    state = loader.rng.bit_generator.state
    for _ in range(5):
        loader.rng.bit_generator.state = state
        loader.epoch()


@pytest.mark.parametrize(
    "train",
    [
        second_of_two_where_the_first_is_anothers,
        new_pass_where_the_first_is_anothers,
        one_or_two_of_a_pass,
        better_of_two_passes,
        another_pass_where_the_first_is_anothers,
        the_same_pass_each_time,
    ],
)
def test_batches_picked_by_whom_they_hold_are_told(train):
    kinds = []
    for seed in range(TRIES):
        loader = Loader(seed)
        train(loader)
        kinds.append(loader.kind)
    assert kinds.count("poisson") <= TRIES // 20


def broken_off(loader):
    for _ in range(40):
        loader.epoch(until=4)


def broken_off_late(loader):
    loader.a_pass = 30
    for _ in range(3):
        loader.epoch(until=25)


def evaluated_after_each_pass(loader):
    for _ in range(4):
        loader.epoch()
        loader.evaluate()


def evaluated_after_each_fourth_pass(loader):
    for number in range(16):
        loader.epoch()
        if number % 4 == 3:
            loader.evaluate()


def evaluated_before_and_after(loader):
    loader.evaluate()
    for _ in range(5):
        loader.epoch()
        loader.evaluate()


def looked_at_twice_before_one_pass(loader):
    loader.peek()
    loader.peek()
    loader.epoch()


def looked_at_after_each_pass(loader):
    for _ in range(40):
        loader.epoch()
        loader.peek()


def ended_in_the_middle_of_the_last_pass(loader):
    for _ in range(2):
        loader.epoch()
    loader.epoch(until=3)
    loader.evaluate()


HONEST = [
    broken_off, broken_off_late, evaluated_after_each_pass,
    evaluated_after_each_fourth_pass, evaluated_before_and_after,
    looked_at_twice_before_one_pass, looked_at_after_each_pass, ended_in_the_middle_of_the_last_pass, Loader.epoch,
]  # fmt: skip


@pytest.mark.parametrize("train", HONEST)
def test_batches_left_regularly_are_nobodys_choice(train):
    for seed in range(TRIES):
        loader = Loader(seed)
        train(loader)
        assert loader.kind == "poisson", seed


@pytest.mark.parametrize("few", [1, 3])
def test_few_passes_that_are_broken_off_are_not_taken_for_random_batches(few):
    """One in two of the batches was left, and nothing shows that nobody picked."""
    loader = Loader(0)
    for _ in range(few):
        loader.epoch(until=1)
    loader.epoch(until=1)
    assert loader.kind == "unknown"


def test_what_workers_drew_ahead_in_a_pass_that_was_broken_off_is_left():
    loader = Loader(3)
    for _ in range(4):
        start = len(loader.draws.batches)
        loader.evaluate()
        for number in range(4):
            size = len(loader.draws.batches[start + number])
            loader.clipped.append([(size, {0: min(start + number + 4, start + 10)})])
    batches, known = matched(loader.clipped, loader.draws)
    assert known == [start + number for start in range(0, 40, 10) for number in range(4)]
    assert batches == [[at] for at in known]


@pytest.mark.parametrize(("n", "rate", "batches"), [(200, 0.1, 100), (30, 0.1, 200), (5, 0.3, 1000)])
def test_batches_drawn_twice_are_told_from_those_drawn_anew(n, rate, batches):
    rng = np.random.default_rng(1)
    for _ in range(20):
        one, other = (as_sets([np.flatnonzero(rng.random(n) < rate) for _ in range(batches)]) for _ in range(2))
        assert not is_again(one, other, n, rate)
        assert is_again(one, one[: batches - 7], n, rate)
    few = as_sets([np.flatnonzero(rng.random(200) < 0.1) for _ in range(20)])
    assert is_again(few, [as_sets([np.arange(3)])[0], *few[:5]], 200, 0.1)  # from another position
    assert not is_again([], few, 200, 0.1)
