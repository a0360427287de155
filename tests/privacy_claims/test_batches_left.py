"""The law: whoever leaves Poisson batches because of whom they hold is told; who leaves some regularly is not."""

import numpy as np
import pytest

from privgate.privacy_claims.watch_sampling import Draws, as_sets, is_again, matched, used

N, RATE = 200, 0.1
TRIES = 60


class Loader:
    """Draws as Opacus does, and notes what is drawn and used."""

    def __init__(self, seed, n=N, rate=RATE, a_pass=10):
        self.rng, self.n, self.rate, self.a_pass = np.random.default_rng(seed), n, rate, a_pass
        self.draws = Draws(None, "poisson", n, rate, 0)
        self.clipped, self.others = [], []

    def __iter__(self):
        self.draws.passes.append(len(self.draws.batches))
        for _ in range(self.a_pass):
            self.draws.batches.append(np.flatnonzero(self.rng.random(self.n) < self.rate))
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
        return used(self.clipped, [self.draws, *self.others], self.n).kind


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


def good_ones_of_one_long_pass(loader):
    loader.a_pass, done = 400, 0
    for batch in loader:
        if done < 2 or 0 in batch or loader.rng.random() < 0.3:
            loader.step(batch)
            done += 1
        if done >= 40:
            break


def chosen_in_a_rhythm(loader):
    """Ten batches are chosen; how many were looked at for each is done twice more."""
    loader.a_pass, looks = 1, []
    for _ in range(10):
        loader.epoch()
        looks.append(0)
        batch = next(iter(loader))
        while 0 not in batch and looks[-1] < 8:
            batch = next(iter(loader))
            looks[-1] += 1
        loader.step(batch)
    for many in looks * 2:
        loader.epoch()
        for _ in range(many):
            loader.peek()
        loader.epoch()


def one_good_pass_of_two(loader):
    loader.a_pass = 30
    loader.epoch()
    good = False
    while not good:
        state = loader.rng.bit_generator.state
        good = sum(0 in b for b in loader.evaluate()) >= 5
    loader.evaluate()
    loader.rng.bit_generator.state = state
    loader.epoch()


def good_batches_drawn_again(loader):
    loader.a_pass, again = 40, 0
    drawn = iter(loader)
    for _ in range(20):
        state = loader.rng.bit_generator.state
        batch = next(drawn)
        loader.step(batch)
        if 0 in batch and again < 4:
            again += 1
            loader.rng.bit_generator.state = state
            loader.step(next(drawn))


def good_passes_drawn_again(loader):
    for _ in range(8):
        state = loader.rng.bit_generator.state
        before = len(loader.draws.batches)
        loader.epoch()
        if sum(0 in b for b in loader.draws.batches[before:]) > 1.3 * loader.rate * loader.a_pass:
            loader.rng.bit_generator.state = state
            loader.epoch()


def best_of_ten_samplers(loader):
    loader.a_pass = 30
    loader.epoch()
    for number in range(1, 10):
        other = Loader(1000 + number)
        other.a_pass, other.draws.number = 30, number
        other.evaluate()
        loader.others.append(other.draws)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("n", "rate", "a_pass"), [(60, 0.1, 10), (20, 0.2, 10), (600, 0.01, 100), (200, 0.1, 10)])
def test_good_passes_that_are_drawn_again_are_told_among_few_records(n, rate, a_pass):
    told = 0
    for seed in range(20):
        loader = Loader(seed, n, rate, a_pass)
        good_passes_drawn_again(loader)
        twice = len(loader.draws.passes) > 8
        told += loader.kind == ("unknown" if twice else "poisson")
    assert told >= 19


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "train",
    [
        good_ones_of_one_long_pass,
        chosen_in_a_rhythm,
        one_good_pass_of_two,
        good_batches_drawn_again,
        best_of_ten_samplers,
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


@pytest.mark.quick(1)
@pytest.mark.parametrize("train", HONEST)
def test_batches_left_regularly_are_nobodys_choice(train):
    for seed in range(TRIES):
        loader = Loader(seed)
        train(loader)
        assert loader.kind == "poisson", seed


@pytest.mark.quick(1)
@pytest.mark.parametrize(("n", "rate"), [(5, 0.2), (10, 0.05), (20, 0.05), (100, 0.01)])
def test_batches_that_hold_nobody_are_steps_and_break_no_rhythm(n, rate):
    for seed in range(20):
        ended, whole = Loader(seed, n, rate), Loader(seed, n, rate)
        for _ in range(400):
            ended.epoch(until=4)
        for _ in range(60):
            whole.epoch()
            whole.evaluate()
        assert (ended.kind, whole.kind) == ("poisson", "poisson"), seed


@pytest.mark.parametrize(("n", "rate"), [(200, 0.1), (10, 0.1), (100, 0.01), (1000, 0.01), (4, 0.25)])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_very_short_training_of_likely_sizes_is_no_accident(n, rate, steps):
    loaders = [Loader(seed, n, rate, steps) for seed in range(60)]
    for loader in loaders:
        loader.epoch()
    assert [x.kind for x in loaders if any(x.draws.sizes)].count("unknown") == 0


@pytest.mark.parametrize("entries", [np.array(["a", "b"], dtype=object), np.array([-1, 2]), np.array([[1, 2], [3, 4]])])
def test_entries_that_are_no_places_are_not_believed(entries):
    for sampler in ("poisson", "unknown"):
        drawn = Draws(None, sampler, 5, 0.5, 0, [entries], [0])
        assert used([[(len(entries), {0: 1})]], [drawn], 5).kind in {"unknown", "shuffled"}


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
