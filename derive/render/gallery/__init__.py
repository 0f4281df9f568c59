"""Figures that a paper could print, one for each family of laws, and their page."""

from derive.render.gallery.pages import PLATES, gallery_page, write_gallery
from derive.render.gallery.panel import Plate, Sampling

__all__ = ["PLATES", "Plate", "Sampling", "gallery_page", "write_gallery"]
