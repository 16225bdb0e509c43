"""A real Chromium on a real server. CHROMIUM names the browser (default: the system's); a missing one is a failure, never a skip."""

import json
import os
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from server_support import Server, end_of_thinking

PATIENCE = 90000  # ms: how long a busy machine may take for anything; nothing here is timed
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def chromium():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "no browser: tools/setup.sh ci installs chromium; CHROMIUM names another"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server():
    with Server("--keep-alive", "1") as running:
        yield running


def without_end(server):
    """Fields of a chat request that keep it thinking up to its limit of tokens, or until it is stopped."""
    return {"ignore_eos": True, "logit_bias": {str(end_of_thinking(server)): -1000}}


@pytest.fixture
def visit(chromium):
    """visit(server, width=.., height=.., **context) opens the page in a fresh browser profile.

    With endless=True its chat requests also carry `without_end`, which the page itself has no settings for.

    Whatever the page writes to the console as an error fails the test at its end, violations of the content security policy
    included; `page.expected` lists parts of messages that the test means to cause.
    """
    contexts = []

    def go(server, width=1440, height=900, settings=None, endless=False, **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.errors, page.expected = [], []
        page.on("console", lambda message: page.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        contexts.append((context, page))
        if endless:
            more = without_end(server)
            page.route("**/v1/chat/completions", lambda route: route.continue_(
                post_data=json.dumps({**route.request.post_data_json, **more})))
        if settings is not None:
            page.goto(server.url)
            page.evaluate("settings => localStorage.setItem('sparkling.settings', JSON.stringify(settings))", settings)
        page.goto(server.url)
        return page

    yield go
    unexpected = []
    for context, page in contexts:
        unexpected += [text for text in page.errors if not any(part in text for part in page.expected)]
        context.close()
    assert not unexpected, unexpected
