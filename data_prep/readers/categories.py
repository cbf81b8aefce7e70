"""Categories of an annotation file become branches, or target types."""

import dataclasses
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

Target = TypeVar("Target")  # a branch's name, or the skeleton of a target type
GROUPS = ("category", "supercategory", "all:NAME")


@dataclasses.dataclass(frozen=True)
class Categories(Generic[Target]):
    """What the categories of a source become: branches, or skeletons of types."""

    # By the category's id.
    target_of: Mapping[Hashable, Target] = dataclasses.field(default_factory=dict)
    # Id of a category that means none -> its name.
    none: Mapping[Hashable, str] = dataclasses.field(default_factory=dict)
    rest: Target | None = None  # of any other id; None: such an id is a fault

    @property
    def targets(self) -> tuple[Target, ...]:
        """Each of them once."""
        found = [*self.target_of.values(), *([self.rest] if self.rest else [])]
        return tuple(dict.fromkeys(found))

    def target(self, category: Any) -> Target | None:
        """The category's target, None if it means none; ValueError if not declared."""
        try:
            if category in self.none:
                return None
            return self.target_of[category]
        except (KeyError, TypeError) as error:
            if self.rest:
                return self.rest
            raise ValueError(f"category {category!r} is not declared") from error


def categories(
    declared: Sequence[Mapping[str, Any]],
    *,
    group: str,
    none: Iterable[str] = (),
    where: Any,
) -> Categories[str]:
    """Groups the categories that a source declares.

    Args:
        declared: per category `id`, `name` and perhaps `supercategory`, as in COCO.
        group: what makes a branch: each "category", each "supercategory", or
            "all:NAME" for one branch NAME of all categories. Where none are declared
            only the last works, and takes every id.
        none: names of categories that say that there is nothing.
        where: names the declaration in messages.

    Raises:
        ValueError: if the group or a name in `none` does not fit the declaration.
    """
    kind, _, name = group.partition(":")
    single = branch_name(name) if kind == "all" and name else None
    if not single and group not in GROUPS[:2]:
        raise ValueError(f"--group={group}: use one of {', '.join(GROUPS)}")
    if not declared and not single:
        raise ValueError(
            f"{where}: no categories; --group=all:NAME makes one branch of everything"
        )
    field = "supercategory" if group == "supercategory" else "name"
    branch_of = {}
    for category in declared:
        known = "id" in category and isinstance(category["id"], Hashable)
        if not known or not (single or category.get(field)):
            raise ValueError(f"{where}: category {category} has no id or no {field}")
        if category["id"] in branch_of:
            raise ValueError(f"{where}: category id {category['id']} is there twice")
        branch_of[category["id"]] = single or branch_name(category[field])
    nothing = {}
    named = {
        c["id"]: branch_name(c["name"]) for c in declared if none and c.get("name")
    }
    for name in map(branch_name, none):
        ids = [i for i, other in named.items() if other == name]
        if not ids:
            raise ValueError(
                f"--none={name}: no such category; {where} has "
                f"{', '.join(named.values()) or 'none at all'}"
            )
        nothing |= dict.fromkeys(ids, name)
    branch_of = {i: branch for i, branch in branch_of.items() if i not in nothing}
    if not branch_of and not single:
        raise ValueError(f"--none={','.join(none)}: no category is left as a branch")
    # One branch of everything is there even if nothing was declared for it.
    return Categories(branch_of, nothing, None if branch_of else single)


def branch_name(name: Any) -> str:
    """'Dark circle' -> 'dark_circle', as branches are named in metrics and losses.

    Raises:
        ValueError: if nothing is left of the name.
    """
    branch = re.sub(r"\W+", "_", str(name).strip().lower())
    if not branch.strip("_"):
        raise ValueError(f"{name!r} has no letter or digit to name a branch by")
    return branch
