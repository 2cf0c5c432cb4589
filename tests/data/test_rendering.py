"""Pictures drawn on demand: the same bytes by every way of asking, and a cache that is never
trusted further than its checksums."""

import errno
import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zscope.data import options_in_force, rendering
from zscope.data.rendering import (
    Axis,
    InMemory,
    Rendered,
    checksums,
    choose,
    grid_dataset,
    random_rows,
    scramble,
)
from zscope.errors import ConfigError, DataError

AXES = (Axis("kind", ("dot", "line", "ring"), "categorical"), Axis("place", tuple(range(7))))
COUNT = 21


def truth(rows) -> np.ndarray:
    """9 bytes a picture: not a whole number of the checksum's words."""
    return (np.asarray(rows)[:, None] * 11 + np.arange(9) + 1).astype(np.uint8).reshape(-1, 1, 3, 3)


@dataclass
class Counter:
    """A painter that remembers what it was asked to draw."""

    key: str = "counter"
    drawn_rows: list[int] = field(default_factory=list)

    @property
    def axes(self):
        return AXES

    @property
    def shape(self):
        return (1, 3, 3)

    def __call__(self, rows):
        self.drawn_rows += rows.tolist()
        return truth(rows)


@pytest.fixture
def images(tmp_path):
    return Rendered(Counter(), tmp_path / "counter")


def test_it_has_the_shape_of_the_full_grid(images):
    assert images.shape == (COUNT, 1, 3, 3)
    assert len(images) == COUNT
    assert images.dtype == np.uint8
    assert images.painter.drawn_rows == []


@given(
    rows=st.one_of(
        st.integers(-COUNT, COUNT - 1),
        st.slices(COUNT),
        st.lists(st.integers(-COUNT, COUNT - 1)),
        st.lists(st.booleans(), min_size=COUNT, max_size=COUNT).map(np.array),
    )
)
def test_every_way_of_indexing_gives_what_an_array_would(tmp_path_factory, rows):
    images = Rendered(Counter(), tmp_path_factory.mktemp("index"))
    rows = np.array(rows, np.int64) if isinstance(rows, list) else rows
    expected = truth(np.arange(COUNT))[rows]
    for _ in range(2):  # drawn, then read
        part = images[rows]
        assert part.dtype == np.uint8
        assert part.shape == expected.shape
        assert (part == expected).all()


def test_as_an_array_it_is_all_pictures(images):
    assert (np.asarray(images) == truth(range(COUNT))).all()
    assert np.asarray(images, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("rows", [COUNT, -COUNT - 1, [0, COUNT], np.ones(3, bool), [0.5], [[1]]])
def test_rows_that_do_not_exist_are_an_index_error(images, rows):
    with pytest.raises(IndexError):
        images[rows]


def test_a_picture_is_drawn_once_and_then_read(images):
    first = images[[3, 5, 4, 20]]
    assert sorted(images.painter.drawn_rows) == [3, 4, 5, 20]
    assert (images[[20, 3]] == first[[3, 0]]).all()
    assert len(images.painter.drawn_rows) == 4
    images[2:6]
    assert sorted(images.painter.drawn_rows) == [2, 3, 4, 5, 20]


def test_a_later_session_reads_what_an_earlier_one_drew(images, tmp_path):
    images[:]
    later = Rendered(Counter(), tmp_path / "counter")
    assert (later[:] == truth(range(COUNT))).all()
    assert later.painter.drawn_rows == []


def test_other_parameters_do_not_share_a_file(images, tmp_path):
    images[:]
    other = Rendered(Counter(key="other parameters"), tmp_path / "counter")
    other[[0]]
    assert other.painter.drawn_rows == [0]


def test_pickling_carries_the_recipe_and_not_the_pixels(images):
    images[:]
    copy = pickle.loads(pickle.dumps(images))
    copy.painter.drawn_rows.clear()
    assert (copy[:] == images[:]).all()
    assert copy.painter.drawn_rows == []
    assert len(pickle.dumps(images)) < 5000


def pixel_file(folder: Path) -> Path:
    return next(folder.rglob("*.pixels"))


def test_altered_pixels_are_drawn_again(images, tmp_path):
    images[:]
    path = pixel_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[16 * 4 + 2] ^= 1
    path.write_bytes(data)
    later = Rendered(Counter(), tmp_path / "counter")
    assert (later[:] == truth(range(COUNT))).all()
    assert later.painter.drawn_rows == [4]


def test_a_checksum_without_its_pixels_is_not_trusted(images, tmp_path):
    """A crash may leave the checksum on disk and the pixels not."""
    images[:]
    path = pixel_file(tmp_path)
    path.write_bytes(bytes(path.stat().st_size))
    later = Rendered(Counter(), tmp_path / "counter")
    assert (later[:] == truth(range(COUNT))).all()
    assert later.painter.drawn_rows == list(range(COUNT))


def test_rows_that_changed_places_are_drawn_again(images, tmp_path):
    images[:]
    for path, width in ((pixel_file(tmp_path), 16), (next(tmp_path.rglob("*.sums")), 8)):
        data = path.read_bytes()
        path.write_bytes(data[width : 2 * width] + data[:width] + data[2 * width :])
    later = Rendered(Counter(), tmp_path / "counter")
    assert (later[:] == truth(range(COUNT))).all()
    assert later.painter.drawn_rows == [0, 1]


def test_a_file_cut_short_is_made_whole(images, tmp_path):
    images[:]
    path = pixel_file(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    later = Rendered(Counter(), tmp_path / "counter")
    assert (later[:] == truth(range(COUNT))).all()
    assert later.painter.drawn_rows == list(range(6, COUNT))


# One of two writers is killed in the middle; what became of both is printed.
WRITERS = """
import os, signal, sys, time
import numpy as np
from zscope.data.sprites import SPRITES
from pathlib import Path
reading, writing = os.pipe()
writers = []
for seed, batches in ((1, 100_000), (2, 300)):
    if writer := os.fork():
        writers.append(writer)
        continue
    images = SPRITES.load(Path(sys.argv[1]), resolution=16).images
    random = np.random.default_rng(seed)
    os.write(writing, b".")
    for _ in range(batches):
        images[random.choice(len(images), 64)]
    os._exit(0)
for _ in writers:
    os.read(reading, 1)
time.sleep(0.2)
os.kill(writers[0], signal.SIGKILL)
print(*[os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) for writer in writers])
"""


@pytest.mark.slow
def test_killed_and_concurrent_writers_leave_a_cache_that_reads_right(tmp_path):
    from zscope.data.sprites import SpritePainter

    done = subprocess.run(
        [sys.executable, "-c", WRITERS, tmp_path], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == f"{-signal.SIGKILL} 0\n"
    painter = SpritePainter(16, False)
    images = Rendered(painter, tmp_path)
    stored = np.fromfile(next(tmp_path.rglob("*.sums")), np.uint64)
    rows = np.flatnonzero(stored)
    assert len(rows) > 10_000
    assert (images[rows] == painter(rows)).all()


def test_a_folder_that_cannot_be_made_means_drawing_each_time(tmp_path):
    (tmp_path / "file").write_text("in the way")
    images = Rendered(Counter(), tmp_path / "file" / "cache")
    for _ in range(2):
        assert (images[[1, 2]] == truth([1, 2])).all()
    assert images.painter.drawn_rows == [1, 2, 1, 2]


def test_a_cache_that_others_own_is_read_but_not_written(images, tmp_path, monkeypatch):
    images[:10]

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(rendering, "_write", refuse)
    later = Rendered(Counter(), tmp_path / "counter")
    assert (later[:] == truth(range(COUNT))).all()
    assert (later[:] == truth(range(COUNT))).all()
    assert later.painter.drawn_rows == 2 * list(range(10, COUNT))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_with_a_way_out(images, monkeypatch, code):
    def full(*_):
        raise OSError(code, "No space left on device")

    monkeypatch.setattr(rendering, "_write", full)
    with pytest.raises(DataError, match=r"no space for more pictures.*No space left.*ZSCOPE_DATA="):
        images[:3]


def test_a_disk_too_full_for_the_checksums_is_reported_too(images, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rendering, "_prepare", full)
    with pytest.raises(DataError, match="no space for more pictures"):
        images[:3]


def test_the_pixel_file_has_holes_and_the_checksum_file_has_none(tmp_path):
    from zscope.data.sprites import SpritePainter

    images = Rendered(SpritePainter(64, False), tmp_path)
    images[[0, 700_000]]
    assert pixel_file(tmp_path).stat().st_size == 737_280 * 4096
    assert pixel_file(tmp_path).stat().st_blocks * 512 < 10**6
    with open(next(tmp_path.rglob("*.sums")), "rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 737_280 * 8


def test_a_file_that_may_not_grow_is_reported_by_the_write_itself(tmp_path, monkeypatch):
    """The limit of the system, not a stand-in: the write fails where it happens."""
    images = Rendered(Counter(), tmp_path)
    images[[0]]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would keep a part of it
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        with pytest.raises(DataError, match="no space for more pictures"):
            images[[20]]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (images[[0, 20]] == truth([0, 20])).all()


def test_checksums_see_every_bit_and_the_row():
    random = np.random.default_rng(0)
    block = random.integers(0, 256, (1, 64), dtype=np.uint8)
    before = checksums(np.array([7]), block)[0]
    for bit in range(64 * 8):
        changed = block.copy()
        changed[0, bit // 8] ^= 1 << bit % 8
        assert checksums(np.array([7]), changed)[0] != before
    assert checksums(np.array([8]), block)[0] != before
    assert checksums(np.array([0]), np.zeros((1, 64), np.uint8))[0] != 0


def test_scrambled_counters_are_the_published_generator():
    """The first outputs of splitmix64 from seed 0, as in the authors' reference program."""
    assert [hex(word) for word in scramble(np.arange(3, dtype=np.uint64))] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


CYCLE = Axis("angle", tuple(range(40)), cyclic=True)
LINE = Axis("place", tuple(range(7)))
KIND = AXES[0]


@pytest.mark.parametrize(
    ("axis", "choice", "expected"),
    [
        (LINE, None, [0, 1, 2, 3, 4, 5, 6]),
        (LINE, 7, [0, 1, 2, 3, 4, 5, 6]),
        (LINE, 3, [0, 3, 6]),
        (LINE, 2, [0, 6]),
        (LINE, 1, [3]),
        (LINE, "3", [0, 3, 6]),
        (LINE, [5, 1], [5, 1]),
        (LINE, "5,1", [5, 1]),
        (LINE, "5,", [5]),
        (CYCLE, 4, [0, 10, 20, 30]),
        (CYCLE, 1, [0]),
        (KIND, 2, [0, 1]),
        (KIND, "ring", [2]),
        (KIND, ["ring", "dot"], [2, 0]),
        (KIND, "ring, dot", [2, 0]),
    ],
)
def test_a_choice_of_values_is_a_count_or_a_list(axis, choice, expected):
    assert choose("grid", axis, choice).tolist() == expected


@pytest.mark.parametrize("size", [3, 10, 32])
def test_any_count_gives_that_many_different_values_from_end_to_end(size):
    for count in range(2, size + 1):
        picks = choose("grid", Axis("place", tuple(range(size))), count)
        assert len(set(picks.tolist())) == count
        assert (picks[0], picks[-1]) == (0, size - 1)
        assert np.ptp(np.diff(picks)) <= 1
        cyclic = choose("grid", Axis("angle", tuple(range(size)), cyclic=True), count)
        gaps = np.diff([*cyclic, size])
        assert np.ptp(gaps) <= 1


@pytest.mark.parametrize(
    ("axis", "choice", "message"),
    [
        (LINE, 8, "place=8, but place has 7 values.*from 1 to 7"),
        (LINE, 0, "place=0"),
        (LINE, [1, 9], "place has no value 9"),
        (LINE, [1, 1], "names a value twice"),
        (LINE, [], "empty list"),
        (LINE, True, "no value True"),
        (KIND, "rings", "Did you mean ring"),
    ],
)
def test_a_choice_that_makes_no_sense_says_what_would(axis, choice, message):
    with pytest.raises(ConfigError, match=message):
        choose("grid", axis, choice)


def test_a_sub_grid_is_rows_of_the_full_grid(tmp_path):
    painter = Counter()
    data = grid_dataset("grid", painter, tmp_path, {"kind": "ring,dot", "place": 3})
    rows = [14, 17, 20, 0, 3, 6]
    assert (data.images[:] == truth(rows)).all()
    assert sorted(painter.drawn_rows) == sorted(rows)
    assert data.factors.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert data.factor_sizes == (2, 3)
    assert data.provenance["values"] == {"kind": ["ring", "dot"], "place": [0, 3, 6]}
    full = grid_dataset("grid", painter, tmp_path, {})
    assert (full.images[rows] == data.images[:]).all()
    assert len(painter.drawn_rows) == 6


def test_a_random_subset_is_drawn_once_and_held_in_memory(tmp_path):
    painter = Counter()
    data = grid_dataset("grid", painter, tmp_path, {}, pictures=8, subset_seed=3)
    rows = random_rows("grid", COUNT, 8, 3)
    assert painter.drawn_rows == []  # a plan that only looks at factors draws nothing
    for _ in range(2):
        assert (data.images[:] == truth(rows)).all()
        assert (data.images[[5, 2]] == truth(rows[[5, 2]])).all()
    assert (data.subset([1, 6]).batch([1]).numpy() * 255).round().astype(int).ravel().tolist() == (
        truth(rows[[6]]).ravel().tolist()
    )
    assert painter.drawn_rows == rows.tolist()
    assert (data.factors == grid_dataset("grid", painter, tmp_path, {}).factors[rows]).all()
    assert data.factor_sizes == (3, 7)
    again = Counter()  # another process, which reads the file
    other = grid_dataset("grid", again, tmp_path, {}, pictures=8, subset_seed=3)
    assert (np.asarray(other.images) == truth(rows)).all()
    assert again.drawn_rows == []
    assert data.images.__getstate__()["_array"] is None
    assert (pickle.loads(pickle.dumps(data.images))[:] == truth(rows)).all()


def test_a_subset_is_of_the_chosen_values_and_too_large_a_one_is_read_from_disk(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(rendering, "LARGE", 10)
    data = grid_dataset("grid", Counter(), tmp_path, {"kind": "ring"}, pictures=4)
    rows = random_rows("grid", 7, 4, 0)
    assert (data.images[:] == truth(14 + rows)).all()
    assert not isinstance(data.images, InMemory)


@given(seed=st.integers(0, 2**32), first=st.integers(1, 10), more=st.integers(0, 11))
def test_more_pictures_contain_fewer_and_no_row_comes_twice(seed, first, more):
    few = random_rows("grid", COUNT, first, seed)
    many = random_rows("grid", COUNT, first + more, seed)
    assert len(set(many)) == first + more
    assert set(few) <= set(many)
    assert (np.diff(many) > 0).all()


def test_other_seeds_choose_others_and_all_rows_are_equally_likely():
    counts = np.zeros(COUNT)
    for seed in range(2000):
        counts[random_rows("grid", COUNT, 7, seed)] += 1
    # binomial(2000, 1/3): standard deviation 21
    assert np.abs(counts - 2000 / 3).max() < 4.5 * 21.1


def test_a_subset_that_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="pictures=22, but the chosen .* 21 combinations"):
        grid_dataset("grid", Counter(), tmp_path, {}, pictures=22)
    with pytest.raises(ConfigError, match="pictures=0; expected a number of pictures"):
        grid_dataset("grid", Counter(), tmp_path, {}, pictures=0)
    with pytest.raises(ConfigError, match="no effect without pictures"):
        grid_dataset("grid", Counter(), tmp_path, {}, subset_seed=1)


def test_a_range_chooses_both_ends_and_all_between():
    axis = AXES[1]
    assert choose("grid", axis, "1..3").tolist() == [1, 2, 3]
    assert choose("grid", axis, "0..6:2").tolist() == [0, 2, 4, 6]
    assert choose("grid", axis, "0..1,4..5").tolist() == [0, 1, 4, 5]
    assert choose("grid", axis, "5..5").tolist() == [5]
    for wrong, message in (("5..7", "no value '7'"), ("3..1", "empty list"), ("0..2:0", "0..2:0")):
        with pytest.raises(ConfigError, match=message):
            choose("grid", axis, wrong)


def test_a_range_is_the_list_it_stands_for_and_defaults_are_no_options():
    listed, ranged = {"orientation": [2, 3, 4]}, {"orientation": "2..4"}
    assert options_in_force("rooms", ranged) == options_in_force("rooms", listed)
    quiet = {"pictures": None, "subset_seed": 0}
    assert options_in_force("rooms", quiet) == options_in_force("sprites-color", quiet) == {}
    assert options_in_force("sprites", {"pictures": "20"}) == {"pictures": 20}
