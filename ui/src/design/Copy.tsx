// Copying, and the same action as a command line and as `curl`.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { API } from "../api/client.ts";
import { href } from "../router/router.ts";
import { Segments } from "./Controls.tsx";
import { Icon } from "./icons.tsx";
import { announce } from "./Toast.tsx";

/** Copies text. Browsers give the clipboard to pages over HTTPS only; the older way works everywhere. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  // Outside of an open dialog nothing can be selected.
  (focused?.closest("dialog, [popover]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}

export function CopyButton({
  text,
  label = "Copy",
  kind = "quiet small icon",
}: {
  text: string | (() => string);
  label?: string;
  kind?: string;
}): JSX.Element {
  const [isDone, setDone] = useState(false);
  const act = async () => {
    const done = await copy(typeof text === "string" ? text : text());
    announce(done ? "Copied" : "The browser refused to copy");
    setDone(done);
    setTimeout(() => setDone(false), 1_500);
  };
  return (
    <button type="button" class={`button ${kind}`} aria-label={label} title={label} onClick={() => void act()}>
      <Icon name={isDone ? "check" : "copy"} size={14} />
    </button>
  );
}

export function CodeLine({ text }: { text: string }): JSX.Element {
  return (
    <div class="code-line">
      <code>{text}</code>
      <CopyButton text={text} />
    </div>
  );
}

/** A code such as PER-0605, with a link to its page of the guide, which comes with the dashboard. */
export function Code({ code }: { code: string }): JSX.Element {
  return (
    <a class="code mono link" href={guideHref(code)} target="_blank" rel="noreferrer">
      {code}
    </a>
  );
}

export function guideHref(code: string): string {
  return href(["guide", code]);
}

/** A word for a POSIX shell. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export interface Equivalent {
  /** The words after `perennial`; `null` if the command cannot do the same. */
  cli: readonly string[] | null;
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** Relative to `/api/v1/`, from `urlOf`. */
  path: string;
  /** JSON text. */
  body?: string;
}

export function cliLine(words: readonly string[]): string {
  return ["perennial", ...words].map(quoted).join(" ");
}

export function curlLine({ method, path, body }: Equivalent): string {
  const words = ["curl"];
  if (method !== "GET") words.push("-X", method, "-H", "Content-Type: application/json");
  if (body !== undefined) words.push("-d", body);
  return [...words, API + path].map(quoted).join(" ");
}

/** The same action for a terminal, to be copied. */
export function SameAs({ of }: { of: Equivalent }): JSX.Element {
  const [form, setForm] = useState<"cli" | "curl">("cli");
  return (
    <details class="same-as">
      <summary>The same in a terminal</summary>
      <div class="stack">
        {of.cli !== null && (
          <Segments
            label="Form"
            options={[
              ["cli", "perennial"],
              ["curl", "curl"],
            ]}
            value={form}
            onChange={setForm}
          />
        )}
        <CodeLine text={form === "cli" && of.cli !== null ? cliLine(of.cli) : curlLine(of)} />
      </div>
    </details>
  );
}
