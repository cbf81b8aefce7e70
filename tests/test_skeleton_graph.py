"""Graphs of skeletons and the messages that travel in them, at toy size."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from facekp_jax.models import skeleton_graph
from facekp_jax.models.skeleton_graph import (
    FLOOR,
    SkeletonGraph,
    carry,
    directed_edges,
    evidence,
    graphs,
)
from facekp_jax.skeletons import Skeleton

CHAIN = Skeleton("chain", tuple("abcd"), ((0, 1), (1, 2), (3, 2)), None, (0.05,) * 4)
PAIR = Skeleton("pair", ("a", "b"), ((0, 1),), None, (0.05,) * 2)
FEATURES, CELLS = 5, 4
# Compiling is all of the time here.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def test_edges_go_both_ways_and_to_oneself():
    expected = [(0, 1), (1, 2), (3, 2), (1, 0), (2, 1), (2, 3)]
    expected += [(k, k) for k in range(4)]
    assert directed_edges(CHAIN, "skeleton").tolist() == [list(e) for e in expected]


def test_left_and_right_hear_of_each_other():
    names = ("nose", "left_eye", "right_eye", "left_ear", "right_ear")
    edges = ((0, 1), (0, 2), (2, 1), (1, 3), (2, 4))
    head = Skeleton("head", names, edges, (0, 2, 1, 4, 3), (0.05,) * 5)
    joined = [*edges, (3, 4)]  # the eyes are joined anyway
    expected = [*joined, *((b, a) for a, b in joined), *((k, k) for k in range(5))]
    assert directed_edges(head, "skeleton").tolist() == [list(e) for e in expected]


def test_without_structure_every_message_stays_where_it_is():
    alone, joined = (directed_edges(CHAIN, s) for s in ("none", "skeleton"))
    np.testing.assert_array_equal(alone[:, 0], alone[:, 1])
    np.testing.assert_array_equal(alone[:, 1], joined[:, 1])


def test_full_joins_every_pair_once():
    edges = directed_edges(CHAIN, "full")
    assert len(edges) == 16 and len({tuple(e) for e in edges.tolist()}) == 16


def test_unknown_structure():
    with pytest.raises(ValueError, match="'tree' is none of skeleton, none, full"):
        graphs([CHAIN], "tree")


def test_types_are_padded_to_one_shape():
    graph = graphs([CHAIN, PAIR])
    assert isinstance(graph, jraph.GraphsTuple)
    assert graph.senders.shape == graph.receivers.shape == graph.edges.shape == (2, 10)
    np.testing.assert_array_equal(graph.n_node, [[4, 0], [2, 2]])
    np.testing.assert_array_equal(graph.n_edge, [[10, 0], [4, 6]])
    np.testing.assert_array_equal(graph.edges[1], [0.5] * 4 + [0] * 6)
    assert not {0, 1} & {*graph.senders[1, 4:], *graph.receivers[1, 4:]}


def test_shares_of_what_a_keypoint_hears_add_up_to_one():
    graph = graphs([PAIR, CHAIN])
    for shares, receivers, count in zip(
        graph.edges, graph.receivers, (2, 4), strict=True
    ):
        heard = np.bincount(receivers, shares, minlength=4)
        np.testing.assert_allclose(heard[:count], 1.0, rtol=1e-6)


def test_evidence_is_zero_by_chance_and_bounded():
    uniform = np.full((2, 3), 1 / 6)
    np.testing.assert_allclose(evidence(uniform), np.log(1 + FLOOR), rtol=1e-6)
    sure = np.array([[1.0, 0.0, 0.0]])
    bounds = np.log([[3 + FLOOR, FLOOR, FLOOR]])
    np.testing.assert_allclose(evidence(sure), bounds, rtol=1e-6)


def one_cell(x, y, cells=15):
    heatmap = np.zeros((1, cells, cells), np.float32)
    heatmap[0, y, x] = 1
    return heatmap


def carried(heatmap, shift, width):
    return np.array(carry(heatmap, jnp.array([shift]), jnp.array([width])))[0]


def test_carrying_moves_the_mean_and_widens_by_the_blur():
    # x to the right, y down; fractions of a cell too.
    moved = carried(one_cell(6, 8), (2.25, -3.5), (1.0, 0.8))
    y, x = np.mgrid[:15, :15]
    np.testing.assert_allclose(moved.sum(), 1.0, rtol=1e-3)
    np.testing.assert_allclose((moved * x).sum(), 8.25, atol=2e-3)
    np.testing.assert_allclose((moved * y).sum(), 4.5, atol=2e-3)
    np.testing.assert_allclose((moved * (x - 8.25) ** 2).sum(), 1.0, rtol=2e-2)
    np.testing.assert_allclose((moved * (y - 4.5) ** 2).sum(), 0.64, rtol=2e-2)


def test_two_peaks_stay_two_peaks():
    both = carried((one_cell(3, 3) + one_cell(9, 9)) / 2, (2.0, 1.0), (0.6, 0.6))
    assert {divmod(i, 15) for i in np.argsort(both.ravel())[-2:]} == {(4, 5), (10, 11)}


def test_what_leaves_the_map_is_lost():
    assert carried(one_cell(1, 7), (-10.0, 0.0), (0.5, 0.5)).sum() < 1e-6


@functools.cache
def network(structure, rounds):
    """The corrected maps and vectors as a function, with weights as after training."""
    model = SkeletonGraph((CHAIN, PAIR), rounds, structure)
    skeleton = np.array([0, 1])
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 4, FEATURES)).astype(np.float32)
    maps = rng.normal(size=(2, 4, CELLS, CELLS)).astype(np.float32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), vectors, maps, skeleton)
    weights = jax.tree.map(
        lambda x: rng.normal(0, 0.5, x.shape).astype(np.float32), shapes
    )
    apply = jit(functools.partial(model.apply, weights))
    return apply, vectors, maps, skeleton


def influence(structure, rounds):
    """bool [receiver, sender] of both samples: what a change of one node changes."""
    apply, vectors, maps, skeleton = network(structure, rounds)
    before = jax.device_get(apply(vectors, maps, skeleton))
    reached = []
    for sender in range(4):
        rng = np.random.default_rng(sender)
        changed = vectors.copy(), maps.copy()
        for x in changed:
            x[:, sender] += rng.normal(size=x[:, sender].shape)
        after = jax.device_get(apply(*changed, skeleton))
        differs = [
            (a != b).any(tuple(range(2, a.ndim)))
            for a, b in zip(after, before, strict=True)
        ]
        reached.append(differs[0] | differs[1])
    chain, pair = np.stack(reached, axis=-1)
    return chain, pair[:2, :2]


ADJACENT = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]], bool)


def test_a_message_goes_to_direct_neighbours_only():
    chain, pair = influence("skeleton", 1)
    np.testing.assert_array_equal(chain, ADJACENT)
    assert pair.all()


def test_a_second_round_reaches_one_keypoint_further():
    chain, _ = influence("skeleton", 2)
    np.testing.assert_array_equal(chain, ADJACENT @ ADJACENT)


def test_without_structure_keypoints_do_not_know_of_each_other():
    chain, pair = influence("none", 2)
    np.testing.assert_array_equal(chain, np.eye(4, dtype=bool))
    np.testing.assert_array_equal(pair, np.eye(2, dtype=bool))


def test_in_the_full_graph_all_hear_all():
    chain, pair = influence("full", 1)
    assert chain.all() and pair.all()


def test_maps_travel_themselves():
    # The vectors stay: only the neighbour's map can have changed the receiver's.
    apply, vectors, maps, skeleton = network("skeleton", 1)
    changed = maps.copy()
    changed[0, 1] = changed[0, 1, ::-1]
    before, after = (apply(vectors, m, skeleton) for m in (maps, changed))
    np.testing.assert_array_equal(before[0], after[0])
    difference = np.abs(after[1] - before[1]).max((2, 3))[0]
    np.testing.assert_array_equal(difference > 0, ADJACENT[1])


def test_a_keypoint_that_is_not_seen_is_where_its_neighbour_points():
    # Weights of zero but for what edges do with maps: 3 cells to the right, 2 up.
    model = SkeletonGraph((PAIR,), 1)
    vectors = np.zeros((1, 2, FEATURES), np.float32)
    maps = np.stack([evidence(one_cell(6, 9, cells=16))[0], np.zeros((16, 16))])[None]
    skeleton = np.array([0])
    shapes = jax.eval_shape(model.init, jax.random.key(0), vectors, maps, skeleton)
    weights = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    quarter = 16 / 4
    way = weights["params"]["round0"]["way"]
    way["bias"] = np.array([3 / quarter, -2 / quarter, -9, -9, 1], np.float32)
    _, after = jit(model.apply)(weights, vectors, maps, skeleton)
    assert divmod(int(after[0, 1].argmax()), 16) == (7, 9)


def test_before_training_maps_are_as_they_came():
    _, vectors, maps, skeleton = network("skeleton", 1)
    model = SkeletonGraph((CHAIN, PAIR), 1)
    run = jit(model.init_with_output)
    (_, after), _ = run(jax.random.key(0), vectors, maps, skeleton)
    np.testing.assert_array_equal(after, maps)


def test_one_program_serves_every_mixture_of_types():
    apply, vectors, maps, _ = network("skeleton", 1)
    mixed, of_a_kind = (
        apply(vectors, maps, np.array(types)) for types in ([0, 1], [1, 1])
    )
    assert apply._cache_size() == 1
    np.testing.assert_array_equal(mixed[0][1], of_a_kind[0][1])
    assert (np.asarray(mixed[0][0]) != of_a_kind[0][0]).any()


def test_the_control_has_as_many_parameters():
    def count(structure):
        model = SkeletonGraph((CHAIN, PAIR), 2, structure)
        shapes = jax.eval_shape(model.init, jax.random.key(0), *network("none", 2)[1:])
        return sum(x.size for x in jax.tree.leaves(shapes))

    assert count("none") == count("skeleton")


def test_jraph_is_known_to_one_module_only():
    here = pathlib.Path(skeleton_graph.__file__)
    modules = here.parents[2].rglob("facekp_jax/**/*.py")
    assert [p for p in modules if "import jraph" in p.read_text("utf-8")] == [here]
