"""Procedural faces with skin lesions and their exact masks."""

import dataclasses

import numpy as np

from data_prep.synthetic import face_lesions, face_light
from data_prep.synthetic.face_scene import Face
from facekp_jax.records import LesionImage

BRANCHES = ("acne", "spot", "mole", "wrinkle", "dark_circle")


@dataclasses.dataclass(frozen=True)
class SyntheticFaces:
    """A source of faces whose every lesion is known to the pixel.

    Record i depends on (seed, i) only. Regions of branches a photo is not labelled
    for are drawn, but are not in its record.
    """

    length: int
    seed: int = 0
    partly_labelled: bool = True  # about a third of the photos

    branches = BRANCHES
    face_detector = "haar"
    apply_exif = True
    max_regions = face_lesions.MOST

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(f"face {index} of a source of {self.length}")
        rng = np.random.default_rng((self.seed, index))
        grain, pores = face_light.noise(self.seed)
        face = Face(rng)
        face.draw_scene()
        face_light.shade(face, pores)
        regions = face_lesions.add(face)
        face_light.expose(face, grain)
        labelled = _labelled(rng) if self.partly_labelled else BRANCHES
        return LesionImage(
            name=f"face-{self.seed}-{index:06d}",
            image=face.image,
            regions=tuple(r for r in regions if r.branch in labelled),
            labelled=labelled,
            face=face.box,
        )


def _labelled(rng):
    if rng.random() < 2 / 3:
        return BRANCHES
    kept = rng.permutation(len(BRANCHES))[: rng.integers(1, len(BRANCHES))]
    return tuple(branch for i, branch in enumerate(BRANCHES) if i in kept)
