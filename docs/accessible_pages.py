"""What the theme's pages lack for a screen reader: a hook of mkdocs that names the search dialog."""

from typing import Any

DIALOG = '<div class="md-search" data-md-component="search" role="dialog"'


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Give the search dialog a name; end the build where the theme writes it in another way."""
    if DIALOG not in output:
        raise ValueError("the theme writes its search dialog otherwise: mend docs/accessible_pages.py")
    return output.replace(DIALOG, f'{DIALOG} aria-label="Search"').replace("<th></th>", "<td></td>")
