// What can be done to the selected instances. Selected rows are asked for one by one, each bound to the instance that was seen;
// all that the filter shows is one operation of the server.
import type { ComponentChildren } from "preact";

import { post, remove, urlOf } from "../../api/client.ts";
import { Problem } from "../../api/problem.ts";
import type { Body, Count } from "../../api/types.ts";
import { confirm } from "../../design/Confirm.tsx";
import { countText } from "../../design/Controls.tsx";
import type { Equivalent } from "../../design/Copy.tsx";
import { Id } from "../../design/Id.tsx";
import { toast } from "../../design/Toast.tsx";
import { go } from "../../router/router.ts";
import type { Filter } from "./filter.ts";
import type { Row } from "./list.ts";

export type Verb = "cancel" | "terminate" | "retry" | "pause" | "resume" | "delete";
type OperationBody = Body<"operations", "post">;

interface Words {
  title: string;
  /** What will happen to them: "are asked to clean up and end". */
  effect: string;
  isDanger: boolean;
  hasReason: boolean;
}

export const VERBS: Record<Verb, Words> = {
  cancel: { title: "Cancel", effect: "get a cancellation request; their code can clean up before they end", isDanger: true, hasReason: true },
  terminate: { title: "Terminate", effect: "end at once, without running their code; nothing is compensated", isDanger: true, hasReason: true },
  retry: { title: "Retry", effect: "are tried again now, if they are blocked", isDanger: false, hasReason: false },
  pause: { title: "Pause", effect: "take no turns until they are resumed", isDanger: false, hasReason: true },
  resume: { title: "Resume", effect: "go on, if they are paused", isDanger: false, hasReason: true },
  delete: { title: "Delete", effect: "are deleted with their children and histories; this cannot be undone", isDanger: true, hasReason: false },
};
/** More than this many want their number typed. */
const MANY = 100;

/** Asks, and then acts on the rows one by one. */
export function actOnRows(verb: Verb, rows: readonly Row[], onDone: () => void): void {
  const words = VERBS[verb];
  const endsRunning = (verb === "terminate" || verb === "delete") && rows.some((row) => row.ended_ms === null);
  const only = rows.length === 1 ? rows[0] : undefined;
  const typed = rows.length > MANY || (endsRunning && only === undefined) ? String(rows.length) : endsRunning ? only?.id : undefined;
  const what: ComponentChildren = only !== undefined ? <>The instance <Id text={only.id} /></> : <><b>{countText(rows.length)} instances</b> that you selected</>;
  confirm({
    title: only === undefined ? `${words.title} ${countText(rows.length)} instances` : `${words.title} an instance`,
    sentence: <>{what} {only === undefined ? words.effect : singular(words.effect)}.</>,
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
    .replace(/^get a/, "gets a").replace(/^end at/, "ends at").replace(/^are /, "is ").replace(/^take /, "takes ").replace(/^go on/, "goes on")
    .replace("their code can clean up before they end", "its code can clean up before it ends").replace("if they are", "if it is")
    .replace("until they are", "until it is").replaceAll("their", "its");
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
  if (verb === "delete") await remove("instances/{id}", { path: [row.id], query: { key: row.key, ...(force ? { force: true } : {}) } });
  else if (verb === "retry") await post("instances/{id}/retry", undefined, at);
  else await post(`instances/{id}/${verb}`, body, at);
}

function equivalentOfRows(verb: Verb, rows: readonly Row[], reason: string, force: boolean): Equivalent {
  const shown = rows.slice(0, 20).map((row) => row.id);
  const row = rows[0];
  const isDelete = verb === "delete";
  return {
    cli: [verb, ...shown, ...(rows.length > shown.length ? ["…"] : []), ...(reason !== "" && VERBS[verb].hasReason ? ["--reason", reason] : [])],
    method: isDelete ? "DELETE" : "POST",
    path: urlOf(isDelete ? "instances/{id}" : `instances/{id}/${verb}`, [row?.id ?? ""], { key: row?.key, ...(isDelete && force ? { force } : {}) }),
    ...(reason === "" || !VERBS[verb].hasReason ? {} : { body: JSON.stringify({ reason }) }),
  };
}

/** Asks, and then starts one operation of the server over all that the filter shows. */
export function actOnFilter(verb: Verb, filter: Filter, filterText: string, count: Count): void {
  const words = VERBS[verb];
  const isMany = count.more || count.rows > MANY;
  const number = String(count.rows) + (count.more ? "+" : "");
  const body = (reason: string): OperationBody => ({
    action: verb,
    filter: filterText,
    ...(reason === "" ? {} : { reason }),
    ...(verb === "delete" ? { force: true } : {}),
    // Nobody agreed to more than they were shown. What is counted only as "10,000+" has no such bound.
    ...(count.more ? {} : { at_most: count.rows }),
  });
  confirm({
    title: `${words.title} all that the filter shows`,
    sentence: <><b>{countText(count)} instances</b> {filter.size === 0 ? "of this store" : "that the filter shows"} {words.effect}. The server does it; you can close the browser.</>,
    verb: `${words.title} ${countText(count)} instances`,
    isDanger: words.isDanger,
    hasReason: words.hasReason,
    ...(isMany || words.isDanger ? { typed: number } : {}),
    sameAs: (reason) => ({ cli: cliFilter(verb, filter, reason), method: "POST", path: "operations", body: JSON.stringify(body(reason)) }),
    act: async (reason) => {
      const operation = (await post("operations", body(reason), { idempotencyKey: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` })) as { id: string };
      toast("The operation has begun");
      go(["operations"], { operation: operation.id });
    },
  });
}

/** The filter in the command's words, or `null` if the command has no words for a part of it. */
function cliFilter(verb: Verb, filter: Filter, reason: string): string[] | null {
  const words: string[] = [verb];
  for (const [name, value] of filter) {
    if (["status", "name", "version"].includes(name) && !value.includes(",")) words.push(`--${name}`, value);
    else if (name === "id_prefix") words.push("--prefix", value);
    else if ((name === "blocked" || name === "paused") && value === "true") words.push(`--${name}`);
    else if (name.startsWith("attr.")) words.push("--attribute", `${name.slice(5)}=${value}`);
    else return null;
  }
  return reason !== "" && VERBS[verb].hasReason ? [...words, "--reason", reason] : words;
}
