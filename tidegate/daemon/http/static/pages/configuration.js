// Configuration: every setting with its origin, and the pipeline file next to the plan that follows from it.
import { html, Loaded, NONE, Panel, Table, href, number, useEffect, useId, useRef, useResource, useState } from "../lib.js";

const ORIGINS = {
  file: "in the pipeline file",
  site: "in the site file, which overrides the pipeline file",
  environment: "the value refers to an environment variable",
  default: "not set; the default applies",
};

const nameOf = (file) => file.split("/").at(-1);

/** Returns the line of a place, if it is in the pipeline file. */
function lineOf(place, file) {
  const prefix = `${nameOf(file)}:`;
  return place?.startsWith(prefix) ? place.slice(prefix.length) : null;
}

function Settings({ settings, file }) {
  const [text, setText] = useState("");
  const [origin, setOrigin] = useState(null);
  const id = useId();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = settings.filter((one) => words.every((word) => `${one.path} ${one.value} ${one.references.join(" ")}`.toLowerCase().includes(word)));
  const shown = found.filter((one) => origin === null || one.origin === origin);
  const count = (name) => found.filter((one) => one.origin === name).length;
  const choice = (name, title, label) => html`<button key=${label} type="button" class="button" aria-pressed=${String(origin === name)} title=${title} onClick=${() => setOrigin(name)}>${label}</button>`;
  const where = (one) => {
    const line = lineOf(one.place, file);
    return line === null ? one.place : html`<a href=${href("configuration", line)}>${one.place}</a>`;
  };
  const columns = [
    { key: "path", title: "Setting", render: (one) => html`<code>${one.path}</code>` },
    { key: "value", title: "Value", render: (one) => html`<code class="value">${one.value}</code>` },
    { key: "origin", title: "Origin", render: (one) => html`<span class="origin ${one.origin}" title=${ORIGINS[one.origin]}>${one.origin}</span>` },
    { key: "place", title: "Place", render: (one) => html`${where(one) ?? NONE}${one.references.length ? html` <span class="muted">${one.references.join(", ")}</span>` : null}` },
  ];
  return html`<${Panel} title="Settings" className="settings">
    <div class="toolbar">
      <label for=${id}>Filter</label>
      <input id=${id} type="search" value=${text} placeholder="checkpoints interval" onInput=${(event) => setText(event.target.value)} />
      <div class="toolbar" role="group" aria-label="Origin">
        ${choice(null, "all settings", `All ${number(found.length)}`)}
        ${Object.entries(ORIGINS).map(([name, title]) => choice(name, title, `${name} ${number(count(name))}`))}
      </div>
      <span class="muted" role="status">${number(shown.length)} of ${number(settings.length)}</span>
    </div>
    <${Table} columns=${columns} rows=${shown} row_key="path" label="Settings" empty="No setting matches the filter." />
  <//>`;
}

function FileText({ file, text, line }) {
  const chosen = useRef(null);
  useEffect(() => chosen.current?.scrollIntoView({ block: "center" }), [line]);
  const lines = text.replace(/\n$/, "").split("\n");
  return html`<${Panel} title="File">
    <p class="muted mono">${file}</p>
    <div class="scroll source" role="region" tabindex="0" aria-label="Text of the file">
      <ol>${lines.map((one, at) => html`<li key=${at} ref=${line === at + 1 ? chosen : null} aria-current=${line === at + 1 ? "true" : undefined}><code>${one || " "}</code></li>`)}</ol>
    </div>
  <//>`;
}

function PlanText() {
  const plan = useResource("plan", { every_s: 60 });
  return html`<${Panel} title="Plan" actions=${html`<a href=${href("graph")}>Graph</a>`}>
    <p class="muted">Output of <code>tidegate explain</code>.</p>
    <${Loaded} resource=${plan}>${({ explain }) => html`<div class="scroll source" role="region" tabindex="0" aria-label="Text of the plan"><pre>${explain}</pre></div>`}<//>
  <//>`;
}

function Page({ parts: [line] }) {
  const configuration = useResource("config", { every_s: 60 });
  return html`<${Loaded} resource=${configuration}>${({ file, text, settings }) => html`
    <${Settings} settings=${settings} file=${file} />
    <div class="columns">
      <${FileText} file=${file} text=${text} line=${Number(line)} />
      <${PlanText} />
    </div>
  `}<//>`;
}

export default { name: "configuration", title: "Configuration", Page };
