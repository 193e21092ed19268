// Text from records, shown so that nothing of it is invisible or changes the order of what is around it.
import { html, NONE } from "./lib.js";

const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/gu;
const escaped = (each) => {
  const code = each.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
};

/** Returns a text with control and formatting characters as escapes, except for line ends and tabs. */
export const visible = (text) => text.replace(INVISIBLE, (each) => (each === "\n" || each === "\t" ? each : escaped(each)));

/** A value of a row: text as it is, anything else as JSON. NULL is told apart from the text "null". */
export function Value({ value }) {
  if (value === null || value === undefined) return html`<span class="muted">NULL</span>`;
  if (value === "") return html`<span class="muted">empty text</span>`;
  return html`<span class="record-value">${visible(typeof value === "string" ? value : JSON.stringify(value))}</span>`;
}

const WIDTH = 16;
const hex = (byte) => byte.toString(16).padStart(2, "0");

/** Returns lines with the offset, the bytes in hexadecimal digits, and their ASCII characters. */
export function dump(base64) {
  const data = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < data.length; at += WIDTH) {
    const part = [...data.subarray(at, at + WIDTH)];
    const ascii = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${part.map(hex).join(" ").padEnd(3 * WIDTH)} ${ascii}`);
  }
  return lines.join("\n");
}

/** A text in one line for a table or a summary. */
export const oneLine = (text) => (text ? visible(text).replaceAll(/\s+/g, " ") : NONE);
