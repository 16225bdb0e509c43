"""The page at / in headless Chromium: what people do with it. Run by `.ci/run browser`, not by `make test` (it needs a browser)."""

import json
import re
import signal

import pytest
from playwright.sync_api import expect

from chrome import chromium, server, visit, without_end  # noqa: F401  (fixtures)
from server_support import QUESTION, WEATHER, Server

GREEDY = {"temperature": "0"}
# Random tokens, with endless=True thinking that never ends by itself: to be watched, stopped and left, on the fastest machine.
LONG = {"temperature": "100", "seed": "7", "max_tokens": "60000"}
LAST = "article.assistant.last"
DONE = LAST + "[aria-busy=false]"
TANK = "A tank of Bella holds 91 liters. 36 liters flow in. 13 liters leak out. How many liters are in it in the end?"


def send(page, text, wait=True):
    page.fill("#message", text)
    page.press("#message", "Enter")
    if wait:
        expect(page.locator("#go")).to_have_attribute("aria-label", "Send")
        page.wait_for_selector(DONE)


def text_of(page, selector=LAST):
    return page.locator(f"{selector} > .md").inner_text().strip()


def reasoning_of(page):
    return page.evaluate("Object.values(store.all()[0].nodes).sort((a, b) => a.at - b.at).at(-1).reasoning")


def plain(text):
    """What is left of an answer when its Markdown has become elements."""
    return re.sub(r"[#*\s]+", " ", text).strip()


# ---- sending, streaming ----


def test_an_answer_streams_and_is_the_servers(server, visit):
    page = visit(server, settings={**LONG, "max_tokens": "1500"}, endless=True)
    send(page, TANK, wait=False)
    page.wait_for_selector(LAST + "[aria-busy=true] .think:visible")
    page.wait_for_function("() => document.querySelector('article.last .what').textContent === 'Thinking'")
    # Piece by piece: the node grows many times before it is complete.
    grown = page.evaluate("""async () => { const sizes = new Set();
      while (run) { sizes.add(run.node.reasoning.length + run.node.content.length); await new Promise(done => setTimeout(done, 5)); } return sizes.size; }""")
    page.wait_for_selector(DONE)
    assert grown > 5
    whole = server.chat(TANK, max_tokens=1500, temperature=100, seed=7, **without_end(server))["choices"][0]
    node = page.evaluate("store.path(chat).at(-1)")
    assert (node["content"], node["reasoning"]) == (whole["message"]["content"], whole["message"]["reasoning_content"])
    assert node["finish"] == whole["finish_reason"] and node["usage"]["completion_tokens"] > 100


def test_reasoning_is_folded_and_opens(server, visit):
    page = visit(server, settings=GREEDY)
    send(page, TANK)
    whole = server.chat(TANK, max_tokens=4000)["choices"][0]["message"]
    assert plain(text_of(page)) == plain(whole["content"])
    assert reasoning_of(page) == whole["reasoning_content"]
    thought = page.locator(LAST + " .thought")
    expect(thought).to_be_hidden()
    # With its text at once, not a moment after it has opened.
    at_once = page.evaluate("""last => { document.querySelector(last + " summary").click();
      return document.querySelector(last + " .thought").textContent; }""", LAST)
    assert plain(at_once) == plain(whole["reasoning_content"])
    expect(thought).to_be_visible()
    assert plain(thought.inner_text()) == plain(whole["reasoning_content"])


def test_the_next_turn_reads_only_what_is_new(server, visit):
    page = visit(server, settings=GREEDY)
    send(page, QUESTION)
    send(page, "Ann has 5 pens and gives 2 away. How many pens does Ann have?")
    usage = page.evaluate("store.path(chat).at(-1).usage")
    before = page.evaluate("store.path(chat)[1].usage")
    assert usage["prompt_tokens_details"]["cached_tokens"] >= before["prompt_tokens"] + before["completion_tokens"] - 1, (before, usage)


def test_stop_keeps_what_there_is(server, visit):
    page = visit(server, settings=LONG, endless=True)
    for how in ("button", "escape"):
        send(page, QUESTION, wait=False)
        page.wait_for_function("() => run?.node.reasoning.length > 5")
        page.click("#go") if how == "button" else page.keyboard.press("Escape")
        page.wait_for_selector(DONE)
        server.wait_idle(20)
        expect(page.locator(LAST + " .note")).to_contain_text("Stopped by you")
        assert reasoning_of(page)
        page.click("#new")


def test_answer_now_ends_the_thinking(server, visit):
    page = visit(server, settings=LONG, endless=True)
    send(page, TANK, wait=False)
    page.wait_for_function("() => run?.node.reasoning.length > 3")
    page.click(LAST + " .now")
    page.wait_for_function("() => run?.node.content.length > 3")
    expect(page.locator(LAST + " .now")).to_be_hidden()
    page.keyboard.press("Escape")
    page.wait_for_selector(DONE)
    usage, reasoning = page.evaluate("store.path(chat).at(-1).usage"), reasoning_of(page)
    full = server.chat(TANK, max_tokens=20000, temperature=100, seed=7, **without_end(server))["choices"][0]["message"]["reasoning_content"]
    assert usage is None and 0 < len(reasoning) < len(full) and full.startswith(reasoning.rstrip("\ufffd"))


def test_edit_and_regenerate_keep_the_other_versions(server, visit):
    page = visit(server, settings=GREEDY)
    send(page, TANK)
    first = text_of(page)
    page.hover("article.user")
    page.click("article.user .edit-button")
    expect(page.locator(".edit textarea")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("article.user .bubble")).to_contain_text("13 liters leak")
    page.hover("article.user")
    page.click("article.user .edit-button")
    page.fill(".edit textarea", TANK.replace("13", "23"))
    page.keyboard.press("Enter")
    page.wait_for_selector("article.user .ways")
    page.wait_for_selector(DONE)
    expect(page.locator("article.user")).to_have_count(1)
    expect(page.locator("article.user .bubble")).to_contain_text("23 liters leak")
    second = text_of(page)
    assert "104" in second and "114" in first
    page.click("article.user .ways .icon >> nth=0")
    expect(page.locator("article.user .bubble")).to_contain_text("13 liters leak")
    assert text_of(page) == first
    page.hover(LAST)
    page.click(LAST + " .again-button")
    page.wait_for_selector(DONE + " .ways")
    expect(page.locator(DONE + " .ways")).to_have_text("2/2")
    assert text_of(page) == first  # greedy


# ---- conversations ----


def test_conversations_stay_over_a_reload(server, visit):
    page = visit(server, settings=GREEDY)
    send(page, TANK)
    first = text_of(page)
    page.keyboard.press("Alt+n")
    expect(page.locator("#title")).to_have_text("New chat")
    send(page, QUESTION)
    second = text_of(page)
    page.reload()
    page.wait_for_selector(DONE)
    assert text_of(page) == second
    expect(page.locator("#list .open")).to_have_count(2)
    page.click("#list .open >> text=A tank of Bella")
    assert text_of(page) == first
    expect(page.locator("#list [aria-current]")).to_contain_text("A tank of Bella")


def test_rename_delete_undo_export(server, visit):
    page = visit(server, settings=GREEDY)
    send(page, TANK)
    page.click("#list [aria-label^=Rename]")
    page.keyboard.type("My tank")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("My tank")
    with page.expect_download() as download:
        page.click("#export")
    exported = open(download.value.path(), encoding="utf-8").read()
    assert download.value.suggested_filename == "My tank.md" and exported.startswith("# My tank") and TANK in exported
    with page.expect_download() as download:
        page.click("#export-all")
    kept = json.load(open(download.value.path(), encoding="utf-8"))
    assert [chat["title"] for chat in kept] == ["My tank"] and len(kept[0]["nodes"]) == 2
    page.click("#list [aria-label^=Delete]")
    expect(page.locator("#list .open")).to_have_count(0)
    expect(page.locator("#empty")).to_be_visible()
    page.click("#toast button")
    expect(page.locator("#title")).to_have_text("My tank")
    page.click("#list [aria-label^=Delete]")
    page.reload()
    expect(page.locator("#list .open")).to_have_count(0)


def test_a_reload_in_the_middle_keeps_the_part(server, visit):
    page = visit(server, settings=LONG, endless=True)
    send(page, QUESTION, wait=False)
    page.wait_for_function("() => Object.values(store.all()[0]?.nodes || {}).some(n => n.running && n.reasoning.length > 5)")
    page.reload()
    server.wait_idle(20)
    expect(page.locator(LAST + " .note")).to_contain_text("left before the end")
    assert reasoning_of(page)


def test_two_tabs_see_the_same_list(server, visit):
    page = visit(server, settings=GREEDY)
    other = page.context.new_page()
    other.goto(server.url)
    send(page, QUESTION)
    expect(other.locator("#list .open")).to_have_count(1)


# ---- when things go wrong ----


def test_server_gone_and_back(visit):
    with Server() as server:
        page = visit(server, settings=GREEDY)
        page.expected = ["ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING"]
        send(page, QUESTION)
        first = text_of(page)
        server.stop(signal.SIGKILL)
        expect(page.locator("#banner")).to_contain_text("No connection")
        expect(page.locator("#status-text")).to_have_text("no connection")
        send(page, "What is 2 + 3?")
        expect(page.locator(LAST + " .note.bad")).to_contain_text("No connection to the server")
        with Server("--port", server.port):
            expect(page.locator("#banner")).to_be_hidden()
            expect(page.locator("#toast")).to_contain_text("back")
            page.click(LAST + " .note button")
            page.wait_for_selector(DONE)
            expect(page.locator(LAST + " .note")).to_be_hidden()
            assert text_of(page)
            assert first == page.locator("article.assistant >> nth=0").locator("> .md").inner_text().strip()
            expect(page.locator("article.assistant")).to_have_count(2)


def test_server_gone_in_the_middle_of_an_answer(visit):
    with Server() as server:
        page = visit(server, settings=LONG, endless=True)
        page.expected = ["ERR_"]
        send(page, QUESTION, wait=False)
        page.wait_for_function("() => run?.node.reasoning.length > 5")
        server.stop(signal.SIGKILL)
        page.wait_for_selector(DONE)
        assert reasoning_of(page)
        expect(page.locator(LAST + " .note.bad")).to_contain_text("onnection")


def test_the_servers_errors_are_shown(visit):
    with Server("--context", "128") as server:
        page = visit(server)
        page.expected = ["400 (Bad Request)"]
        send(page, "word " * 400)
        note = page.locator(LAST + " .note.bad")
        expect(note).to_contain_text("128")
        expect(page.locator("#spoken")).to_contain_text("128")
        expect(note.locator("button")).to_have_text("Try again")


def test_a_waiting_request_says_how_many_are_before_it(server, visit):
    sock = server.open_stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "max_tokens": 60000})
    try:
        server.wait_busy()
        page = visit(server)
        send(page, QUESTION, wait=False)
        expect(page.locator(LAST + " .waiting")).to_contain_text("1 before you")
    finally:
        sock.close()
    page.wait_for_selector(DONE)


def test_the_key_is_asked_for_once(visit):
    with Server("--api-key", "s3cret") as server:
        status, headers, _ = server.get("/")
        assert status == 401 and "nonce-" in headers["Content-Security-Policy"]
        page = visit(server, settings=GREEDY)
        page.expected = ["401 (Unauthorized)"]
        expect(page.locator("#key-text")).to_be_focused()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_contain_text("does not take")
        page.fill("#key-text", "s3cret")
        page.keyboard.press("Enter")
        expect(page.locator("#key")).to_be_hidden()
        expect(page.locator("#empty h2")).to_contain_text("ling-nano")
        send(page, TANK)
        assert "114" in text_of(page)
        page.reload()
        page.wait_for_selector(DONE)
        send(page, QUESTION)
        expect(page.locator("#key")).to_be_hidden()
        kept = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage)]")
        assert "s3cret" in kept[0] and "s3cret" not in json.dumps(kept[1])


# ---- what a model writes is text ----

HOSTILE = ["<script>window.bad=1</script>", "<img src=x onerror=window.bad=1>", "<b onclick=window.bad=1>x</b>", "[go](javascript:window.bad=1)",
           "![p](https://evil.example/x.png)", "<iframe src=//evil.example>", "[a](data:text/html,<script>window.bad=1</script>)",
           "`<script>`", "[x](https://ok.example/\"onmouseover=window.bad=1)", "<style>*{display:none}</style>", "&lt;script&gt;", "[x](JaVaScRiPt:alert(1))"]


def test_html_in_an_answer_stays_text(server, visit):
    """The stream of a real answer with hostile texts put into its pieces, on the way to the page."""
    page = visit(server, settings={**GREEDY, "tools": json.dumps([WEATHER])})
    hostile = "\n\n".join(HOSTILE)

    def spoil(route):
        answer = route.fetch()
        lines, seen = [], set()
        for line in answer.text().split("\n"):
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                for choice in event["choices"]:
                    delta = choice["delta"]
                    for name in ("reasoning_content", "content"):
                        if delta.get(name):
                            delta[name] = "" if name in seen else hostile
                            seen.add(name)
                    if choice["finish_reason"]:  # and a call with everything hostile
                        delta.update({name: hostile for name in ("reasoning_content", "content") if name not in seen})
                        delta["tool_calls"] = [{"index": 0, "id": "<b>x</b>", "function": {"name": HOSTILE[1], "arguments": json.dumps({"a": hostile})}}]
                        choice["finish_reason"] = "tool_calls"
                line = "data: " + json.dumps(event)
            lines.append(line)
        route.fulfill(response=answer, body="\n".join(lines))

    page.route("**/v1/chat/completions", spoil)
    send(page, HOSTILE[0] + hostile)
    node = page.evaluate("store.path(chat).at(-1)")
    assert hostile in node["content"] and hostile in node["reasoning"] and node["calls"][0]["name"] == HOSTILE[1]
    page.click(LAST + " summary")
    for _ in range(2):
        shown = page.locator(LAST).inner_text()
        assert all(text in shown for text in HOSTILE if text[0] == "<"), shown
        expect(page.locator("article.user .bubble")).to_contain_text(HOSTILE[0])
        expect(page.locator(LAST + " .tool h3 code")).to_have_text(HOSTILE[1])
        expect(page.locator("#list .open")).to_contain_text("<script>")
        for place in ("main", "#list"):
            assert page.locator(place).locator("script, img, iframe, style, b, [href^=javascript i], [href^=data i]").count() == 0
        assert page.evaluate("window.bad ?? null") is None
        page.reload()
        page.wait_for_selector(DONE)


def test_markdown_makes_only_harmless_elements(server, visit):
    """All hostile texts inside all constructs, and thousands of random mixtures."""
    page = visit(server)
    found = page.evaluate("""hostile => {
      const tags = new Set(), links = new Set(), wrong = [];
      const wraps = [x => x, x => '# ' + x, x => '> ' + x, x => '- ' + x, x => '1. ' + x, x => '**' + x + '**', x => '| a | ' + x + ' |\\n|---|---|\\n| ' + x + ' | b |',
        x => '```html\\n' + x + '\\n```', x => '```' + x, x => '[' + x + '](https://ok.example)', x => '[ok](' + x + ')', x => '*' + x + '*', x => '~~' + x + '~~', x => '> - ' + x];
      const pieces = ['*', '**', '_', '`', '```', '\\n', '\\n\\n', '> ', '- ', '1. ', '|', '|---|', '[', '](', ')', '  ', 'a', 'https://', '\\\\', '#', '~~', ...hostile];
      let seed = 1;
      const random = n => (seed = (seed * 48271) % 2147483647) % n;
      const texts = hostile.flatMap(x => wraps.map(w => w(x)));
      for (let i = 0; i < 4000; ++i) texts.push(Array.from({length: 1 + random(24)}, () => pieces[random(pieces.length)]).join(''));
      const at = document.createElement('div');
      document.body.append(at);
      for (const text of texts) {
        markdown.show(at, text);
        for (const e of at.querySelectorAll('*')) {
          tags.add(e.tagName.toLowerCase());
          for (const a of e.attributes) if (/^on|^style|^src$/.test(a.name) || (a.name === 'href' && e.tagName === 'A' && !/^(https?|mailto):/.test(a.value))) wrong.push(text);
        }
      }
      at.remove();
      return {tags: [...tags], wrong, bad: window.bad};
    }""", HOSTILE)
    assert not found["wrong"] and found.get("bad") is None, found
    assert set(found["tags"]) <= {"p", "h2", "h3", "h4", "h5", "ul", "ol", "li", "blockquote", "hr", "div", "span", "button", "svg", "use", "pre", "code", "table", "thead",
                                  "tbody", "tr", "th", "td", "a", "strong", "em", "s"}, found["tags"]


@pytest.mark.parametrize("text", ["*" * 20000, "**a " * 6000, "`" * 20000, "[" * 20000, "> " * 5000 + "x", "- " * 3000 + "x", "|" * 20000 + "\n" + "|-" * 9000 + "|",
                                  "_a" * 10000, "~~x" * 7000, "```\n" * 3000, "1. a\n" * 5000])
def test_markdown_ends_on_odd_texts(server, visit, text):
    page = visit(server)
    assert page.evaluate("text => { const at = document.createElement('div'); markdown.show(at, text); return at.childNodes.length; }", text) >= 1


def test_markdown_in_full(server, visit):
    page = visit(server)
    html = page.evaluate("""() => { const at = document.createElement('div');
      markdown.show(at, '# T\\n\\na **b** *c* `d` ~~e~~ [f](https://x.example/y) 2*3*4 snake_case_name\\n\\n1. one\\n2. two\\n   - deep\\n\\n```py\\nx = "<b>"\\n```\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n> q');
      at.querySelectorAll('.head, svg').forEach(e => e.remove()); return at.innerHTML; }""")
    for part in ("<h2>T</h2>", "<strong>b</strong>", "<em>c</em>", "<code>d</code>", "<s>e</s>", 'href="https://x.example/y"', "snake_case_name", "<ol start=\"1\">",
                 "<ul><li><p>deep</p></li></ul>", "x = \"&lt;b&gt;\"", "<th>a</th>", "<td>2</td>", "<blockquote"):
        assert part in html, (part, html)
    # A growing text keeps the blocks that it has.
    assert page.evaluate("""() => { const at = document.createElement('div');
      markdown.show(at, 'one\\n\\ntwo'); const first = at.firstChild; markdown.show(at, 'one\\n\\ntwo three\\n\\n- x');
      return at.firstChild === first && at.children.length === 3; }""")


def test_nothing_comes_from_elsewhere(server, visit):
    page = visit(server)
    hosts = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.reload()
    send(page, QUESTION)
    assert hosts == {f"127.0.0.1:{server.port}"}
    page.expected = ["Content Security Policy", "violates"]
    assert page.evaluate("""async () => { const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s);
      let out = false; try { await fetch('https://example.org/'); out = true; } catch {} return [window.bad ?? null, out]; }""") == [None, False]


# ---- settings, tools ----


def test_settings_reach_the_request(server, visit):
    page = visit(server)
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.url.endswith("/chat/completions") else None)
    page.click("#tab-settings")
    expect(page.locator("[name=temperature]")).to_have_attribute("placeholder", "0.6")
    for name, value in {"system": "Be brief.", "temperature": "0", "top_p": "0.5", "top_k": "7", "min_p": "0.1", "repetition_penalty": "1.1", "presence_penalty": "0.5",
                        "frequency_penalty": "0.25", "seed": "5", "max_tokens": "30", "stop": "alpha\nbeta", "thinking_budget": "9"}.items():
        page.fill(f"[name={name}]", value)
    send(page, QUESTION)
    body = bodies[-1]
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    want = {"temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.25, "seed": 5,
            "max_tokens": 30, "stop": ["alpha", "beta"], "thinking_budget": 9}
    assert {name: body[name] for name in want} == want
    page.click("#think")
    expect(page.locator("#think")).to_have_attribute("aria-pressed", "false")
    send(page, QUESTION)
    assert bodies[-1]["chat_template_kwargs"] == {"enable_thinking": False} and "thinking_budget" not in bodies[-1]
    assert page.evaluate("store.path(chat).at(-1).usage.completion_tokens_details.reasoning_tokens") == 0
    page.reload()
    expect(page.locator("#think")).to_have_attribute("aria-pressed", "false")
    page.click("#tab-settings")
    page.click("#defaults")
    send(page, QUESTION)
    assert set(bodies[-1]) == {"messages", "stream", "stream_options"}


@pytest.mark.parametrize("name, value", [("top_p", "2"), ("temperature", "-1"), ("max_tokens", "0"), ("seed", "1.5"), ("tools", "[{"), ("tools", "{}")])
def test_wrong_settings_are_said_and_not_sent(server, visit, name, value):
    page = visit(server)
    sent = []
    page.on("request", lambda request: sent.append(request.url) if request.url.endswith("/chat/completions") else None)
    page.click("#tab-settings")
    page.fill(f"[name={name}]", value)
    page.click("#tab-live")
    page.fill("#message", QUESTION)
    page.press("#message", "Enter")
    expect(page.locator(f"[name={name}]")).to_be_focused()
    expect(page.locator("#settings-error")).not_to_be_empty()
    assert page.input_value("#message") == QUESTION and not sent
    page.fill(f"[name={name}]", "")
    page.press("#message", "Enter")
    page.wait_for_selector(DONE)


def test_tool_calls_are_shown_and_take_results(server, visit):
    page = visit(server, settings={**GREEDY, "tools": json.dumps([WEATHER])})
    send(page, "What is the weather in Paris?")
    card = page.locator(LAST + " .tool")
    expect(card.locator("code")).to_have_text("get_weather")
    assert json.loads(card.locator("pre").inner_text()) == {"city": "Paris"}
    card.locator("textarea").fill('{"weather": "sunny", "temperature": 21}')
    page.click(LAST + " .buttons .main")
    page.wait_for_function("() => document.querySelectorAll('article.assistant[aria-busy=false]').length === 2")
    assert "21" in text_of(page) or "sunny" in text_of(page)
    expect(page.locator("article.tool")).to_contain_text("Result of get_weather")
    page.reload()
    expect(page.locator("article.tool")).to_contain_text("sunny")


# ---- the live panel ----


@pytest.fixture
def drafting():
    """With a depth of its own: the automatic one may find that drafts do not pay now, and answer without."""
    with Server("--draft", "2") as running:
        yield running


def test_the_panel_shows_the_figures_of_the_answer(drafting, visit):
    page = visit(drafting, settings=GREEDY)
    send(page, TANK)
    timings = page.evaluate("store.path(chat).at(-1).timings")
    shown = float(page.locator("#speed").inner_text().replace(",", ""))
    assert abs(shown - timings["decode_tok_s"]) <= max(1, 0.01 * shown)
    assert float(page.locator("#accept").inner_text()) == pytest.approx(timings["accept_length"], abs=0.01)
    expect(page.locator("#positions li")).to_have_count(len(timings["acceptance"]))
    parts = page.locator("#time .stack >> nth=0").inner_text()
    assert all(word in parts for word in ("drafts", "model", "sampling")), parts
    page.wait_for_selector("#time >> text=Bandwidth roof")
    expect(page.locator("#time")).to_contain_text("GB/s")
    expect(page.locator("#time")).to_contain_text("experts")
    memory = drafting.get("/props")[2]["memory"]
    assert f"{sum(memory[k] for k in ('weights', 'caches', 'activations', 'working')) / 2 ** 20:.0f} MiB" in page.locator("#memory").inner_text()
    expect(page.locator("#queue")).to_contain_text("Waiting")
    expect(page.locator("#context")).to_contain_text("of 65,536")
    for track in page.locator("#live [role=img]").all():
        assert track.get_attribute("aria-label")
    page.click("#live summary")
    expect(page.locator("#plan")).to_contain_text("cpu")


def test_a_running_answer_shows_its_speed(server, visit):
    page = visit(server, settings=LONG, endless=True)
    send(page, "Tell me a story.", wait=False)
    expect(page.locator("#speed-of")).to_have_text("now")
    page.keyboard.press("Escape")
    page.wait_for_selector(DONE)


# ---- keyboard, screen reader, sizes, colours ----


def names(page):
    return page.evaluate("""() => [...document.querySelectorAll('button, input, textarea, select, summary, a[href]')].filter(e => e.checkVisibility()).map(e =>
      [e.outerHTML.slice(0, 90), (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || '').trim()])""")


def test_everything_has_a_name_and_the_page_has_a_shape(server, visit):
    page = visit(server, settings={**GREEDY, "tools": json.dumps([WEATHER])})
    send(page, "What is the weather in Paris?")
    for tab in ("live", "settings"):
        page.click("#tab-" + tab)
        assert not [html for html, name in names(page) if not name]
    shape = page.evaluate("""() => ({h1: document.querySelectorAll('h1').length, main: document.querySelectorAll('main').length, lang: document.documentElement.lang,
      log: document.getElementById('log').getAttribute('role'), live: document.getElementById('spoken').getAttribute('aria-live'),
      twice: [...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i),
      broken: [...document.querySelectorAll('[aria-controls],[aria-labelledby]')].filter(e => !document.getElementById(e.getAttribute('aria-controls') || e.getAttribute('aria-labelledby'))).length,
      icons: [...document.querySelectorAll('button svg')].filter(e => e.getAttribute('aria-hidden') !== 'true').length,
      uses: [...document.querySelectorAll('use')].filter(e => !document.querySelector(e.getAttribute('href'))).length})""")
    assert shape == {"h1": 1, "main": 1, "lang": "en", "log": "log", "live": "polite", "twice": [], "broken": 0, "icons": 0, "uses": 0}


def test_a_screen_reader_hears_the_answer(server, visit):
    page = visit(server, settings=GREEDY)
    send(page, TANK)
    expect(page.locator("#spoken")).to_contain_text("Answer: ")
    expect(page.locator("#spoken")).to_contain_text("114")


def test_keyboard_alone(server, visit):
    page = visit(server, settings=GREEDY)
    page.evaluate("document.activeElement.blur()")
    page.evaluate("document.body.focus()")
    page.keyboard.press("Shift+Tab")
    page.evaluate("document.querySelector('.skip').focus()")
    box = page.locator(".skip").bounding_box()
    assert box["y"] >= 0, "the skip link shows when it has the focus"
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_be_focused()
    page.keyboard.type(QUESTION)
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Think.")
    assert page.input_value("#message") == QUESTION + "\nThink."
    page.keyboard.press("Enter")
    page.wait_for_selector(DONE)
    expect(page.locator("#message")).to_be_focused()
    # The way through the page: in the order of the document, each stop visible with a ring, none a trap.
    page.evaluate("document.querySelector('.skip').focus()")
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = page.evaluate("""() => { const e = document.activeElement, r = e.getBoundingClientRect(), s = getComputedStyle(e);
          return e === document.body ? null : [e.id || e.getAttribute('aria-label') || e.textContent.slice(0, 30), r.width > 0 && r.height > 0,
            s.outlineStyle !== 'none' || e.id === 'message']; }""")
        if stop is None:
            break
        seen.append(stop[0])
        assert stop[1] and stop[2], stop
    order = [seen.index(name) for name in ("new", "export-all", "theme", "export", "panel-open", "log", "message", "think", "tab-live", "panel-close", "live")]
    assert order == sorted(order), seen
    page.focus("#tab-live")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-settings")).to_be_focused()
    expect(page.locator("#settings")).to_be_visible()
    # Fold, edit and ask again without a mouse.
    page.focus(LAST + " summary")
    page.keyboard.press("Enter")
    expect(page.locator(LAST + " .thought")).to_be_visible()
    page.focus("article.user .edit-button")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("article.user .edit-button")).to_be_focused()
    page.focus(LAST + " .again-button")
    page.keyboard.press("Enter")
    page.wait_for_selector(DONE + " .ways")
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    expect(page.locator("#message")).to_be_focused()


WIDE = "| a | b |\n|---|---|\n" + "| " + "word" * 60 + " | x |\n\n```\n" + "x" * 400 + "\n```\n\n" + "y" * 500 + "\n\n> " + "z" * 300 + "\n\n1. " + "w" * 300


@pytest.mark.parametrize("width, height", [(320, 600), (390, 844), (820, 1100), (1180, 800)])
def test_no_sideways_scrolling(server, visit, width, height):
    page = visit(server, width=width, height=height, settings={**GREEDY, "max_tokens": "40"}, has_touch=width < 800)
    page.fill("#message", "Copy this text exactly:\n" + "u" * 300)
    page.click("#go")
    page.wait_for_selector(DONE)
    page.evaluate("text => { const node = store.path(chat).at(-1); node.content = text; store.put(chat); render(); }", WIDE)
    assert page.evaluate("[document.documentElement.scrollWidth, document.querySelector('#log').scrollWidth - document.querySelector('#log').clientWidth]") == [width, 0]
    if width > 820:
        return
    for opener, drawer, closer in (("#side-open", "#side", "#side-close"), ("#panel-open", "#panel", "#panel-close")):
        if not page.locator(opener).is_visible():
            continue
        page.click(opener)
        expect(page.locator(drawer)).to_be_visible()
        expect(page.locator(closer)).to_be_focused()
        assert page.evaluate("document.querySelector('main').inert")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.keyboard.press("Escape")
        expect(page.locator(drawer)).to_be_hidden()
        expect(page.locator(opener)).to_be_focused()
        assert not page.evaluate("document.querySelector('main').inert")


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = color => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility({opacityProperty: true}) || e.closest('[disabled], .hidden, .skip, script, style, noscript')) continue;
    const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) out.push([e.tagName + '.' + e.className, walk.currentNode.data.trim().slice(0, 30), ratio]);
  }
  return out;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_can_be_read(server, visit, scheme):
    page = visit(server, settings={**GREEDY, "tools": json.dumps([WEATHER])}, color_scheme=scheme)
    send(page, TANK)
    send(page, "What is the weather in Paris?")
    page.click("article.assistant summary >> nth=0")
    page.evaluate("() => { const node = store.path(chat)[1]; node.content = '# Title\\n\\n`code` [link](https://x.example)\\n\\n> quote\\n\\n```py\\nx\\n```'; node.error = 'Wrong.'; render(); }")
    page.wait_for_selector("#time >> text=Bandwidth roof")
    shade = page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", shade)[:3])) > 382) == (scheme == "light"), shade
    for tab in ("live", "settings"):
        page.click("#tab-" + tab)
        assert page.evaluate(CONTRAST) == []
    other = "dark" if scheme == "light" else "light"
    while other not in page.inner_text("#theme"):
        page.click("#theme")
    assert page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor") != shade
    page.reload()
    assert page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor") != shade


def test_reduced_motion_is_respected(server, visit):
    page = visit(server, settings=LONG, endless=True, reduced_motion="reduce")
    send(page, QUESTION, wait=False)
    page.wait_for_selector(LAST + "[aria-busy=true]")
    assert page.evaluate("document.getAnimations().length") == 0
    page.keyboard.press("Escape")
    page.wait_for_selector(DONE)
