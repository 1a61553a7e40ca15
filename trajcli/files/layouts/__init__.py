"""How robot projects lay out their files: a table for each family."""

from trajcli.files.layouts.families import LAYOUTS, PLAIN, layout_of
from trajcli.files.layouts.layout import Layout, Member

__all__ = ["LAYOUTS", "PLAIN", "Layout", "Member", "layout_of"]
