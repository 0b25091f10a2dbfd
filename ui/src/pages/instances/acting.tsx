// What can be done to the selected instances. One is asked for directly; several rows, or all that the filter shows, are one
// operation of the server. All are bound to the instances that were seen.

import { post, remove, urlOf } from "../../api/client.ts";
import { confirm } from "../../design/Confirm.tsx";
import { countText } from "../../design/Controls.tsx";
import type { Equivalent } from "../../design/Copy.tsx";
import { Id } from "../../design/Id.tsx";
import { toast } from "../../design/Toast.tsx";
import type { Plan } from "../../frame/Operate.tsx";
import type { Row } from "./list.ts";

export type Verb = "cancel" | "terminate" | "retry" | "pause" | "resume" | "delete";

interface Words {
  title: string;
  /** What will happen to them: "are asked to clean up and end". */
  effect: string;
  isDanger: boolean;
  hasReason: boolean;
}

export const VERBS: Record<Verb, Words> = {
  cancel: {
    title: "Cancel",
    effect: "get a cancellation request; their code can clean up before they end",
    isDanger: true,
    hasReason: true,
  },
  terminate: {
    title: "Terminate",
    effect: "end at once, without running their code; nothing is compensated",
    isDanger: true,
    hasReason: true,
  },
  retry: { title: "Retry", effect: "are tried again now, if they are blocked", isDanger: false, hasReason: false },
  pause: { title: "Pause", effect: "take no turns until they are resumed", isDanger: false, hasReason: true },
  resume: { title: "Resume", effect: "go on, if they are paused", isDanger: false, hasReason: true },
  delete: {
    title: "Delete",
    effect: "are deleted with their children and histories; this cannot be undone",
    isDanger: true,
    hasReason: false,
  },
};
/** The server takes so many keys in one filter. */
export const MOST_ROWS = 1_000;

/** Asks, and then acts on one instance. */
export function actOnOne(verb: Verb, row: Row, onDone: () => void): void {
  const words = VERBS[verb];
  const endsRunning = (verb === "terminate" || verb === "delete") && row.ended_ms === null;
  confirm({
    title: `${words.title} an instance`,
    sentence: (
      <>
        The instance <Id text={row.id} /> {singular(words.effect)}.
      </>
    ),
    verb: words.title,
    isDanger: words.isDanger,
    hasReason: words.hasReason,
    ...(endsRunning ? { typed: row.id } : {}),
    sameAs: (reason) => equivalentOf(verb, row, reason, endsRunning),
    act: async (reason) => {
      await send(verb, row, reason, endsRunning);
      toast(`${words.title}: ${row.id}, durable`);
      onDone();
    },
  });
}

function singular(effect: string): string {
  return effect
    .replace(/^get a/, "gets a")
    .replace(/^end at/, "ends at")
    .replace(/^are /, "is ")
    .replace(/^take /, "takes ")
    .replace(/^go on/, "goes on")
    .replace("their code can clean up before they end", "its code can clean up before it ends")
    .replace("if they are", "if it is")
    .replace("until they are", "until it is")
    .replaceAll("their", "its");
}

async function send(verb: Verb, row: Row, reason: string, force: boolean): Promise<void> {
  const at = { path: [row.id], query: { key: row.key } };
  const body = reason === "" ? {} : { reason };
  if (verb === "delete")
    await remove("instances/{id}", { path: [row.id], query: { key: row.key, ...(force ? { force: true } : {}) } });
  else if (verb === "retry") await post("instances/{id}/retry", undefined, at);
  else await post(`instances/{id}/${verb}`, body, at);
}

function equivalentOf(verb: Verb, row: Row, reason: string, force: boolean): Equivalent {
  const isDelete = verb === "delete";
  const hasReason = reason !== "" && VERBS[verb].hasReason;
  return {
    cli: [verb, row.id, ...(hasReason ? ["--reason", reason] : [])],
    method: isDelete ? "DELETE" : "POST",
    path: urlOf(isDelete ? "instances/{id}" : `instances/{id}/${verb}`, [row.id], {
      key: row.key,
      ...(isDelete && force ? { force } : {}),
    }),
    ...(hasReason ? { body: JSON.stringify({ reason }) } : {}),
  };
}

/** The operation over selected rows, by their keys: an id that another instance has by now is left alone. */
export function planForRows(verb: Verb, rows: readonly Row[]): Plan {
  const isTyped = (verb === "terminate" || verb === "delete") && rows.some((row) => row.ended_ms === null);
  const plan = planFor(verb, `keys=${rows.map((row) => row.key).join(",")}`);
  return { ...plan, title: `${VERBS[verb].title} ${countText(rows.length)} instances`, isTyped };
}

/** The operation over all that a filter shows. */
export function planFor(verb: Verb, filter: string): Plan {
  const words = VERBS[verb];
  return {
    title: `${words.title} all that the filter shows`,
    action: verb,
    filter,
    verb: words.title,
    sentence: (count, isOne) => (isOne ? `One instance ${singular(words.effect)}.` : `${count} instances ${words.effect}.`),
    isDanger: words.isDanger,
    hasReason: words.hasReason,
    isTyped: verb === "terminate" || verb === "delete",
    ...(verb === "delete" ? { more: { force: true } } : {}),
  };
}
