# SPDX-License-Identifier: GPL-2.0
# For Sphinx: `make docs`.
import re

project = "ZRS"
author = "The ZRS authors"
project_copyright = "2026, the ZRS authors"
with open("../userspace/Cargo.toml", encoding="utf-8") as f:
    release = version = re.search(r'^version = "(.*)"', f.read(), re.M)[1]
language = "en"
html_theme = "alabaster"
html_theme_options = {"description": "zero-copy RDMA sockets", "page_width": "80em", "body_max_width": "none", "code_font_size": "0.8em",
                      "fixed_sidebar": True}
html_show_sourcelink = False
# Literal blocks are commands and their output as often as code.
highlight_language = "none"
extensions = []
exclude_patterns = ["man"]
html_extra_path = ["grafana.json"]
