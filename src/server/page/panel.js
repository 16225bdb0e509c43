// The live panel: figures of the last answer, of the running one and of the server.
const panel = (() => {
  const SAMPLES = 60;
  let speeds = [], arrivals = [], last = null, props = null, roof = null, totals = null, health = {}, used = null;

  const pairs = (id, rows) => $(id).replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {textContent: name}), el("dd", {textContent: value})]));

  // A bar of parts [{name, value, text}] on the scale of `most`, with its legend.
  function stack(title, total, parts, most, {first = 1, caption = ""} = {}) {
    const shown = parts.filter((part) => part.value > 0);
    const track = el("div", {className: "track"}), key = el("ul", {className: "key"});
    shown.forEach((part) => {
      const color = "s" + ((parts.indexOf(part) + first - 1) % 8 + 1), bar = el("i", {className: color, title: part.name + " " + part.text});
      bar.style.width = 100 * part.value / most + "%";
      track.append(bar);
      key.append(el("li", {}, el("i", {className: color}), part.name + " " + part.text));
    });
    track.setAttribute("role", "img");
    track.setAttribute("aria-label", title + ": " + shown.map((part) => part.name + " " + part.text).join(", "));
    return el("div", {className: "stack"}, el("div", {className: "top"}, el("span", {textContent: title}), el("b", {textContent: total})), track,
        caption ? el("p", {className: "quiet", textContent: caption}) : "", shown.length > 1 ? key : "");
  }

  // The last answer of this page, else the sum of all answers since the server's start, in one form.
  function figures() {
    if (last) return {...last, of: "last answer"};
    if (!totals || !(totals.decode_seconds_total > 0)) return null;
    const t = totals, accepted = t.accepted_tokens_total || [], drafted = t.drafted_tokens_total || [];
    const tokens = t.output_tokens_total - t.first_token_seconds_count;  // the first one belongs to the prompt
    return {
      of: "all answers", decode_ms: 1e3 * t.decode_seconds_total, decode_tok_s: tokens / t.decode_seconds_total, draft_ms: 1e3 * t.draft_seconds_total,
      verify_ms: 1e3 * t.verify_seconds_total, sample_ms: 1e3 * t.accept_seconds_total, bytes_per_token: t.decode_bytes_total / tokens,
      prefill_tok_s: (t.prompt_tokens_total - t.cached_tokens_total) / t.prefill_seconds_total, accept_length: drafted.length ? tokens / t.cycles_total : 0,
      acceptance: drafted.map((n, i) => (accepted[i] || 0) / n), first_token_ms: 1e3 * t.first_token_seconds_sum / t.first_token_seconds_count,
    };
  }

  function speed(f, now) {
    $("speed-of").textContent = now ? "now" : f ? f.of : "";
    $("speed").textContent = now ? show.number(now) : f ? show.number(f.decode_tok_s) : "\u2013";
    pairs("speed-list", f ? [["Prompt", show.number(f.prefill_tok_s) + " tok/s"], ["First token", show.time(f.first_token_ms)]] : []);
    const most = Math.max(...speeds, 1), step = 240 / (SAMPLES - 1), from = SAMPLES - speeds.length;
    const points = speeds.map((y, i) => `${((from + i) * step).toFixed(1)},${(39 - 36 * y / most).toFixed(1)}`);
    $("spark").querySelector(".line").setAttribute("d", points.length > 1 ? "M" + points.join("L") : "");
    $("spark").querySelector(".area").setAttribute("d", points.length > 1 ? `M${(from * step).toFixed(1)},40L${points.join("L")}L240,40Z` : "");
  }

  function drafts(f) {
    const on = f && f.accept_length > 0;
    $("accept").textContent = on ? show.number(f.accept_length, 2) : f ? "1" : "\u2013";
    $("positions").replaceChildren(...(on ? f.acceptance : []).map((rate, i) => {
      const bar = el("i"), track = el("div", {className: "track"}, bar);
      bar.style.width = 100 * rate + "%";
      return el("li", {}, el("span", {textContent: i + 1, title: "position of the draft"}), track, el("span", {textContent: show.percent(rate)}));
    }));
    if (f && !on) $("positions").append(el("li", {className: "quiet", textContent: ""}));
  }

  function time(f) {
    if (!f) { $("time").replaceChildren(el("p", {className: "quiet", textContent: "after the first answer"})); return; }
    const tokens = f.decode_ms * f.decode_tok_s / 1e3, per = f.decode_ms / tokens;
    if (!(tokens > 0)) return;
    const measured = [["drafts", f.draft_ms], ["model", f.verify_ms], ["sampling", f.sample_ms], ["rest", f.decode_ms - f.draft_ms - f.verify_ms - f.sample_ms]]
      .map(([name, ms]) => ({name, value: Math.max(0, ms / tokens), text: show.time(Math.max(0, ms / tokens))}));
    const floor = roof?.bandwidth_bytes_s ? 1e3 * f.bytes_per_token / roof.bandwidth_bytes_s : 0;
    const parts = [...(roof?.pass || [])].sort((a, b) => b.bytes - a.bytes), sum = parts.reduce((total, part) => total + part.bytes, 0);
    const passMs = roof?.bandwidth_bytes_s ? 1e3 * sum / roof.bandwidth_bytes_s : 0;
    const rest = parts.splice(7).reduce((total, part) => total + part.bytes, 0);
    const pass = [...parts, {name: "other", bytes: rest}].map(({name, bytes}) => ({name, value: bytes / sum * passMs, text: show.bytes(bytes)}));
    const most = Math.max(per, floor, passMs);
    const out = [stack("Measured", show.time(per), measured, most)];
    if (floor) {
      out.push(stack("Bandwidth roof", show.time(floor), [{name: "roof", value: floor, text: show.time(floor)}], most, {first: 6,
        caption: `${show.bytes(f.bytes_per_token)} read per token at ${show.number(roof.bandwidth_bytes_s / 1e9)} GB/s: ${show.percent(floor / per)} of the bandwidth used`}));
      out.push(stack("Roof of one plain pass", show.time(passMs), pass, most));
    } else if (roof?.measured) {
      out.push(el("p", {className: "quiet", textContent: "The bandwidth was not measured: the memory limit leaves no room for it."}));
    }
    $("time").replaceChildren(...out);
  }

  function context() {
    const out = [], size = props?.context || 0;
    if (used && size) out.push(stack("This conversation", `${show.count(used.tokens)} of ${show.count(size)}`, [{name: "context", value: used.tokens, text: show.count(used.tokens) + " tokens"}], size));
    if (used?.prompt) {
      out.push(stack("Last prompt", show.percent(used.cached / used.prompt) + " cached", [{name: "cached", value: used.cached, text: show.count(used.cached)},
        {name: "read", value: used.prompt - used.cached, text: show.count(used.prompt - used.cached)}], used.prompt, {first: 4}));
    }
    if (totals?.prompt_tokens_total > 0) {
      const {prompt_tokens_total: all, cached_tokens_total: cached} = totals;
      out.push(stack("All prompts", show.percent(cached / all) + " cached", [{name: "cached", value: cached, text: show.count(cached)}, {name: "read", value: all - cached, text: show.count(all - cached)}], all, {first: 4}));
    }
    $("context").replaceChildren(...(out.length ? out : [el("p", {className: "quiet", textContent: "after the first answer"})]));
  }

  function memory() {
    if (!props) return;
    const m = props.memory, parts = ["weights", "caches", "activations", "working"].map((name) => ({name, value: m[name] || 0, text: show.bytes(m[name] || 0)}));
    const total = parts.reduce((sum, part) => sum + part.value, 0);
    $("memory").replaceChildren(stack(m.limit ? "Planned, limit " + show.bytes(m.limit) : "Planned", show.bytes(total), parts, m.limit || total));
  }

  function server() {
    if (!props) return;
    pairs("server", [["Model", props.model], ["Layers", props.layers], ["Context", show.count(props.context)], ["Build", props.build]]);
    $("plan").textContent = [props.plan, ...(props.notes || [])].join("\n");
  }

  function queue() {
    const t = totals || {}, served = t.queue_seconds_count || 0;
    pairs("queue", [["Answering", health.running ?? "\u2013"], ["Waiting", health.waiting ?? "\u2013"], ["Mean wait", served ? show.time(1e3 * t.queue_seconds_sum / served) : "\u2013"],
      ["Answers", show.count(served)], ["Connections", t.connections ?? "\u2013"]]);
  }

  function draw() {
    const f = figures(), since = performance.now() - 3000, recent = arrivals.filter((at) => at > since);
    const now = recent.length > 2 ? 1e3 * (recent.length - 1) / (performance.now() - recent[0]) : 0;
    speed(f, now);
    drafts(f);
    time(f);
    context();
    queue();
  }

  let ticker = 0;
  return {
    draw,
    setProps(value) { props = value; memory(); server(); draw(); },
    setRoof(value) { roof = value; draw(); },
    roofKnown: () => Boolean(roof?.measured),
    setTotals(value) { totals = value; draw(); },
    setHealth(value) { health = value; queue(); },
    setUsed(value) { used = value; context(); },
    // An answer begins: its pieces are counted as they come, at about one token each.
    begin() {
      arrivals = [];
      clearInterval(ticker);
      ticker = setInterval(() => {
        const since = performance.now() - 1000;
        arrivals = arrivals.filter((at) => at > since - 2000);
        const recent = arrivals.filter((at) => at > since);
        if (recent.length > 1) speeds = [...speeds, 1e3 * (recent.length - 1) / (performance.now() - recent[0])].slice(-SAMPLES);
        draw();
      }, 250);
    },
    piece() { arrivals.push(performance.now()); },
    end(timings) {
      clearInterval(ticker);
      arrivals = [];
      if (timings?.decode_tok_s > 0) {
        last = timings;
        speeds = [...speeds, timings.decode_tok_s].slice(-SAMPLES);
      }
      draw();
    },
  };
})();
