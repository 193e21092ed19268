// Overview.
import { html } from "../lib.js";

function Page({ parts }) {
  return html`<p class="empty">Nothing here yet. ${parts.join(" / ")}</p>`;
}

export default { name: "overview", title: "Overview", Page };
