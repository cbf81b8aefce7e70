"""Files of general formats: what cannot be parsed is an error that names the file."""

import json
import pathlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Hashable
from typing import Any

import yaml


def read_json(path: pathlib.Path) -> Any:
    """The contents of a JSON file; a ValueError names one that is none."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error


def read_yaml(path: pathlib.Path) -> Any:
    """The contents of a YAML file; a ValueError names one that is none."""
    data = path.read_bytes()
    try:
        return yaml.safe_load(data)
    except Exception as error:  # of YAML, or of what Python cannot make of a value
        raise ValueError(f"{path}: not YAML: {error}") from error


def xml_key(item: ElementTree.Element) -> Hashable:
    """Equal for elements that say the same, however deep they are."""
    return tuple(
        (part.tag, len(part), tuple(part.items()), (part.text or "").strip())
        for part in item.iter()
    )
