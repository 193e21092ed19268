// Events: what has happened to the pipeline, newest first.
import { html, Ago, Badge, clock, href, Loaded, Panel, Prose, useResource } from "../lib.js";

const KINDS = {
  started: "idle", running: "good", restarted: "bad", failed: "bad", checkpoint_failed: "bad", savepoint: "good", hold: "warn",
  resumed: "good", upgraded: "idle", state: "idle", command: "idle",
};
const NAMES = { hold: "on hold", checkpoint_failed: "checkpoint failed" };

const nameOf = (kind) => NAMES[kind] ?? kind.replaceAll("_", " ");

/** One event; its detail, such as a traceback, unfolds. */
export function Entry({ event }) {
  const { at_ms, kind, text, detail, attempt } = event;
  return html`<li class="event">
    <span class="when"><span class="mono">${clock(at_ms)}</span> <span class="muted"><${Ago} ms=${at_ms} /></span></span>
    <span class="kind"><${Badge} kind=${KINDS[kind] ?? "idle"} text=${nameOf(kind)} /></span>
    <div class="what">
      <p><bdi><${Prose} text=${text} /></bdi>${attempt ? html` <span class="muted">attempt ${attempt}</span>` : null}</p>
      ${detail ? html`<details><summary>${detail.includes("\n") ? "Details" : "Detail"}</summary><pre tabindex="0">${detail}</pre></details>` : null}
    </div>
  </li>`;
}

function Filter({ events, kind }) {
  const counts = new Map([[undefined, events.length]]);
  for (const event of events) counts.set(event.kind, (counts.get(event.kind) ?? 0) + 1);
  if (!counts.has(kind)) counts.set(kind, 0);
  return html`<nav class="filter" aria-label="Kinds of events"><ul>${[...counts].map(([one, count]) => html`<li key=${one}>
    <a href=${one === undefined ? href("events") : href("events", one)} aria-current=${one === kind ? "true" : undefined}>${one === undefined ? "all" : nameOf(one)} <span class="count">${count}</span></a>
  </li>`)}</ul></nav>`;
}

const dayOf = (ms) => new Date(ms).toLocaleDateString(undefined, { weekday: "long", year: "numeric", month: "long", day: "numeric" });

function byDay(events) {
  const days = new Map();
  for (const event of events) {
    const day = dayOf(event.at_ms);
    days.set(day, [...(days.get(day) ?? []), event]);
  }
  return [...days];
}

function Page({ parts: [kind] }) {
  const resource = useResource("events");
  return html`<${Loaded} resource=${resource}>${({ events }) => {
    const shown = kind === undefined ? events : events.filter((event) => event.kind === kind);
    return html`<${Filter} events=${events} kind=${kind} />
      ${shown.length === 0 ? html`<p class="empty">${events.length === 0 ? "No events yet." : `There are no events of kind “${nameOf(kind)}”.`}</p>` : null}
      ${byDay(shown).map(([day, some]) => html`<${Panel} key=${day} title=${day}>
        <ol class="events">${some.map((event) => html`<${Entry} key=${`${event.at_ms} ${event.kind} ${event.text}`} event=${event} />`)}</ol>
      <//>`)}`;
  }}<//>`;
}

export default { name: "events", title: "Events", Page };
