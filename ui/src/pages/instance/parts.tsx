// Small parts that several tabs of the page share.
import type { Signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useId, useState } from "preact/hooks";

import { readJson, textOf } from "../../api/json.ts";
import { Text } from "../../design/Id.tsx";
import { Payload, bytesText } from "../../design/Json.tsx";
import { Icon } from "../../design/icons.tsx";
import { href } from "../../router/router.ts";

/** Where an event of an instance is shown. */
export function eventHref(id: string, event: number, execution?: number): string {
  return href(["instances", id], { tab: "history", execution, event });
}

/** A link to the event that proves what a sentence says. */
export function EventLink(props: {
  id: string;
  event: number;
  execution?: number | undefined;
  children?: ComponentChildren;
}): JSX.Element {
  return (
    <a class="link nowrap" href={eventHref(props.id, props.event, props.execution)}>
      {props.children ?? <>event {props.event}</>}
    </a>
  );
}

/** The server's words: what stands between backticks as code, events as links. */
export function ServerText({ text, id }: { text: string; id?: string }): JSX.Element {
  const parts = text.split(/(`[^`]*`|\bevent \d+\b)/);
  return (
    <>
      {parts.map((part, index) => {
        if (part.startsWith("`") && part.length > 1)
          return (
            <code key={index}>
              <Text text={part.slice(1, -1)} />
            </code>
          );
        if (id !== undefined && /^event \d+$/.test(part)) return <EventLink key={index} id={id} event={Number(part.slice(6))} />;
        return <Text key={index} text={part} />;
      })}
    </>
  );
}

interface LeftOut {
  bytes: number;
  isHidden: boolean;
}

/** Whether an answer has the size of a payload in its place. */
export function leftOut(value: unknown): LeftOut | null {
  if (typeof value !== "object" || value === null) return null;
  const mark = value as { hidden?: unknown; omitted?: unknown; bytes?: unknown };
  if ((mark.hidden !== true && mark.omitted !== true) || typeof mark.bytes !== "number") return null;
  return { bytes: mark.bytes, isHidden: mark.hidden === true };
}

/** A payload in one line, cut. */
export function previewOf(value: unknown, length = 160): string {
  const out = leftOut(value);
  if (out !== null) return out.isHidden ? `hidden, ${bytesText(out.bytes)}` : bytesText(out.bytes);
  // Between the tokens of JSON, line breaks and indents mean nothing; within strings they are escaped.
  const text = textOf(value)
    .slice(0, 4 * length)
    .replace(/\s*\n\s*/g, " ");
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

/** An error as people read it: a JSON string without its quotes. */
export function errorText(error: string): string {
  if (!error.startsWith('"')) return error;
  try {
    const value = readJson(error);
    return typeof value === "string" ? value : error;
  } catch {
    return error;
  }
}

export function errorOf(value: unknown): string {
  return typeof value === "string" ? value : previewOf(value, 400);
}

/** A payload as a line that opens. One that is too large to come with the rest is a link to `at`, the event that has it. */
export function PayloadLine(props: { label: string; value: unknown; at: string; tone?: "red" | undefined }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const panel = useId();
  const out = leftOut(props.value);
  if (out !== null && !out.isHidden)
    return (
      <div class="one-payload">
        <a class="one-payload-line" href={props.at} title="It is large, and read when you look at its event">
          <Icon name="chevronRight" size={12} />
          <span class="label">{props.label}</span>
          <span class="mono">{bytesText(out.bytes)}</span>
        </a>
      </div>
    );
  return (
    <div class={`one-payload ${isOpen ? "open" : ""}`}>
      <button
        type="button"
        class="one-payload-line"
        aria-expanded={isOpen}
        aria-controls={panel}
        onClick={() => setOpen(!isOpen)}
      >
        <Icon name={isOpen ? "chevronDown" : "chevronRight"} size={12} />
        <span class="label">{props.label}</span>
        {!isOpen && (
          <span class={`mono clip ${props.tone ?? ""}`}>
            <Text text={previewOf(props.value)} />
          </span>
        )}
      </button>
      <div id={panel} hidden={!isOpen}>
        {isOpen && <Payload value={props.value} name={props.label.toLowerCase()} />}
      </div>
    </div>
  );
}

/** Says why text is not JSON, or `null` if it is. Empty text is `null`. */
export function jsonProblem(text: string): string | null {
  if (text.trim() === "") return null;
  try {
    readJson(text);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** A field for JSON that is checked while one types. */
export function JsonField({ label, value, hint }: { label: string; value: Signal<string>; hint?: string }): JSX.Element {
  const id = useId();
  const problem = jsonProblem(value.value);
  return (
    <div class="labelled">
      <label for={id}>{label}</label>
      <textarea
        id={id}
        class="field"
        rows={3}
        spellcheck={false}
        aria-invalid={problem !== null}
        aria-describedby={`${id}-hint`}
        value={value.value}
        onInput={(event) => (value.value = event.currentTarget.value)}
        placeholder="null"
      />
      <span id={`${id}-hint`} class={`hint ${problem !== null ? "bad" : ""}`}>
        {problem !== null ? `Not JSON yet: ${problem}.` : (hint ?? "JSON. Empty is null. Numbers are sent digit for digit.")}
      </span>
    </div>
  );
}

/** Text that opens in full when it is long. */
export function Fold({ text, lines = 6 }: { text: string; lines?: number }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const isLong = text.split("\n").length > lines || text.length > 600;
  const shown = isOpen || !isLong ? text : text.split("\n").slice(0, lines).join("\n").slice(0, 600);
  return (
    <>
      <pre class="one-pre">
        <Text text={shown} keepLines />
      </pre>
      {isLong && (
        <button type="button" class="button quiet small" onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Less" : "All of it"}
        </button>
      )}
    </>
  );
}
