// Dead letters: the newest ones, what they hold, and the commands that replay them.
import { html, Ago, bytes, Command, fetchOnce, hasToken, href, number, Panel, Problem, timestamp, useEffect, useState } from "../lib.js";
import { dump, oneLine, Value, visible } from "../records.js";

const ALL = "";
// Columns of the engine, which letters keep for a replay.
const OWN = "__tidegate_";
// Names that a shell takes as they are. Whoever may write to the topic has chosen the names.
const PLAIN = /^[\w][\w.-]*$/;

const place = ({ cluster, topic, partition, offset }) => {
  if (!topic) return "unknown";
  const where = partition === null ? topic : `${topic}[${partition}] offset ${number(offset)}`;
  return visible(cluster === "kafka" ? where : `${where} in ${cluster}`);
};

/** Counts letters by a field, the most frequent value first. */
function count(letters, field) {
  const found = new Map();
  for (const letter of letters) found.set(letter[field], (found.get(letter[field]) ?? 0) + 1);
  return [...found].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
}

function Filter({ title, letters, field, value, onChange }) {
  return html`<label>${title}${" "}
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      <option value=${ALL}>all</option>
      ${count(letters, field).map(([name, n]) => html`<option key=${name} value=${name}>${visible(name)} (${number(n)})</option>`)}
    </select>
  </label>`;
}

function Bytes({ title, part }) {
  const { text, base64, size_bytes } = part;
  if (!size_bytes) return html`<h3>${title}</h3><p class="muted">${size_bytes === null ? "NULL" : "empty"}</p>`;
  const shown = base64 === null ? null : atob(base64).length;
  const size = shown !== null && shown < size_bytes ? `${bytes(size_bytes)}, the first ${number(shown)} bytes are shown` : bytes(size_bytes);
  return html`<h3>${title} <span class="muted">(${size})</span></h3>
    ${base64 === null ? html`<p class="muted">left out, because columns are masked</p>` : html`
      ${text === null ? html`<p class="muted">The bytes are not UTF-8.</p>` : html`<pre tabindex="0">${visible(text)}</pre>`}
      <details open=${text === null}><summary>Raw bytes</summary><pre tabindex="0" class="dump">${dump(base64)}</pre></details>`}`;
}

function Columns({ payload }) {
  const { columns, columns_left_out_bytes } = payload;
  if (columns === null) {
    return columns_left_out_bytes === null ? null : html`<h3>Row</h3><p class="muted">left out, because it has ${bytes(columns_left_out_bytes)}: see <code>tidegate dead-letters show</code></p>`;
  }
  return html`<h3>Row at the step</h3>
    <dl class="facts">${Object.entries(columns).filter(([name]) => !name.startsWith(OWN)).map(([name, value]) => html`<dt key=${name}>${visible(name)}</dt><dd><${Value} value=${value} /></dd>`)}</dl>`;
}

function Details({ letter }) {
  const { source, payload } = letter;
  return html`<div class="letter">
    <dl class="facts">
      <dt>Record</dt><dd>${place(source)}</dd>
      ${source.at_ms === null ? null : html`<dt>Record time</dt><dd>${timestamp(source.at_ms)}</dd>`}
      <dt>Step</dt><dd><a href=${href("graph", letter.step)}>${visible(letter.step)}</a></dd>
      <dt>Kind</dt><dd>${visible(letter.kind)}</dd>
      <dt>Reason</dt><dd>${letter.reason === null ? html`<span class="muted">left out, because columns are masked</span>` : visible(letter.reason)}</dd>
      ${letter.tries ? html`<dt>Replayed</dt><dd>${number(letter.tries)} times at this step</dd>` : null}
      <dt>Dead letter</dt><dd>partition ${letter.partition}, offset ${number(letter.offset)}${letter.at_ms === null ? "" : `, ${timestamp(letter.at_ms)}`}</dd>
      ${letter.replayed_to === null ? null : html`<dt>Replayed to</dt><dd>${visible(letter.replayed_to)}</dd>`}
    </dl>
    <${Columns} payload=${payload} />
    <${Bytes} title="Value" part=${payload} />
    <${Bytes} title="Key" part=${letter.key} />
    ${letter.headers.length === 0 ? null : html`<h3>Headers</h3>
      <dl class="facts">${letter.headers.map(({ name, value }, at) => html`<dt key=${at}>${visible(name)}</dt><dd>${value.base64 === null && value.size_bytes !== null ? html`<span class="muted">left out</span>` : html`<${Value} value=${value.size_bytes === null ? null : (value.text ?? `0x${[...atob(value.base64)].map((each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join("")}`)} />`}</dd>`)}</dl>`}
    <h3>Replay</h3>
    ${letter.replayed_to === null ? html`<${Command} text=${letter.replay} />` : html`<p class="muted">It has already been replayed.</p>`}
  </div>`;
}

function Letter({ letter }) {
  const [open, setOpen] = useState(false);
  return html`<li>
    <details onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class="when">${letter.at_ms === null ? "–" : html`<${Ago} ms=${letter.at_ms} />`}</span>
        <strong>${oneLine(letter.step)}</strong>
        <span class="chip">${oneLine(letter.kind)}</span>
        ${letter.replayed_to === null ? null : html`<span class="chip">replayed</span>`}
        <span class="reason">${letter.reason === null ? place(letter.source) : oneLine(letter.reason)}</span>
      </summary>
      ${open ? html`<${Details} letter=${letter} />` : null}
    </details>
  </li>`;
}

function Letters({ found, refresh, busy }) {
  const [step, setStep] = useState(ALL);
  const [kind, setKind] = useState(ALL);
  const matches = (letter) => (step === ALL || letter.step === step) && (kind === ALL || letter.kind === kind);
  const shown = found.letters.filter(matches);
  const open = shown.filter((letter) => letter.replayed_to === null).length;
  const options = [["--step", step], ["--kind", kind]].filter(([, value]) => value !== ALL);
  const command = options.every(([, value]) => PLAIN.test(value)) ? [found.replay, ...options.flat()].join(" ") : null;
  const where = found.cluster === "kafka" ? found.topic : `${found.topic} in ${found.cluster}`;
  const actions = html`<button type="button" class="button" onClick=${refresh} disabled=${busy}>Reload</button>`;
  return html`
    <${Panel} title="Newest dead letters" actions=${actions}>
      <p class="muted">${found.letters.length === 0 ? `There are no dead letters in ${where}.` : `The newest ${number(found.letters.length)} in ${where}${found.complete ? "" : "; the topic was too large or too slow to find all of these at once"}.`}</p>
      ${found.masked ? html`<p class="muted">Columns are masked (<code>http.redact</code>, <code>secret()</code>), so reasons and bytes, which may contain masked values, are left out.</p>` : null}
      ${found.letters.length === 0 ? null : html`
        <div class="toolbar">
          <${Filter} title="Step" letters=${found.letters} field="step" value=${step} onChange=${setStep} />
          <${Filter} title="Kind" letters=${found.letters} field="kind" value=${kind} onChange=${setKind} />
          <span role="status">${number(shown.length)} shown, ${number(open)} not replayed</span>
        </div>
        ${command === null ? null : html`<details class="replay"><summary>Replay ${options.length ? "all that match the filters" : "all dead letters"}</summary>
          <p class="muted">Correct the cause first. This also replays dead letters that are older than those below. With <code>--dry-run</code> it only prints what it would write.</p>
          <${Command} text=${command} />
        </details>`}
        <ul class="letters">${shown.map((letter) => html`<${Letter} key=${`${letter.partition}-${letter.offset}`} letter=${letter} />`)}</ul>`}
    <//>`;
}

function Page() {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(true);
  // Each reading is a line in the audit log and reads the topic, so nothing is polled.
  const read = async () => {
    setBusy(true);
    try {
      setFound(await fetchOnce("dead-letters", {}, { digits: true }));
      setError(null);
    } catch (refused) {
      setError(refused);
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => void read(), []);
  const again = html`<button type="button" class="button" onClick=${read} disabled=${busy}>Reload</button>`;
  return html`
    ${error === null ? null : error.status === 404 ? html`<p class="empty">${error.message}</p>` : html`<${Panel} title=${error.status === 401 && !hasToken() ? "A token is required" : "The dead letters cannot be read"} actions=${error.status === 401 ? null : again}>
      <${Problem} error=${error} role="operate" onToken=${read} />
    <//>`}
    ${found === null ? (busy ? html`<p class="loading">Reading the topic in a separate process, which takes a few seconds</p>` : null) : html`<${Letters} found=${found} refresh=${read} busy=${busy} />`}`;
}

export default { name: "dead-letters", title: "Dead letters", Page };
