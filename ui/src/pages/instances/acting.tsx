// What can be done to the selected instances. Selected rows are asked for one by one, each bound to the instance that was seen;
// all that the filter shows is one operation of the server.
import type { ComponentChildren } from "preact";

import { post, remove, urlOf } from "../../api/client.ts";
import { Problem } from "../../api/problem.ts";
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
/** More than this many want their number typed. */
const MANY = 100;

/** Asks, and then acts on the rows one by one. */
export function actOnRows(verb: Verb, rows: readonly Row[], onDone: () => void): void {
  const words = VERBS[verb];
  const endsRunning = (verb === "terminate" || verb === "delete") && rows.some((row) => row.ended_ms === null);
  const only = rows.length === 1 ? rows[0] : undefined;
  const typed =
    rows.length > MANY || (endsRunning && only === undefined) ? String(rows.length) : endsRunning ? only?.id : undefined;
  const what: ComponentChildren =
    only !== undefined ? (
      <>
        The instance <Id text={only.id} />
      </>
    ) : (
      <>
        <b>{countText(rows.length)} instances</b> that you selected
      </>
    );
  confirm({
    title: only === undefined ? `${words.title} ${countText(rows.length)} instances` : `${words.title} an instance`,
    sentence: (
      <>
        {what} {only === undefined ? words.effect : singular(words.effect)}.
      </>
    ),
    verb: only === undefined ? `${words.title} ${countText(rows.length)} instances` : words.title,
    isDanger: words.isDanger,
    hasReason: words.hasReason,
    ...(typed === undefined ? {} : { typed }),
    sameAs: (reason) => equivalentOfRows(verb, rows, reason, endsRunning),
    act: async (reason) => {
      await eachRow(verb, rows, reason, endsRunning);
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

async function eachRow(verb: Verb, rows: readonly Row[], reason: string, force: boolean): Promise<void> {
  const failed: Problem[] = [];
  for (const row of rows) {
    try {
      await one(verb, row, reason, force);
    } catch (error) {
      failed.push(Problem.from(error));
    }
  }
  const first = failed[0];
  const done = rows.length - failed.length;
  if (first !== undefined && rows.length === 1) throw first;
  if (first !== undefined) {
    throw new Problem({
      status: first.status,
      code: first.code,
      title: `${done} done, ${failed.length} refused`,
      detail: `The first refusal: ${first.detail}`,
      remedy: first.remedy,
      retryable: first.retryable,
    });
  }
  toast(`${VERBS[verb].title}: ${countText(done)} ${done === 1 ? "instance" : "instances"}, durable`);
}

async function one(verb: Verb, row: Row, reason: string, force: boolean): Promise<void> {
  const at = { path: [row.id], query: { key: row.key } };
  const body = reason === "" ? {} : { reason };
  if (verb === "delete")
    await remove("instances/{id}", { path: [row.id], query: { key: row.key, ...(force ? { force: true } : {}) } });
  else if (verb === "retry") await post("instances/{id}/retry", undefined, at);
  else await post(`instances/{id}/${verb}`, body, at);
}

function equivalentOfRows(verb: Verb, rows: readonly Row[], reason: string, force: boolean): Equivalent {
  const shown = rows.slice(0, 20).map((row) => row.id);
  const row = rows[0];
  const isDelete = verb === "delete";
  return {
    cli: [
      verb,
      ...shown,
      ...(rows.length > shown.length ? ["…"] : []),
      ...(reason !== "" && VERBS[verb].hasReason ? ["--reason", reason] : []),
    ],
    method: isDelete ? "DELETE" : "POST",
    path: urlOf(isDelete ? "instances/{id}" : `instances/{id}/${verb}`, [row?.id ?? ""], {
      key: row?.key,
      ...(isDelete && force ? { force } : {}),
    }),
    ...(reason === "" || !VERBS[verb].hasReason ? {} : { body: JSON.stringify({ reason }) }),
  };
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
