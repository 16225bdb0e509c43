// Requests to the server: the key, errors in the API's form, server-sent events.
class Failure extends Error {
  constructor(message, more = {}) { super(message); Object.assign(this, more); }
}

const api = (() => {
  const KEY = "sparkling.key";
  let asking = null;

  // One dialog however many requests wait for it. Rejects when it is closed without a key.
  function askKey(wrong) {
    asking ??= new Promise((resolve, reject) => {
      const dialog = $("key"), field = $("key-text");
      field.value = "";
      $("key-error").textContent = wrong ? "The server does not take this key." : "";
      $("key-form").onsubmit = (event) => {
        event.preventDefault();
        if (!field.value.trim()) return;
        sessionStorage.setItem(KEY, field.value.trim());
        dialog.close();
        resolve();
      };
      dialog.onclose = () => { asking = null; reject(new Failure("This server asks for an API key.", {status: 401})); };
      dialog.showModal();
      field.focus();
    });
    return asking;
  }

  // fetch with the key; asks for it when the server does. `quiet`: a request in the background, which does not ask again.
  let refused = false;
  async function request(path, {quiet, ...options} = {}) {
    for (;;) {
      if (quiet && (refused || asking)) throw new Failure("no key", {status: 401});
      const key = sessionStorage.getItem(KEY);
      const headers = {...(options.body ? {"Content-Type": "application/json"} : {}), ...(key ? {Authorization: "Bearer " + key} : {})};
      const answer = await fetch(path, {...options, headers, cache: "no-store"});
      if (answer.status !== 401) { refused = false; return answer; }
      if (sessionStorage.getItem(KEY) !== key) continue;  // another request has got a new one meanwhile
      try { await askKey(key !== null); refused = false; } catch (error) { refused = true; throw error; }
    }
  }

  async function failure(answer) {
    let message = "HTTP status " + answer.status, more = {};
    try {
      const {error} = await answer.json();
      message = error.message;
      more = {param: error.param, code: error.code};
    } catch { /* not JSON: the status says it */ }
    const retry = parseInt(answer.headers.get("Retry-After"), 10) || 0;
    return new Failure(message, {...more, status: answer.status, retry});
  }

  async function json(path, options) {
    const answer = await request(path, options);
    if (!answer.ok) throw await failure(answer);
    return answer.json();
  }

  // The metrics that carry no labels, and those by position, as {name: number | [number...]}.
  async function metrics() {
    const answer = await request("/metrics", {quiet: true});
    if (!answer.ok) throw await failure(answer);
    const out = {};
    for (const line of (await answer.text()).split("\n")) {
      const found = /^sparkling_(\w+)(?:\{position="(\d+)"\})? (\S+)$/.exec(line);
      if (!found) continue;
      if (found[2]) (out[found[1]] ??= [])[found[2] - 1] = Number(found[3]);
      else out[found[1]] = Number(found[3]);
    }
    return out;
  }

  // Yields {comment} and {data} as they come.
  async function* events(answer) {
    const reader = answer.body.getReader(), decoder = new TextDecoder();
    try {
      for (let rest = "";;) {
        const {done, value} = await reader.read();
        if (done) return;
        const lines = (rest + decoder.decode(value, {stream: true})).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith(":")) yield {comment: line.slice(1).trim()};
          else if (line === "data: [DONE]") return;
          else if (line.startsWith("data: ")) yield {data: JSON.parse(line.slice(6))};
        }
      }
    } finally { reader.cancel().catch(() => {}); }
  }

  return {
    json, metrics,
    // Starts an answer; hands out events until its end. Throws Failure with a status, or whatever fetch throws.
    async* chat(body, signal) {
      const answer = await request("/v1/chat/completions", {method: "POST", body: JSON.stringify(body), signal});
      if (!answer.ok) throw await failure(answer);
      yield* events(answer);
    },
    answerNow: (id) => request("/v1/chat/completions/" + encodeURIComponent(id) + "/stop_thinking", {method: "POST", body: "{}"}),
    // {state: "ok" | "busy" | "loading" | "stopping" | "gone", ...what /health says}
    async health() {
      try {
        const got = await (await fetch("/health", {cache: "no-store", signal: AbortSignal.timeout(4000)})).json();
        return {...got, state: got.status === "ok" && got.running > 0 ? "busy" : got.status};
      } catch { return {state: "gone"}; }
    },
  };
})();
