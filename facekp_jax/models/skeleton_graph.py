"""The skeleton as a graph: keypoints tell their neighbours where they should be.

A node is a keypoint. Its feature is a vector and a coarse map of the evidence for each
position. Along every edge travel a vector and the sender's whole map, moved and blurred
as the two nodes' vectors suggest: a shoulder knows about where the elbow is, in which
direction depends on the picture. Each receiver adds up what it hears. Besides the
skeleton's edges there is one between a left keypoint and its right one: both look alike
and must not be taken for the same.

The spatial model is that of Tompson et al. (NeurIPS 2014), whose kernels are the same
for every picture; the rounds are interaction networks (Battaglia et al., NeurIPS 2016).
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from facekp_jax.skeletons import Skeleton

STRUCTURES = ("skeleton", "none", "full")
FLOOR = 0.1  # of evidence: how sure a map can be that a position is out of question
NARROWEST = 0.5  # cells, of the blur on the way along an edge


def evidence(heatmaps: jax.Array) -> jax.Array:
    """Log of how much likelier than by chance each position is: [..., h, w].

    It is bounded from below, so that no single map can veto a position for good.
    """
    return jnp.log(FLOOR + heatmaps * (heatmaps.shape[-2] * heatmaps.shape[-1]))


def directed_edges(skeleton: Skeleton, structure: str) -> np.ndarray:
    """Who hears whom: int32 [E, 2] of (sender, receiver), self edges last.

    Args:
        skeleton: of one target type.
        structure: "skeleton": its edges and mirror pairs, in both directions; "full":
            every pair; "none": as "skeleton", but every edge starts where it ends, so
            that the same parameters and operations work on each keypoint alone.

    Raises:
        ValueError: for another structure.
    """
    if structure not in STRUCTURES:
        raise ValueError(f"structure {structure!r} is none of {', '.join(STRUCTURES)}")
    nodes = range(len(skeleton.keypoints))
    if structure == "full":
        joined = [(a, b) for a in nodes for b in nodes if a != b]
    else:
        mirror = skeleton.mirror or nodes
        known = {frozenset(edge) for edge in skeleton.edges}
        sides = [(k, mirror[k]) for k in nodes if k < mirror[k]]
        edges = [*skeleton.edges, *(e for e in sides if frozenset(e) not in known)]
        joined = [*edges, *((b, a) for a, b in edges)]
    pairs = np.array([*joined, *((k, k) for k in nodes)], np.int32)
    if structure == "none":
        pairs[:, 0] = pairs[:, 1]
    return pairs


def graphs(
    skeletons: Sequence[Skeleton], structure: str = "skeleton"
) -> jraph.GraphsTuple:
    """The graphs of all target types, padded to one shape and stacked.

    Args:
        skeletons: T target types.
        structure: one of STRUCTURES, see `directed_edges`.

    Returns:
        A GraphsTuple whose arrays have a leading axis T: `senders` and `receivers`
        int32 [T, Emax]; `edges` float32 [T, Emax], the share that an edge's message
        has in what its receiver hears: 1 / (number of edges that end there), 0 for
        padding; `n_node` and `n_edge` int32 [T, 2], the type's own and the padding,
        which comes last. Nodes are to be filled in.

    Raises:
        ValueError: for an unknown structure.
    """
    pairs = [directed_edges(skeleton, structure) for skeleton in skeletons]
    nodes = np.array([len(skeleton.keypoints) for skeleton in skeletons], np.int32)
    edges = np.array([len(of_type) for of_type in pairs], np.int32)
    padded = np.full((len(pairs), edges.max(), 2), nodes.max() - 1, np.int32)
    share = np.zeros(padded.shape[:2], np.float32)
    for index, of_type in enumerate(pairs):
        padded[index, : len(of_type)] = of_type
        receivers = of_type[:, 1]
        share[index, : len(of_type)] = 1 / np.bincount(receivers)[receivers]
    return jraph.GraphsTuple(
        nodes=None,
        edges=share,
        senders=padded[..., 0],
        receivers=padded[..., 1],
        globals=None,
        n_node=np.stack([nodes, nodes.max() - nodes], axis=-1),
        n_edge=np.stack([edges, edges.max() - edges], axis=-1),
    )


def carry(maps: jax.Array, shift: jax.Array, width: jax.Array) -> jax.Array:
    """Moves and blurs heatmaps by a Gaussian; what leaves the map is lost.

    Args:
        maps: [E, g, g] probabilities.
        shift: [E, 2] of (x, y), cells.
        width: [E, 2] standard deviations of the blur in x and y, cells.

    Returns:
        [E, g, g]; shifts by fractions of a cell are exact.
    """
    cells = jnp.arange(maps.shape[-1])
    distance = cells[:, None] - cells - shift[..., None, None]  # [E, 2, to, from]
    width = width[..., None, None]
    kernel = jnp.exp(-0.5 * jnp.square(distance / width))
    kernel /= width * np.sqrt(2 * np.pi)
    columns, rows = kernel[:, 0], kernel[:, 1]
    return jnp.einsum("eij,ejk->eik", rows, maps) @ columns.swapaxes(-1, -2)


class Round(nn.Module):
    """One round of messages in the graph of one sample; weights shared by all edges."""

    features: int

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> jraph.GraphsTuple:
        """Corrects the nodes.

        Args:
            graph: nodes with `vector` [K, D] and `map` [K, g, g], evidence; edges with
                `embedding` [E, F] and `share` [E].

        Returns:
            The graph with corrected nodes.
        """

        def tell(edge, sender, receiver):
            share, grid = edge["share"], sender["heatmap"].shape[-1]
            both = (sender["vector"], receiver["vector"], edge["embedding"])
            x = jnp.concatenate(both, axis=-1)
            hidden = nn.relu(nn.Dense(self.features, name="hear")(x))
            # At first neighbours are told "near me" and do not listen: a shift by
            # chance would teach them that their neighbours are wrong.
            way = nn.Dense(5, kernel_init=nn.initializers.zeros, name="way")(hidden)
            shift, width, trust = jnp.split(way, (2, 4), axis=-1)
            heatmap = carry(
                sender["heatmap"],
                shift * grid / 4,
                NARROWEST + nn.softplus(width) * grid / 4,
            )
            return {
                "vector": share[:, None] * nn.Dense(self.features, name="say")(hidden),
                "map": (share[:, None] * trust)[..., None] * evidence(heatmap),
            }

        def correct(node, heard):
            x = jnp.concatenate([node["vector"], heard["vector"]], axis=-1)
            x = nn.relu(nn.Dense(self.features, name="hidden")(x))
            change = nn.Dense(self.features, name="change")(x)
            return {
                "vector": nn.LayerNorm(name="norm")(node["vector"] + change),
                "map": node["map"] + heard["map"],
            }

        heatmaps = nn.softmax(graph.nodes["map"], axis=(-2, -1))
        told = graph._replace(nodes=graph.nodes | {"heatmap": heatmaps})
        network = jraph.InteractionNetwork(tell, correct)
        return graph._replace(nodes=network(told).nodes)


class SkeletonGraph(nn.Module):
    """Rounds of messages; samples of different target types share a batch."""

    skeletons: Sequence[Skeleton]
    rounds: int
    structure: str = "skeleton"
    edge_features: int = 16

    @nn.compact
    def __call__(
        self, vectors: jax.Array, maps: jax.Array, skeleton: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Corrects each keypoint's feature by its neighbours'.

        Args:
            vectors: [B, K, D].
            maps: [B, K, g, g] evidence on a coarse grid of the picture.
            skeleton: int [B], which of the skeletons a sample has.

        Returns:
            Vectors and maps, corrected.
        """
        known = graphs(self.skeletons, self.structure)
        embedding = self.param(
            "edges",
            nn.initializers.normal(1.0),
            (*known.senders.shape, self.edge_features),
        )
        graph = known._replace(edges={"share": known.edges, "embedding": embedding})
        graph = jax.tree.map(lambda of_type: jnp.asarray(of_type)[skeleton], graph)
        graph = graph._replace(nodes={"vector": vectors, "map": maps})
        # Sample by sample, not as one graph with offsets: on many devices a gather
        # across the samples would fetch all of them.
        over_samples = nn.vmap(
            Round, variable_axes={"params": None}, split_rngs={"params": False}
        )
        for index in range(self.rounds):
            graph = over_samples(vectors.shape[-1], name=f"round{index}")(graph)
        return graph.nodes["vector"], graph.nodes["map"]
