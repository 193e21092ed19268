// The frame of all pages: header, navigation, and what is shown when the daemon does not answer.
import { html, Badge, clock, daemonNow, duration, href, Problem, useEffect, useNow, useResource, useRoute, useRef } from "./lib.js";
import { render, useErrorBoundary } from "./vendor/preact.js";
import checkpoints from "./pages/checkpoints.js";
import configuration from "./pages/configuration.js";
import dead_letters from "./pages/dead-letters.js";
import event_time from "./pages/event-time.js";
import events from "./pages/events.js";
import graph from "./pages/graph.js";
import overview from "./pages/overview.js";
import state from "./pages/state.js";

const PAGES = [overview, graph, checkpoints, event_time, dead_letters, state, configuration, events];
const STATE_KINDS = {
  running: "good", degraded: "warn", waiting: "warn", restarting: "warn", restoring: "warn", failed: "bad",
};

function Header({ status, stale_s, refused }) {
  const [mood, word] = stale_s !== null ? ["off", "no answer"] : refused ? ["off", "no access"] : status === null ? ["idle", "connecting"] : ["on", "live"];
  return html`<header class="top ${stale_s === null ? "" : "stale"}">
    <a class="brand" href=${href("overview")} aria-label="Tidegate, overview"><img src="static/favicon.svg" alt="" width="24" height="24" /><span>Tidegate</span></a>
    ${status === null ? null : html`<div class="pipeline">
      <strong>${status.pipeline}</strong>
      <span role="status"><${Badge} kind=${STATE_KINDS[status.state] ?? "idle"} text=${status.state} /></span>
      <span class="chip">${status.guarantee}</span>
    </div>`}
    <span class="live ${mood}">${word}</span>
  </header>`;
}

function Navigation({ current, status }) {
  const problems = (status === null ? [] : status.diagnoses).filter((one) => one.severity === "problem").length;
  const bar = useRef(null);
  useEffect(() => {
    // On a narrow screen the links are a row that scrolls sideways: the current one is brought to its middle.
    const link = bar.current.querySelector("[aria-current]");
    if (link) bar.current.scrollLeft = link.offsetLeft - (bar.current.clientWidth - link.offsetWidth) / 2;
  }, [current]);
  return html`<nav aria-label="Pages" ref=${bar}><ul>
    ${PAGES.map(({ name, title }) => html`<li key=${name}>
      <a href=${href(name)} aria-current=${name === current ? "page" : undefined}>${title}${name === "overview" && problems ? html`<span class="count bad" title="problems">${problems}</span>` : null}</a>
    </li>`)}
  </ul></nav>`;
}

function Unreachable({ stale_s, status, message }) {
  const now = useNow();
  const since = status === null ? null : daemonNow() - stale_s * 1000;
  return html`<div class="unreachable" role="alert">
    <strong>${since === null ? "The daemon does not answer." : `The daemon has not answered since ${clock(since)} (${duration(Math.round((now - since) / 1000))}).`}</strong>
    ${" "}${status === null ? "" : `The figures below are old; the last known state is ${status.state}. `}Check that its process runs and that this address still leads to it (kubectl port-forward ends with its pod). The page reconnects by itself. <span class="muted">Cause: ${message}.</span>
  </div>`;
}

function Current({ page, parts }) {
  const [error, reset] = useErrorBoundary();
  useEffect(reset, [page]);
  if (error) return html`<p class="error" role="alert">This page cannot be shown because of a bug: ${String(error.message ?? error)}. Please report it. The <a href="api/v1/status">REST API</a> is not affected.</p>`;
  return html`<${page.Page} parts=${parts} />`;
}

function NotFound({ name }) {
  return html`<p class="empty">There is no page “${name}”. <a href=${href("overview")}>Back to the overview.</a></p>`;
}

function App() {
  const [name = "overview", ...parts] = useRoute();
  const { data: status, error, stale_s } = useResource("status");
  const refused = status === null && error !== null && error.status !== 0;
  const page = PAGES.find((one) => one.name === name);
  const heading = useRef(null);
  const shown = useRef(name);
  useEffect(() => {
    if (shown.current !== name) heading.current?.focus();
    shown.current = name;
  }, [name]);
  const version = useRef(null);
  useEffect(() => {
    // A daemon of another version has other scripts.
    if (version.current !== null && status !== null && status.version !== version.current) location.reload();
    version.current = status?.version ?? version.current;
  }, [status]);
  const title = page?.title ?? "Not found";
  useEffect(() => {
    document.title = status === null ? `${title} · Tidegate` : `${status.pipeline} (${stale_s === null ? status.state : "no answer"}) · ${title}`;
  });
  return html`
    <a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); heading.current?.focus(); }}>Skip to the content</a>
    <${Header} status=${status} stale_s=${stale_s} refused=${refused} />
    <${Navigation} current=${page?.name} status=${status} />
    <main id="content" class=${stale_s === null ? "" : "stale"}>
      ${stale_s === null ? null : html`<${Unreachable} stale_s=${stale_s} status=${status} message=${error.message} />`}
      <h1 tabindex="-1" ref=${heading}>${title}</h1>
      ${refused ? html`<${Problem} error=${error} />` : page === undefined ? html`<${NotFound} name=${name} />` : html`<${Current} key=${page.name} page=${page} parts=${parts} />`}
    </main>
    <footer>Tidegate ${status?.version ?? ""} · <a href="api/v1/openapi.json">REST API</a> · <a href="metrics">Metrics</a></footer>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
