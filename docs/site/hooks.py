# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites links to files outside the site as links to the repository."""

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)(#[^)\s]*)?(?=\))")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(page.file.src_uri)

    def rewrite(link):
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        anchor = link[2] or ""
        if files.get_file_from_path(path):
            return link[0]
        target = ROOT / path
        if target.is_dir():
            readme = posixpath.join(path, "README.md")
            if files.get_file_from_path(readme):
                return posixpath.relpath(readme, folder or ".") + anchor
            return f"{config.repo_url}/tree/main/{path}"
        if target.is_file():
            return f"{config.repo_url}/blob/main/{path}{anchor}"
        return link[0]  # mkdocs reports it

    parts, last = [], 0
    for block in CODE.finditer(markdown):
        parts += [LINK.sub(rewrite, markdown[last : block.start()]), block[0]]
        last = block.end()
    return "".join(parts) + LINK.sub(rewrite, markdown[last:])
