"""Keypoints of a person or an animal, corrected by the skeleton.

A keypoint network gives one heatmap for each keypoint of the sample's target type, and
the first points. A graph over the skeleton then corrects each keypoint's feature by its
neighbours', and the corrected features give the second heatmaps and points. Types share
everything but their output channels, their graph and its embeddings of keypoints and
edges.
"""

from collections.abc import Mapping, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from facekp_jax import boxes, heatmaps
from facekp_jax.models.backbones import FeaturePyramid, SmallBackbone, standardise
from facekp_jax.models.layers import space_to_depth
from facekp_jax.models.skeleton_graph import SkeletonGraph, evidence
from facekp_jax.skeletons import Skeleton

STRIDES = (4, 8, 16)  # pixels, of the maps that are sampled at a point
GRID = 16  # cells along each side of the picture, of the maps that neighbours exchange
EMBEDDING = 16  # numbers that a keypoint is known by


class HeatmapEncoder(nn.Module):
    """One code for a whole heatmap; it knows where in the picture the evidence is."""

    features: int

    @nn.compact
    def __call__(self, maps: jax.Array) -> jax.Array:  # [N, h, w] -> [N, features]
        x = space_to_depth(maps[..., None], 4)
        x = nn.relu(nn.Dense(32, name="patches")(x))
        x = space_to_depth(x, 2)
        x = nn.relu(nn.Dense(32, name="parts")(x))
        return nn.Dense(self.features, name="code")(x.reshape(len(x), -1))


class Correction(nn.Module):
    """The second heatmaps: each keypoint's feature, corrected by the graph, decoded."""

    skeletons: Sequence[Skeleton]
    features: int
    rounds: int
    structure: str

    @nn.compact
    def __call__(
        self,
        levels: Sequence[jax.Array],
        logits: jax.Array,
        points: jax.Array,
        confidence: jax.Array,
        skeleton: jax.Array,
    ) -> jax.Array:
        """Adds to the first logits what the corrected features say.

        Where the maps are sampled, and the coordinates and the confidence that a node
        is told, carry no gradient: an error of the second points reaches the keypoint
        network through the heatmaps and the sampled features.

        Args:
            levels: feature maps [B, h, w, C] at STRIDES.
            logits: [B, K, h, w], the first.
            points: [B, K, 2], the first, pixels.
            confidence: [B, K] of the first points.
            skeleton: int [B], which of the skeletons a sample has.

        Returns:
            [B, K, h, w], before anything is learned the first logits.
        """
        batch, count, height, width = logits.shape
        points, confidence = jax.lax.stop_gradient((points, confidence))
        heatmap = nn.softmax(logits, axis=(-2, -1))
        encoder = HeatmapEncoder(self.features, name="encoder")
        code = encoder(evidence(heatmap).reshape(-1, height, width))
        at = jnp.concatenate([points, points], axis=-1)  # boxes without area
        seen = [
            boxes.roi_align(level, at, size=1, stride=stride)[:, :, 0, 0]
            for level, stride in zip(levels, STRIDES, strict=True)
        ]
        sides = STRIDES[0] * jnp.array([width, height])
        most = max(len(s.keypoints) for s in self.skeletons)
        embedding = self.param(
            "keypoints",
            nn.initializers.normal(1.0),
            (len(self.skeletons), most, EMBEDDING),
        )
        node = (
            code.reshape(batch, count, -1),
            *seen,
            2 * points / sides - 1,
            confidence[..., None],
            embedding[skeleton],
        )
        vectors = nn.Dense(self.features, name="node")(jnp.concatenate(node, axis=-1))
        vectors = nn.LayerNorm(name="norm")(vectors)
        coarse = jax.image.resize(heatmap, (batch, count, GRID, GRID), "linear")
        before = evidence(coarse * (height * width / GRID**2))
        graph = SkeletonGraph(self.skeletons, self.rounds, self.structure, name="graph")
        vectors, after = graph(vectors, before, skeleton)

        def decoded(features, name):
            zero = nn.initializers.zeros
            return nn.Dense(features, kernel_init=zero, name=name)(vectors)

        place = after - before + decoded(GRID**2, "place").reshape(before.shape)
        look = decoded(levels[0].shape[-1], "look")
        doubt = nn.tanh(decoded(1, "doubt"))[..., None]
        return (
            (1 - doubt) * logits
            + jax.image.resize(place, logits.shape, "linear")
            + jnp.einsum("bhwc,bkc->bkhw", levels[0], look)
        )


class StructuredKeypoints(nn.Module):
    """From the picture of one person or animal to its keypoints, first and second."""

    skeletons: Sequence[Skeleton]
    backbone: nn.Module = SmallBackbone()
    features: int = 48  # channels of the pyramid
    node_features: int = 64
    rounds: int = 3  # of messages; 0: no graph, the second points are the first
    structure: str = "skeleton"  # of the graph: one of skeleton_graph.STRUCTURES
    flip_test: bool = False  # unless it trains, look at the mirrored picture too

    @nn.compact
    def __call__(
        self, batch: Mapping[str, jax.Array], train: bool
    ) -> dict[str, jax.Array]:
        """Runs the keypoint network and the graph.

        Args:
            batch: `image` uint8 [B, H, W, 3], sides multiples of 32; `skeleton` int
                [B], which of the skeletons each sample has.
            train: use (and update) batch statistics.

        Returns:
            `first_logits` and `second_logits` [B, K, H/4, W/4], whose softmax over
            positions is the heatmap; `first_points` and `second_points` [B, K, 2],
            pixels of the picture; `first_confidence` and `second_confidence` [B, K];
            `joints` bool [B, K], which keypoints the sample's type has: the others are
            padding, with zeros everywhere.

        Raises:
            ValueError: if there is a flip test and a skeleton cannot be mirrored.
        """
        image, skeleton = batch["image"], batch["skeleton"]
        mirrors = _mirrors(self.skeletons) if self.flip_test and not train else None
        if mirrors is not None:
            image = jnp.concatenate([image, image[:, :, ::-1]])
            skeleton = jnp.concatenate([skeleton, skeleton])
        counts = np.array([len(s.keypoints) for s in self.skeletons])
        joints = jnp.asarray(np.arange(counts.max()) < counts[:, None])[skeleton]
        maps = self.backbone(standardise(image), train)
        pyramid = FeaturePyramid(self.features, len(STRIDES), name="pyramid")
        levels = pyramid(maps, train)
        # Nearly zero: at first a keypoint can be anywhere.
        channels = self.param(
            "channels",
            nn.initializers.normal(0.01),
            (len(counts), self.features, counts.max()),
        )
        logits = jnp.einsum("bhwc,bck->bkhw", levels[0], channels[skeleton])
        first = second = _decoded(logits, joints)
        if self.rounds:
            correction = Correction(
                self.skeletons,
                self.node_features,
                self.rounds,
                self.structure,
                name="correction",
            )
            second = _decoded(correction(levels, *first, skeleton), joints)
        outputs = {"joints": joints[: len(batch["image"])]}
        for stage, found in (("first", first), ("second", second)):
            if mirrors is not None:
                logits = _mean(found[0], mirrors[batch["skeleton"]])
                found = _decoded(logits, outputs["joints"])
            names = (f"{stage}_{of}" for of in ("logits", "points", "confidence"))
            outputs |= dict(zip(names, found, strict=True))
        return outputs


def _decoded(logits, joints):
    """Logits [B, K, h, w], points and confidences; zeros where there is no joint."""
    logits = jnp.where(joints[..., None, None], logits, 0.0)
    points, confidence = heatmaps.decode(logits, STRIDES[0])
    points = jnp.where(joints[..., None], points, 0.0)
    return logits, points, jnp.where(joints, confidence, 0.0)


def _mirrors(skeletons):
    """int [T, K]: which keypoint each becomes in the mirrored picture."""
    count = max(len(skeleton.keypoints) for skeleton in skeletons)
    mirrors = np.tile(np.arange(count), (len(skeletons), 1))
    for row, skeleton in zip(mirrors, skeletons, strict=True):
        if skeleton.mirror is None:
            raise ValueError(
                f"skeleton {skeleton.name!r} does not say which keypoints a mirrored "
                "picture exchanges; add the mirror pairs to its skeleton file, or do "
                "without the flip test"
            )
        row[: len(skeleton.mirror)] = skeleton.mirror
    return jnp.asarray(mirrors)


def _mean(logits, mirrors):
    """Log of the mean heatmap of pictures and, the second half, mirrored pictures."""
    own, mirrored = jnp.split(nn.softmax(logits, axis=(-2, -1)), 2)
    mirrored = jax.vmap(heatmaps.mirror)(mirrored, mirrors)
    return jnp.log((own + mirrored) / 2 + 1e-20)
