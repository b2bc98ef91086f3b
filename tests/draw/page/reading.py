"""What a reader sees and does on a page."""

from playwright.sync_api import Locator, Page


def titles(page: Page) -> list[str]:
    """The titles of the sheet's boxes, in their order."""
    return page.locator(".item .title").all_text_contents()


def item(page: Page, title: str) -> Locator:
    """The box with this title; of several the first."""
    return page.locator(".item", has=page.locator(".title").get_by_text(title, exact=True)).first


def crumbs(page: Page) -> list[str]:
    return page.locator("#breadcrumbs .crumb").all_text_contents()


def labels(page: Page) -> list[str]:
    return page.locator(".wire .label text").all_text_contents()


def in_flow(page: Page) -> list[str]:
    """The titles of what is highlighted."""
    return page.locator(".item.in-flow .title").all_text_contents()


def chosen(page: Page) -> str:
    return page.locator("#details h2").inner_text()


def address(page: Page) -> str:
    return page.evaluate("location.hash")
