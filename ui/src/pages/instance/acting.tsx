// What can be done to an instance. Everything goes through a dialog, is bound to the instance that is shown, and is told on the
// page first when it is durable and then by its effect.
import { signal, type Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useId } from "preact/hooks";

import { RawJson, post, remove, request } from "../../api/client.ts";
import type { InstanceDetails, Route } from "../../api/types.ts";
import { confirm } from "../../design/Confirm.tsx";
import type { Equivalent } from "../../design/Copy.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { download } from "../../design/Json.tsx";
import { whyReadOnly } from "../../frame/state.ts";
import { go } from "../../router/router.ts";
import { address, type WaitRecord } from "./data.ts";
import type { InstanceModel } from "./model.ts";
import { JsonField, jsonProblem, previewOf } from "./parts.tsx";

interface About {
  model: InstanceModel;
  details: InstanceDetails;
}

/** Sends a change of this instance. */
async function send(
  model: InstanceModel,
  route: string,
  path: (string | number)[],
  body: unknown,
  query: object = {},
): Promise<unknown> {
  const options = { path: [model.id, ...path], query: { ...model.bound, ...query } };
  return await post(`instances/{id}/${route}` as Route as "instances/{id}/cancel", body as never, options as object);
}

function same(
  model: InstanceModel,
  cli: string[],
  route: string,
  path: (string | number)[],
  body?: string,
  query: object = {},
): Equivalent {
  const where = address(`instances/{id}/${route}`, [model.id, ...path], { ...model.bound, ...query });
  return body === undefined ? { cli, method: "POST", path: where } : { cli, method: "POST", path: where, body };
}

const jsonOf = (text: Signal<string>) => (text.value.trim() === "" ? "null" : text.value.trim());

function assertJson(text: Signal<string>): void {
  const problem = jsonProblem(text.value);
  if (problem !== null) throw new Error(`The payload is not JSON: ${problem}.`);
}

function NameField({ label, value, offered }: { label: string; value: Signal<string>; offered: readonly string[] }): JSX.Element {
  const id = useId();
  return (
    <div class="labelled">
      <label for={id}>{label}</label>
      <input
        id={id}
        class="field mono"
        value={value.value}
        list={`${id}-offered`}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => (value.value = event.currentTarget.value)}
      />
      <datalist id={`${id}-offered`}>
        {offered.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {offered.length > 1 && (
        <span class="row wrap">
          {offered.slice(0, 8).map((name) => (
            <button
              key={name}
              type="button"
              class={`chip ${value.value === name ? "on" : ""}`}
              onClick={() => (value.value = name)}
            >
              <Text text={name} />
            </button>
          ))}
        </span>
      )}
    </div>
  );
}

/** The events that it waits for, its own first. */
export function awaitedEvents(details: InstanceDetails): string[] {
  const names = (details.waits_for as WaitRecord[]).flatMap((wait) =>
    wait.kind === "event" && wait.name !== undefined ? [wait.name] : [],
  );
  return [...new Set(names)];
}

export function raise({ model, details }: About, chosen?: string, alsoTaken: readonly string[] = []): void {
  const offered = [...new Set([...awaitedEvents(details), ...alsoTaken])];
  const name = signal(chosen ?? offered[0] ?? "");
  const payload = signal("");
  // A dialog that is sent twice raises once.
  const idempotencyKey = `dashboard-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  confirm({
    title: "Raise an event",
    sentence: (
      <>
        The event is put into the inbox of <Id text={model.id} /> and is taken by the next wait for its name, or kept until there
        is one.
      </>
    ),
    verb: "Raise",
    fields: (
      <>
        <NameField label="Event" value={name} offered={offered} />
        <JsonField label="Payload" value={payload} />
      </>
    ),
    sameAs: () => same(model, ["raise", model.id, name.value, jsonOf(payload)], "events/{name}", [name.value], jsonOf(payload)),
    act: async () => {
      if (name.value === "") throw new Error("Name the event.");
      assertJson(payload);
      await post("instances/{id}/events/{name}", new RawJson(jsonOf(payload)), {
        path: [model.id, name.value],
        query: model.bound,
        idempotencyKey,
      });
      model.done(`Raised ${name.value}`);
    },
  });
}

export function update(
  { model }: About,
  chosen: string | null,
  offered: readonly string[],
  input = "",
  onResult?: (result: unknown) => void,
): void {
  const name = signal(chosen ?? offered[0] ?? "");
  const payload = signal(input);
  const idempotencyKey = `dashboard-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  confirm({
    title: "Update",
    sentence: (
      <>
        The update runs in the code of <Id text={model.id} />, which can refuse it. What it did is recorded.
      </>
    ),
    verb: "Update",
    fields: (
      <>
        <NameField label="Update" value={name} offered={offered} />
        <JsonField label="Input" value={payload} />
      </>
    ),
    sameAs: () => same(model, ["update", model.id, name.value, jsonOf(payload)], "updates/{name}", [name.value], jsonOf(payload)),
    act: async () => {
      assertJson(payload);
      const options = { path: [model.id, name.value], query: { ...model.bound, wait_ms: 30_000 }, idempotencyKey };
      const result = await post("instances/{id}/updates/{name}", new RawJson(jsonOf(payload)), options);
      onResult?.(result);
      model.done(`Updated ${name.value}, answered ${previewOf(result ?? null, 60)}`);
    },
  });
}

export function cancel({ model }: About): void {
  confirm({
    title: "Cancel",
    sentence: (
      <>
        A cancel request is sent to <Id text={model.id} />. Its code can clean up before it ends; its children that are waited for
        are cancelled too.
      </>
    ),
    verb: "Cancel it",
    isDanger: true,
    hasReason: true,
    sameAs: (reason) => same(model, ["cancel", model.id, "--reason", reason], "cancel", [], JSON.stringify({ reason })),
    act: async (reason) => {
      await send(model, "cancel", [], { reason });
      model.done("Cancel requested");
    },
  });
}

export function terminate({ model }: About): void {
  confirm({
    title: "Terminate",
    sentence: (
      <>
        <Id text={model.id} /> ends at once, without running its code: nothing is cleaned up. This cannot be undone.
      </>
    ),
    verb: "Terminate",
    isDanger: true,
    hasReason: true,
    typed: model.id,
    sameAs: (reason) => same(model, ["terminate", model.id, "--reason", reason], "terminate", [], JSON.stringify({ reason })),
    act: async (reason) => {
      await send(model, "terminate", [], { reason });
      model.done("Terminated");
    },
  });
}

export function retry({ model }: About): void {
  confirm({
    title: "Retry",
    sentence: (
      <>
        <Id text={model.id} /> is tried now with the code that is registered, instead of at the next pause.
      </>
    ),
    verb: "Retry",
    sameAs: () => same(model, ["retry", model.id], "retry", [], "{}"),
    act: async () => {
      await send(model, "retry", [], {});
      model.done("Retried");
    },
  });
}

export function retryActivity({ model, details }: About, event: number, name: string): void {
  confirm({
    title: "Retry the activity now",
    sentence: (
      <>
        The next attempt of{" "}
        <code>
          <Text text={name} />
        </code>{" "}
        (event {event}) of <Id text={model.id} /> is made now, and not after its pause.
      </>
    ),
    verb: "Retry now",
    sameAs: () =>
      same(model, ["retry", model.id, "--activity", String(event)], "activities/{e}/retry", [event], "{}", {
        execution: details.execution,
      }),
    act: async () => {
      await send(model, "activities/{e}/retry", [event], {}, { execution: details.execution });
      model.done(`Retried ${name}`);
    },
  });
}

export function pause({ model }: About): void {
  confirm({
    title: "Pause",
    sentence: (
      <>
        <Id text={model.id} /> takes no turns until it is resumed. Timers, events and results are kept for it.
      </>
    ),
    verb: "Pause",
    hasReason: true,
    sameAs: (reason) => same(model, ["pause", model.id, "--reason", reason], "pause", [], JSON.stringify({ reason })),
    act: async (reason) => {
      await send(model, "pause", [], { reason });
      model.done("Paused");
    },
  });
}

export function resume({ model }: About): void {
  confirm({
    title: "Resume",
    sentence: (
      <>
        <Id text={model.id} /> takes turns again, beginning with what was kept for it.
      </>
    ),
    verb: "Resume",
    hasReason: true,
    sameAs: (reason) => same(model, ["resume", model.id, "--reason", reason], "resume", [], JSON.stringify({ reason })),
    act: async (reason) => {
      await send(model, "resume", [], { reason });
      model.done("Resumed");
    },
  });
}

/** What a blocked instance can go on without: an event, or a message of its inbox, that cannot be read. */
export function skippable(details: InstanceDetails): { event: number } | { message: number } | null {
  const blocked = details.blocked;
  if (blocked?.message !== undefined) return { message: blocked.message };
  return blocked?.event !== undefined && blocked.divergence === undefined ? { event: blocked.event } : null;
}

export function skip({ model }: About, what: { event: number } | { message: number }): void {
  const words = "event" in what ? [String(what.event)] : ["--message", String(what.message)];
  confirm({
    title: "Skip",
    sentence: (
      <>
        <Id text={model.id} /> goes on without {"event" in what ? `event ${what.event}` : `message ${what.message} of its inbox`},
        which cannot be read. It is recorded that it was skipped.
      </>
    ),
    verb: "Skip",
    isDanger: true,
    sameAs: () => same(model, ["skip", model.id, ...words], "skip", [], JSON.stringify(what)),
    act: async () => {
      await send(model, "skip", [], what);
      model.done("Skipped");
    },
  });
}

export function deleteIt({ model }: About): void {
  const isRunning = !model.isOver;
  confirm({
    title: "Delete",
    sentence: (
      <>
        {isRunning ? (
          <>
            <Id text={model.id} /> still runs. It ends without running its code, and it
          </>
        ) : (
          <Id text={model.id} />
        )}{" "}
        is deleted with its history and all its children. This cannot be undone.
      </>
    ),
    verb: "Delete",
    isDanger: true,
    ...(isRunning ? { typed: model.id } : {}),
    sameAs: () => ({
      cli: ["delete", model.id, ...(isRunning ? ["--force"] : [])],
      method: "DELETE",
      path: address("instances/{id}", [model.id], { ...model.bound, force: isRunning ? true : null }),
    }),
    act: async () => {
      await remove("instances/{id}", { path: [model.id], query: { ...model.bound, ...(isRunning ? { force: true } : {}) } });
      model.fate.value = { is: "deleted" };
    },
  });
}

/** Saves the history as lines of JSON. */
export async function exportIt(model: InstanceModel): Promise<void> {
  const response = await request("get", address("instances/{id}/export", [model.id], model.bound));
  download(`${model.id}.jsonl`, await response.text(), "application/x-ndjson");
}

/** The form of a start, filled from this instance. */
export function startLikeThis(model: InstanceModel): void {
  go(["instances"], { start: "new", like: model.id });
}

export interface Action {
  name: string;
  run: () => void;
  whyNot: string | null;
  isDanger?: boolean;
}

/** Everything that can be done, with the reason where it cannot. */
export function actionsFor(about: About): Action[] {
  const { model, details } = about;
  const ended = model.isOver ? "It has ended." : null;
  const mayNot = whyReadOnly.value;
  const isPaused = details.blocked?.pause !== undefined;
  const what = skippable(details);
  return [
    { name: "Raise an event…", run: () => raise(about), whyNot: mayNot ?? ended },
    { name: "Update…", run: () => update(about, null, []), whyNot: mayNot ?? ended },
    {
      name: "Retry…",
      run: () => retry(about),
      whyNot: mayNot ?? ended ?? (details.blocked === null ? "It is not blocked." : null),
    },
    ...(what === null ? [] : [{ name: "Skip…", run: () => skip(about, what), whyNot: mayNot }]),
    isPaused
      ? { name: "Resume…", run: () => resume(about), whyNot: mayNot }
      : { name: "Pause…", run: () => pause(about), whyNot: mayNot ?? ended },
    { name: "Start like this…", run: () => startLikeThis(model), whyNot: mayNot },
    { name: "Compare with…", run: () => go(["instances", model.id], { tab: "compare" }), whyNot: null },
    { name: "Export", run: () => void exportIt(model), whyNot: null },
    { name: "Cancel…", run: () => cancel(about), whyNot: mayNot ?? ended, isDanger: true },
    { name: "Terminate…", run: () => terminate(about), whyNot: mayNot ?? ended, isDanger: true },
    { name: "Delete…", run: () => deleteIt(about), whyNot: mayNot, isDanger: true },
  ];
}
