"""Hooks of the documentation site: its navigation and its links out of docs/."""

import os
import posixpath
import re
import shutil

from mkdocs.structure.files import File

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w+)[^\n]*$", re.MULTILINE)


def slugify(text, separator):
    """Returns the anchor of a heading as GitHub makes it, which the pages link to."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def on_config(config):
    """Makes the navigation from the sections and tables of docs/README.md."""
    config.mdx_configs["toc"]["slugify"] = slugify
    nav, listed = [{"Documentation": "README.md"}], set()
    with open(os.path.join(config.docs_dir, "README.md"), encoding="utf-8") as page:
        for line in page:
            if line.startswith("## "):
                nav.append({line[3:].strip(): []})
            elif line.startswith("| ") and len(nav) > 1:
                first = line.split(" | ")[0]
                for name, target in LINK.findall(first):
                    if target.endswith(".md") and not target.startswith("../") and target not in listed:
                        listed.add(target)
                        next(iter(nav[-1].values())).append({name: target})
    nav.append({"Commands": "commands.md"})
    config.nav = nav
    return config


def on_files(files, config):
    """Adds the reference of commands, which a test makes from their help texts."""
    root = os.path.dirname(config.docs_dir)
    with open(os.path.join(root, "cmd/pipeline/testdata/commands.md"), encoding="utf-8") as page:
        files.append(File.generated(config, "commands.md", content=page.read()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Sends links that leave docs/ to the repository, and drops the marks that only the tests read."""
    folder = posixpath.dirname(page.file.src_uri)

    def outside(match):
        text, target = match.groups()
        if re.match(r"[a-z]+:|#|/", target):
            return match.group(0)
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return match.group(0)
        return f"[{text}]({config.repo_url}/blob/main/{path})"

    return FENCE.sub(r"```\1", LINK.sub(outside, markdown))


def on_post_build(config):
    """Adds the pages as they are written, which llms.txt links to."""
    for folder, _, names in os.walk(config.docs_dir):
        for name in names:
            if name.endswith(".md"):
                path = os.path.relpath(os.path.join(folder, name), config.docs_dir)
                target = os.path.join(config.site_dir, path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(os.path.join(folder, name), target)
