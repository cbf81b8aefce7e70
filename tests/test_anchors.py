import jax
import jax.numpy as jnp
import numpy as np
import pytest

from facekp_jax import anchors, boxes


def test_grid_by_hand():
    grid = anchors.grid(2, 3, 8, 16, (1.0, 4.0))
    assert grid.shape == (12, 4) and grid.dtype == np.float32
    np.testing.assert_array_equal(grid[0], [-4, -4, 12, 12])  # centre (4, 4)
    np.testing.assert_array_equal(grid[1], [0, -12, 8, 20])  # 8 wide, 32 high
    np.testing.assert_array_equal(grid[2], [4, -4, 20, 12])  # x runs before y
    np.testing.assert_array_equal(grid[6], [-4, 4, 12, 20])
    np.testing.assert_array_equal(grid[11], [16, -4, 24, 28])


def test_grid_keeps_area_and_ratio():
    grid = anchors.grid(1, 1, 4, 10, (0.5, 1, 2))
    width, height = (grid[:, 2:] - grid[:, :2]).T
    np.testing.assert_allclose(width * height, [100] * 3, rtol=1e-5)
    np.testing.assert_allclose(height / width, [0.5, 1, 2], rtol=1e-5)


def match(found, truth, valid=None, crowd=None, *, force_best=False):
    found = jnp.asarray(found, jnp.float32)
    truth = jnp.asarray(truth, jnp.float32).reshape(-1, 4)
    valid = jnp.ones(len(truth), bool) if valid is None else jnp.asarray(valid)
    crowd = jnp.zeros(len(truth), bool) if crowd is None else jnp.asarray(crowd)
    run = jax.jit(
        lambda *a: anchors.match(*a, positive=0.5, negative=0.3, force_best=force_best)
    )
    index, label = run(found, truth, valid, crowd)
    assert index.dtype == label.dtype == jnp.int32
    assert index.shape == label.shape == (len(found),)
    return index, label


# IoU with [0, 0, 10, 10] is the width / 10, with [20, 0, 30, 20] half of that.
FOUND = [
    [0, 0, 10, 10],  # 1
    [0, 0, 5, 10],  # 0.5, positive at the threshold
    [0, 0, 4, 10],  # 0.4, between
    [0, 0, 3, 10],  # 0.3, not below the threshold
    [0, 0, 2, 10],  # 0.2
    [20, 0, 28, 10],  # 0.4 with the second
    [20, 0, 24, 10],  # 0.2 with the second
    [50, 50, 60, 60],
    [0, 0, 0, 0],
]
TRUTH = [[0, 0, 10, 10], [20, 0, 30, 20]]


@pytest.mark.parametrize(
    "force_best, expected",
    [
        (False, [1, 1, -1, -1, 0, -1, 0, 0, 0]),
        (True, [1, 1, -1, -1, 0, 1, 0, 0, 0]),
    ],
)
def test_match_by_hand(force_best, expected):
    index, label = match(FOUND, TRUTH, force_best=force_best)
    assert label.tolist() == expected
    assert index[:7].tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_match_takes_the_best_of_several():
    truth = [[0, 0, 6, 10], [0, 0, 9, 10], [0, 0, 9, 10], [0, 0, 7, 10]]
    index, label = match(FOUND[:1], truth)
    assert index.tolist() == [1] and label.tolist() == [1]


def test_match_forces_all_of_a_tie():
    # A region inside several anchors overlaps each by the ratio of the areas, but for
    # the last bits, which depend on where the anchor stands.
    corner = np.random.default_rng(2).uniform(97, 104, (50, 2))
    holding = np.concatenate([corner, corner + 9.7], axis=1)
    found = np.concatenate([holding, [[105, 100, 115, 110], [10, 0, 910, 900]]])
    truth = np.array([[104.2, 104.1, 105.4, 105.9]])
    overlap = boxes.iou(found.astype(np.float32), truth.astype(np.float32))
    assert len(np.unique(overlap[:50])) > 1
    _, label = match(found, truth, force_best=True)
    assert label.tolist() == [1] * 50 + [0, 0]


def test_match_of_a_forced_anchor_keeps_its_own_best():
    truth = [[0, 0, 10, 10], [9, 0, 11, 1]]  # only the first anchor meets the second
    index, label = match([[0, 0, 10, 10], [40, 40, 50, 50]], truth, force_best=True)
    assert index.tolist()[0] == 0 and label.tolist() == [1, 0]


@pytest.mark.parametrize("force_best", [False, True])
@pytest.mark.parametrize(
    "truth, valid",
    [
        ([], []),
        ([[0, 0, 0, 0]] * 2, [False, False]),
        ([[0, 0, 10, 10]], [False]),
        ([[5, 5, 5, 5], [8, 8, 2, 2]], [True, True]),
        ([[500, 500, 510, 510]], [True]),
    ],
)
def test_match_of_nothing_is_all_negative(truth, valid, force_best):
    _, label = match(FOUND, truth, np.array(valid, bool), force_best=force_best)
    assert not label.any()


def test_match_leaves_out_what_lies_in_a_crowd():
    crowd_box = [0, 0, 10, 5]
    found = [
        [0, 0, 10, 5],  # the crowd itself: no target
        [2, 0, 8, 10],  # half inside
        [2, 0, 8, 11],  # less
        [8, 1, 12, 3],  # half inside, but the true box is its own
        [1, 1, 2, 2],
    ]
    truth, crowd = [crowd_box, [8, 1, 12, 3]], [True, False]
    index, label = match(found, truth, crowd=crowd, force_best=True)
    assert label.tolist() == [-1, -1, 0, 1, -1]
    assert index[3] == 1
    _, label = match(found, truth, valid=[False, True], crowd=crowd)
    assert label.tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("force_best", [False, True])
def test_match_ignores_padding(force_best):
    rng = np.random.default_rng(0)
    grid = anchors.grid(8, 8, 8, 16, (0.5, 1, 2))
    corner = rng.uniform(0, 50, (5, 2))
    truth = np.concatenate([corner, corner + rng.uniform(4, 20, (5, 2))], axis=1)
    crowd = np.arange(5) == 2
    index, label = match(grid, truth, crowd=crowd, force_best=force_best)
    order = [2, 0, 1, 7, 3, 4]  # padding among the true boxes
    padded = np.concatenate([truth, [[0, 0, 0, 0], [0, 0, 64, 64], grid[9]]])
    again, padded_label = match(
        grid,
        padded[order],
        np.array(order) < 5,
        np.append(crowd, [False, True, False])[order],
        force_best=force_best,
    )
    assert set(label.tolist()) == {-1, 0, 1}
    np.testing.assert_array_equal(padded_label, label)
    hit = np.asarray(label) == 1
    np.testing.assert_array_equal(np.array(order)[again][hit], index[hit])


def test_match_against_tables():
    rng = np.random.default_rng(1)
    grid = anchors.grid(8, 8, 8, 16, (0.5, 1, 2))
    corner = rng.uniform(0, 50, (3, 6, 2))
    truth = np.concatenate([corner, corner + rng.uniform(4, 20, (3, 6, 2))], axis=2)
    truth = truth.astype(np.float32)
    index, label = jax.vmap(
        lambda t: anchors.match(
            grid,
            t,
            jnp.ones(6, bool),
            jnp.zeros(6, bool),
            positive=0.5,
            negative=0.3,
            force_best=False,
        )
    )(truth)
    overlap = np.asarray(boxes.iou(grid, truth))
    best = overlap.max(axis=-1)
    np.testing.assert_array_equal(label, np.select([best >= 0.5, best >= 0.3], [1, -1]))
    np.testing.assert_array_equal(index[best > 0], overlap.argmax(axis=-1)[best > 0])


def test_match_gives_no_gradient():
    def loss(found):
        _, label = anchors.match(
            found,
            jnp.array([[0.0, 0, 10, 10]]),
            jnp.ones(1, bool),
            jnp.zeros(1, bool),
            positive=0.5,
            negative=0.3,
            force_best=True,
        )
        return jnp.where(label == 1, found.sum(axis=-1), 0).sum()

    gradient = jax.grad(loss)(jnp.array(FOUND, jnp.float32))
    np.testing.assert_array_equal(gradient[:2], np.ones((2, 4)))
    np.testing.assert_array_equal(gradient[2:], np.zeros((7, 4)))
