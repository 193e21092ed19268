// What all pages share: rendering, polling of the resources, formats and components. docs/page.md describes the page.
import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";

export { html, useEffect, useMemo, useRef, useState };

const API = "api/v1/";
const TOKEN_KEY = "tidegate.token";
const POLL_TIMEOUT_MS = 8_000;
// As long as the daemon takes for an answer at most.
const TIMEOUT_MS = 30_000;
const PAUSE_MAX_MS = 15_000;
// A daemon that needs 50 ms for an answer is asked every second, one that needs a second every ten.
const PAUSE_PER_ANSWER = 10;
const SKEW_MIN_MS = 5_000;
export const NONE = "–";

// -- requests ---------------------------------------------------------------------------------------------------------

/** An error response of the daemon. `status` 0 means that no response arrived. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

let skew_ms = 0;

/** Returns the time of the daemon's clock, Unix ms; that of the browser, unless they differ by seconds. */
export const daemonNow = () => Date.now() + skew_ms;

// A number that JavaScript would round or shorten keeps its digits, where the browser knows them.
const keepDigits = (_key, value, context) => (typeof value === "number" && JSON.rawJSON && context?.source && context.source !== String(value) ? JSON.rawJSON(context.source) : value);

async function request(path, { etag, timeout_ms, digits = false }) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (etag) headers["If-None-Match"] = etag;
  let response, text;
  try {
    response = await fetch(API + path, { headers, cache: "no-store", signal: AbortSignal.timeout(timeout_ms) });
    text = response.status === 304 ? "" : await response.text();
  } catch (error) {
    throw new Refused(0, "unreachable", error.name === "TimeoutError" ? "the daemon did not answer in time" : "the daemon cannot be reached");
  }
  const clock = Date.parse(response.headers.get("Date")) - Date.now();
  if (!Number.isNaN(clock)) skew_ms = Math.abs(clock) < SKEW_MIN_MS ? 0 : clock;
  if (response.status === 304) return { unchanged: true };
  let data = null;
  try {
    data = digits ? JSON.parse(text, keepDigits) : JSON.parse(text);
  } catch {
    // An answer without JSON was written by a proxy, not by the daemon.
  }
  if (data === null) throw new Refused(0, "unreachable", `a proxy in front of the daemon answered with ${response.status}`);
  if (!response.ok) throw new Refused(response.status, data.code ?? "", data.message ?? `the daemon answered with ${response.status}`);
  return { data, etag: response.headers.get("ETag") };
}

/** Returns a path with query parameters. Those that are null or undefined are left out; an array repeats its own. */
export function withQuery(path, params) {
  const pairs = Object.entries(params).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const query = new URLSearchParams(pairs.filter(([, value]) => value !== null && value !== undefined)).toString();
  return query ? `${path}?${query}` : path;
}

/**
 * Requests a resource once; raises Refused. With `digits`, numbers of records that JavaScript cannot hold as they are
 * written become `JSON.rawJSON` objects, which `JSON.stringify` renders with their digits.
 */
export async function fetchOnce(path, params = {}, { timeout_ms = TIMEOUT_MS, digits = false } = {}) {
  return (await request(withQuery(path, params), { timeout_ms, digits })).data;
}

/** Keeps a token for this tab, or forgets it (null), and asks for everything again. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN_KEY, token);
  else sessionStorage.removeItem(TOKEN_KEY);
  for (const poll of polls.values()) poll.hurry();
}

export const hasToken = () => sessionStorage.getItem(TOKEN_KEY) !== null;

// -- polling ----------------------------------------------------------------------------------------------------------

const polls = new Map();
const POLLS_MAX = 100;
const NOTHING = { data: null, error: null, answered_at: null, stale: false };

/** One resource that is polled for all components that show it. */
class Poll {
  readers = new Map();
  now = NOTHING;
  etag = null;
  timer = null;
  running = false;
  failures = 0;

  constructor(path) {
    this.path = path;
  }

  read(notify, every_s) {
    this.readers.set(notify, every_s * 1000);
    if (this.timer === null && !this.running) this.#plan(0);
    return () => {
      this.readers.delete(notify);
      if (this.readers.size === 0) this.rest();
    };
  }

  hurry() {
    if (this.readers.size > 0 && !this.running) this.#plan(0);
  }

  rest() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  #plan(pause_ms) {
    this.rest();
    if (this.readers.size > 0 && !document.hidden) this.timer = setTimeout(() => this.#ask(), pause_ms);
  }

  async #ask() {
    this.timer = null;
    this.running = true;
    const started = performance.now();
    try {
      const { data, etag, unchanged } = await request(this.path, { etag: this.etag, timeout_ms: POLL_TIMEOUT_MS });
      this.failures = 0;
      if (unchanged) this.#tell({ ...this.now, error: null, stale: false });
      else {
        this.etag = etag;
        this.#tell({ data, error: null, stale: false });
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.failures += 1;
      if (error.status >= 400 && error.status < 500) {
        this.etag = null;
        this.#tell({ data: null, error, stale: false });
      } else this.#tell({ ...this.now, error, stale: error.status === 0 });
    } finally {
      this.running = false;
      const wanted = Math.min(...this.readers.values());
      const slow = Math.max(wanted, PAUSE_PER_ANSWER * (performance.now() - started));
      const failing = wanted * 2 ** Math.min(this.failures, 2);
      const refused = this.now.data === null && !this.now.stale;
      this.#plan(refused ? PAUSE_MAX_MS : this.failures ? failing : Math.min(slow, Math.max(wanted, PAUSE_MAX_MS)));
    }
  }

  #tell({ data, error, stale }) {
    const known = this.now;
    const answered_at = stale ? known.answered_at : performance.now();
    this.now = { data, error, stale, answered_at };
    const same = data === known.data && error === known.error && stale === known.stale;
    if (!same) for (const notify of [...this.readers.keys()]) notify(this.now);
  }
}

document.addEventListener("visibilitychange", () => {
  for (const poll of polls.values()) document.hidden ? poll.rest() : poll.hurry();
});

function pollOf(path) {
  if (!polls.has(path)) {
    const unread = [...polls].find(([, poll]) => poll.readers.size === 0);
    if (polls.size >= POLLS_MAX && unread) polls.delete(unread[0]);
    polls.set(path, new Poll(path));
  }
  return polls.get(path);
}

/**
 * Polls a resource, such as `checkpoints` or `state?step=totals`, and returns `{data, error, stale_s}`.
 *
 * `data` is null until the first answer, and after a refusal (4xx). `error` has `status`, `code` and `message`. `stale_s` is
 * null while the daemon answers; otherwise it says for how long it has not. A `path` of null polls nothing.
 */
export function useResource(path, { every_s = 1, paused = false } = {}) {
  const [, notify] = useState(null);
  useEffect(() => {
    if (path === null || paused) return undefined;
    const render = (now) => notify(now);
    const poll = pollOf(path);
    const stop = poll.read(render, every_s);
    notify(poll.now);
    return stop;
  }, [path, every_s, paused]);
  const { data, error, stale, answered_at } = path === null ? NOTHING : pollOf(path).now;
  return { data, error, stale_s: stale ? (performance.now() - (answered_at ?? 0)) / 1000 : null };
}

/** Renders the component again every second, and returns the time of the daemon's clock. */
export function useNow() {
  const [now, tick] = useState(daemonNow());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || tick(daemonNow()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

// -- addresses --------------------------------------------------------------------------------------------------------

/** Returns the address of a page, with further parts: `href("checkpoints", 12)`. */
export const href = (page, ...parts) => `#/${[page, ...parts].map(encodeURIComponent).join("/")}`;

const decode = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

/** Returns the parts of the current address, the page's name first. */
export function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decode);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const change = () => setRoute(read());
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}

// -- formats ----------------------------------------------------------------------------------------------------------

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

/** Formats a number with thousands separators; below 100 with up to `digits` decimals. */
export function number(value, digits = 1) {
  if (!isKnown(value)) return NONE;
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 100 ? digits : 0 });
}

export const rate = (value) => (isKnown(value) ? `${number(value)}/s` : NONE);

export function bytes(value) {
  if (!isKnown(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10));
  return `${number(value / 1024 ** power)} ${units[power]}`;
}

const UNITS = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];

/** Formats whole seconds in the largest unit: `3 min`. */
function age(seconds) {
  const [size, name] = UNITS.find(([size]) => seconds >= size) ?? UNITS.at(-1);
  return `${number(Math.floor(seconds / size))} ${name}`;
}

/** Formats seconds: `230 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds) {
  if (!isKnown(seconds)) return NONE;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95 && !Number.isInteger(seconds)) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const first = UNITS.findIndex(([size]) => whole >= size);
  const [[size, name], [next, smaller]] = [UNITS[first], UNITS[first + 1]];
  const rest = Math.floor((whole % size) / next);
  return `${number(Math.floor(whole / size))} ${name}${rest ? ` ${rest} ${smaller}` : ""}`;
}

export const percent = (ratio) => (isKnown(ratio) ? `${number(ratio * 100, Math.abs(ratio) < 0.1 ? 1 : 0)} %` : NONE);

const two = (value) => String(value).padStart(2, "0");

/** Formats a time of day in the browser's time zone: `14:03:21`. */
export const clock = (ms) => {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
};

/** Formats a date and time in the browser's time zone, which is named: `2026-11-30 08:03:21 UTC`. */
export const timestamp = (ms) => {
  // With the name of a zone, `sv-SE` alone would write hours without a leading zero.
  const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  return new Date(ms).toLocaleString("sv-SE", { ...parts, timeZoneName: "short" });
};

/** A time relative to now, with the absolute one as its tooltip. */
export function Ago({ ms }) {
  const now = useNow();
  if (!isKnown(ms)) return NONE;
  const seconds = Math.round((now - ms) / 1000);
  const text = seconds === 0 ? "now" : seconds > 0 ? `${age(seconds)} ago` : `in ${age(-seconds)}`;
  return html`<time datetime=${new Date(ms).toISOString()} title=${timestamp(ms)}>${text}</time>`;
}

// -- components -------------------------------------------------------------------------------------------------------

let ids = 0;

/** Returns an id that no other element has. */
export const useId = () => useMemo(() => `id-${(ids += 1)}`, []);

export function Panel({ title, actions, children, className = "" }) {
  const id = useId();
  return html`<section class="panel ${className}" aria-labelledby=${id}>
    <header><h2 id=${id}>${title}</h2>${actions ? html`<div class="actions">${actions}</div>` : null}</header>
    ${children}
  </section>`;
}

/**
 * A table. `columns` have `key`, `title`, and optionally `numeric` and `render(row)`; `row_key` is a field or a
 * function. With `onRow(row)`, rows can be chosen; `chosen` is the key of the current one.
 */
export function Table({ columns, rows, row_key, empty = "No entries.", onRow, chosen, label }) {
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  const keyOf = typeof row_key === "function" ? row_key : (row) => row[row_key];
  const cell = (column, row) => (column.render ? column.render(row) : (row[column.key] ?? NONE));
  const first = (column, row) => html`<button type="button" class="link" aria-pressed=${String(keyOf(row) === chosen)} onClick=${() => onRow(row)}>${cell(column, row)}</button>`;
  return html`<div class="scroll" role="group" tabindex="0" aria-label=${label ?? columns[0].title}>
    <table>
      <thead><tr>${columns.map((column) => html`<th key=${column.key} scope="col" class=${column.numeric ? "numeric" : ""}>${column.title}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${keyOf(row)} class=${onRow && keyOf(row) === chosen ? "chosen" : ""}>
        ${columns.map((column, at) => html`<td key=${column.key} class=${column.numeric ? "numeric" : ""}>${onRow && at === 0 ? first(column, row) : cell(column, row)}</td>`)}
      </tr>`)}</tbody>
    </table>
  </div>`;
}

/** A state in a word; `kind` is `good`, `warn`, `bad` or `idle`, and the text must say the same. */
export const Badge = ({ kind = "idle", text }) => html`<span class="badge ${kind}">${text}</span>`;

/** A text of the daemon, whose names in backquotes are shown as code. */
export const Prose = ({ text }) => text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? html`<code key=${at}>${part}</code>` : part));

async function copy(text, element) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS, browsers have no clipboard except on localhost.
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
  }
}

/** A command with a button that copies it. */
export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const code = useRef(null);
  useEffect(() => {
    const timer = copied ? setTimeout(() => setCopied(false), 2000) : null;
    return () => clearTimeout(timer);
  }, [copied]);
  const act = async () => {
    await copy(text, code.current);
    setCopied(true);
  };
  return html`<div class="command">
    <code ref=${code} tabindex="0">${text}</code>
    <button type="button" class="button" onClick=${act} aria-label="Copy the command"><span aria-live="polite">${copied ? "Copied" : "Copy"}</span></button>
  </div>`;
}

const WIDTH = 200, HEIGHT = 40;

// Splits the points at gaps, so that a missing measurement is no line to zero.
function runs(values) {
  const found = [[]];
  values.forEach((value, at) => (isKnown(value) ? found.at(-1).push([at, value]) : found.at(-1).length && found.push([])));
  return found.filter((run) => run.length > 0);
}

/**
 * A small line of the newest values; null is a gap. `unit` is text after the number, `format` replaces `number`. With
 * `at_ms` (one per value), the value under the pointer is shown with its time.
 */
export function Sparkline({ values = [], label, unit = "", format = number, at_ms }) {
  const [pointed, point] = useState(null);
  const known = values.filter(isKnown);
  if (known.length < 2) return html`<div class="spark nothing"><span>collecting history</span></div>`;
  const most = Math.max(...known, Number.MIN_VALUE);
  const x = (at) => (at * WIDTH) / (values.length - 1);
  const y = (value) => HEIGHT - 2 - (Math.max(0, value) / most) * (HEIGHT - 6);
  const say = (value) => `${format(value)}${unit && ` ${unit}`}`;
  const line = (run) => run.map(([at, value], nth) => `${nth ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const at = Math.round(((event.clientX - box.left) / box.width) * (values.length - 1));
    point(Math.max(0, Math.min(values.length - 1, at)));
  };
  const shown = pointed !== null && pointed < values.length ? pointed : null;
  const text = `${label}: ${say(known.at(-1))}, between ${say(Math.min(...known))} and ${say(Math.max(...known))}`;
  return html`<div class="spark" onPointerMove=${move} onPointerLeave=${() => point(null)}>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${text}>
      ${runs(values).map((run) => html`<path class="area" d="${line(run)}L${x(run.at(-1)[0]).toFixed(1)} ${HEIGHT}L${x(run[0][0]).toFixed(1)} ${HEIGHT}Z" /><path class="line" d="${line(run)}" />`)}
      ${shown === null ? null : html`<path class="pointer" d="M${x(shown).toFixed(1)} 0V${HEIGHT}" />`}
    </svg>
    ${shown === null ? null : html`<span class="readout">${isKnown(values[shown]) ? say(values[shown]) : "no value"}${at_ms ? ` · ${clock(at_ms[shown])}` : ""}</span>`}
  </div>`;
}

const TOKENS = {
  read: "Reading from this daemon requires a token: the one in the file of http.read_token_file, or the command token. With http.tls.client_ca, a client certificate in the browser is accepted as well.",
  operate: "Rows, keys and payloads of records require the command token. With http.tls.client_ca, a client certificate that http.tls.operate names is accepted as well.",
};

/** Asks for a token, which is kept in this tab until it is closed. `role` is `read` or `operate`. */
export function Token({ role = "read", onToken }) {
  const [token, setText] = useState("");
  const id = useId();
  const submit = (event) => {
    event.preventDefault();
    setToken(token.trim());
    setText("");
    onToken?.();
  };
  return html`<form class="token" onSubmit=${submit}>
    <p>${TOKENS[role]}</p>
    <p>On the daemon's machine or in its container, as its user, this prints the command token for the pipeline file:</p>
    <${Command} text="tidegate token FILE" />
    ${hasToken() ? html`<p class="error" role="alert">This token is not valid.</p>` : null}
    <label for=${id}>Token</label>
    <div class="field">
      <input id=${id} type="password" autocomplete="off" spellcheck="false" required value=${token} onInput=${(event) => setText(event.target.value)} />
      <button type="submit" class="button primary">Show</button>
    </div>
  </form>`;
}

/** Why a resource cannot be shown: asks for a token if that is the reason. */
export function Problem({ error, role = "read", onToken }) {
  if (error.status === 401) return html`<${Token} role=${role} onToken=${onToken} />`;
  return html`<p class="error" role="alert">${error.message}</p>`;
}

/** What `children(data)` returns once a resource has data; before that a placeholder, or why there is none. */
export function Loaded({ resource, role = "read", children }) {
  if (resource.data !== null) return children(resource.data);
  if (resource.error !== null && resource.error.status !== 0) return html`<${Problem} error=${resource.error} role=${role} />`;
  return html`<p class="loading">Loading</p>`;
}
