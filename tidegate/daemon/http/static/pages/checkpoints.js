// Checkpoints.
import { html } from "../lib.js";

function Page({ parts }) {
  return html`<p class="empty">Nothing here yet. ${parts.join(" / ")}</p>`;
}

export default { name: "checkpoints", title: "Checkpoints", Page };
