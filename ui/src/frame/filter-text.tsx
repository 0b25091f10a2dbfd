// A filter as people read it, and as the command takes it.
import type { JSX } from "preact";

import { visible } from "../design/Id.tsx";
import { exactText } from "../design/time.tsx";
import { href } from "../router/router.ts";

const LABELS: Record<string, string> = {
  status: "status",
  name: "orchestration",
  version: "version",
  id: "id",
  id_prefix: "id begins with",
  id_contains: "id contains",
  parent: "child of",
  blocked_code: "code",
  blocked_cause: "cause",
  waits_for: "waits for",
  created_from_ms: "started since",
  created_before_ms: "started before",
  ended_from_ms: "ended since",
  ended_before_ms: "ended before",
};
const FLAGS: Record<string, [string, string]> = {
  blocked: ["blocked", "not blocked"],
  paused: ["paused", "not paused"],
  retrying: ["retrying", "not retrying"],
  root: ["nobody's child", "a child"],
};

/** Chips, one for each condition. */
export function filterParts(filter: string): JSX.Element[] {
  const pairs = [...new URLSearchParams(filter)].filter(([name]) => name !== "order");
  if (pairs.length === 0)
    return [
      <span key="all" class="chip plain">
        all instances
      </span>,
    ];
  return pairs.map(([name, value]) => {
    const flag = FLAGS[name];
    if (flag !== undefined)
      return (
        <span key={name} class="chip plain">
          {value === "true" ? flag[0] : flag[1]}
        </span>
      );
    if (name === "keys") {
      const count = value.split(",").length;
      return (
        <span key={name} class="chip plain">
          {count === 1 ? "1 selected instance" : `${count.toLocaleString("en")} selected instances`}
        </span>
      );
    }
    const label = LABELS[name] ?? name.replace(/^attr\./, "");
    const shown = name.endsWith("_ms") ? (exactText(Number(value)).split("\n")[0] ?? value) : value;
    return (
      <span key={name} class="chip plain" title={value}>
        <span class="muted">{visible(label)}</span> <bdi class="clip">{visible(shown)}</bdi>
      </span>
    );
  });
}

/** The list that the filter shows. */
export function listHref(filter: string): string {
  return href(["instances"], Object.fromEntries(new URLSearchParams(filter)));
}

const OPTIONS: Record<string, string> = { status: "--status", name: "--name", version: "--version", id_prefix: "--prefix" };

/** Words for the command, or `null` if it cannot say exactly the same: a wider line would do more than was asked for. */
export function cliFilter(filter: string): string[] | null {
  const words: string[] = [];
  for (const [name, value] of new URLSearchParams(filter)) {
    const option = OPTIONS[name];
    if (option !== undefined && (name === "status" || !value.includes(","))) words.push(option, value);
    else if ((name === "blocked" || name === "paused") && value === "true") words.push(`--${name}`);
    else if (name === "id") words.push(value);
    else if (name !== "order") return null;
  }
  return words.length === 0 ? null : words;
}
