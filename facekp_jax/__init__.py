"""Small structured things in pictures, in JAX and Flax: skin regions of a face.

The library is importable on its own: records and pictures on the host,
fixed-shape arrays on the device, models, losses, metrics and drawing. Images are RGB
uint8, points are (x, y) in continuous pixels with the centre of the top-left pixel at
(0.5, 0.5), boxes are xyxy.
"""

__version__ = "0.1.0"
