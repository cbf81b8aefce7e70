"""What is different in data sets of the two forms, for commands that copy and count."""

from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from tqdm import tqdm

from data_prep.readers import Tally
from facekp_jax import keypoint_images, lesion_images
from facekp_jax.keypoint_images import KeypointImages
from facekp_jax.lesion_images import LesionImages
from facekp_jax.records import KeypointImage, LesionImage


class Form(NamedTuple):
    """One form of data sets."""

    module: ModuleType  # writes it
    labels: str  # attribute of a source: what its photos are labelled for
    found: str  # attribute of a photo: what is on it
    settings: tuple[str, ...]  # attributes of a source that `write` is given too

    def check_writable(
        self, directory: str, split: str, settings: Mapping[str, Any]
    ) -> None:
        """Raises the ValueError that `write` would raise before its first photo."""
        # Branches may be others in each split, so that they are not checked.
        checked = {key: settings[key] for key in settings if key != "branches"}
        self.module.check_writable(directory, split, **checked)

    def line(self, title: str, counts: Mapping[str, Any]) -> str:
        """How many photos a split has, and what is on them."""
        labels = ", ".join(
            f"{name} {n[self.found] if isinstance(n, Mapping) else n:,}"
            for name, n in counts[self.labels].items()
        )
        return (
            f"{title}: {counts['photos']:,} photos, {counts[self.found]:,} "
            f"{self.found} ({labels})"
        )


FORMS = {
    LesionImages: Form(
        lesion_images, "branches", "regions", ("face_detector", "apply_exif")
    ),
    KeypointImages: Form(keypoint_images, "skeletons", "instances", ("apply_exif",)),
}


def readable(
    source: LesionImages | KeypointImages,
    numbers: Iterable[int],
    title: str,
    tally: Tally,
) -> Iterator[tuple[LesionImage | KeypointImage, bytes]]:
    """These records of a split, as `write` takes them; what is damaged is refused."""
    for number in tqdm(numbers, desc=title, unit="photo", disable=None):
        try:
            yield source.with_bytes(number)
        except ValueError as error:
            tally.refused("photos", str(error), f"{title}, photo {number}")


def keypoint_table(counts: Mapping[str, Any]) -> Iterator[str]:
    """Lines that say how often each keypoint of a target type is labelled."""
    if counts["instances"]:
        yield f"{'keypoint':24}{'unlabelled':>12}{'occluded':>12}{'visible':>12}"
        for keypoint, numbers in counts["keypoints"].items():
            yield f"{keypoint:24}" + "".join(f"{n:12,}" for n in numbers)
