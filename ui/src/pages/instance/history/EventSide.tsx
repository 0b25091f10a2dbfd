// Everything about one event: what it belongs to, its payload, its link; and two events side by side.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { useLoad } from "../../../api/load.ts";
import { textOf } from "../../../api/json.ts";
import { Button } from "../../../design/Controls.tsx";
import { CopyButton } from "../../../design/Copy.tsx";
import { Dialog } from "../../../design/Dialog.tsx";
import { Text, visible } from "../../../design/Id.tsx";
import { Json, Payload, bytesText } from "../../../design/Json.tsx";
import { Part } from "../../../design/Problem.tsx";
import { Virtual } from "../../../design/Virtual.tsx";
import { Icon } from "../../../design/icons.tsx";
import { Time } from "../../../design/time.tsx";
import { read, type EventRecord } from "../data.ts";
import { EventLink, eventHref, leftOut } from "../parts.tsx";
import { diffLines, prettyLines } from "./diff.ts";
import { bodyOf, kindOf, nameOf, payloadMember, payloadOf, sourceOf, toneOf } from "./events.ts";

/** Larger ones wait to be asked for. */
const ASKED_BYTES = 256 * 1024;

interface Place {
  id: string;
  execution: number;
  bound: object;
}

export function wholeEvent(place: Place, event: number, signal: AbortSignal): Promise<EventRecord> {
  return read<EventRecord>(
    "instances/{id}/executions/{n}/events/{e}",
    [place.id, place.execution, event],
    { ...place.bound },
    signal,
  );
}

export function EventSide(props: {
  place: Place;
  event: EventRecord;
  turn: number;
  atMs: number;
  completion: number | null;
  comparing: number | null;
  onCompare: (event: number | null) => void;
  onClose: () => void;
}): JSX.Element {
  const { place, event } = props;
  const source = sourceOf(event);
  const link = new URL(eventHref(place.id, event.id, place.execution), document.baseURI).href;
  return (
    <aside class="tl-side ev-side" aria-label={`Event ${event.id}`}>
      <header>
        <div class="stack tight">
          <span class={`label ev-kind ${toneOf(event)}`}>{kindOf(event)}</span>
          <h2 class="one-wrap">{nameOf(event) === "" ? `Event ${event.id}` : <Text text={nameOf(event)} />}</h2>
        </div>
        <CopyButton text={link} label="Copy the link to this event" />
        <button type="button" class="button quiet icon small" aria-label="Close" onClick={props.onClose}>
          <Icon name="close" size={14} />
        </button>
      </header>
      <dl class="one-pairs">
        <dt>Event</dt>
        <dd>
          {event.id} of turn {props.turn}
        </dd>
        <dt>Time</dt>
        <dd>
          <Time ms={props.atMs} />
        </dd>
        {event.unit !== undefined && (
          <>
            <dt>Unit</dt>
            <dd>
              <code>
                <Text text={event.unit} />
              </code>
            </dd>
          </>
        )}
        {source !== null && (
          <>
            <dt>Of</dt>
            <dd>
              <EventLink id={place.id} event={source} execution={place.execution} />
            </dd>
          </>
        )}
        {props.completion !== null && (
          <>
            <dt>Came to</dt>
            <dd>
              <EventLink id={place.id} event={props.completion} execution={place.execution} />
            </dd>
          </>
        )}
      </dl>
      <div class="row wrap">
        {props.comparing === event.id ? (
          <Button kind="small" onClick={() => props.onCompare(null)}>
            Stop comparing
          </Button>
        ) : (
          <Button kind="small" onClick={() => props.onCompare(event.id)}>
            Compare with another event
          </Button>
        )}
      </div>
      <EventPayload key={event.id} place={place} event={event} />
    </aside>
  );
}

function EventPayload({ place, event }: { place: Place; event: EventRecord }): JSX.Element {
  const payload = payloadOf(event);
  const out = leftOut(payload);
  const [isWanted, setWanted] = useState(false);
  const [isWhole, setWhole] = useState(false);
  const member = payloadMember(event);
  if (out !== null && !out.isHidden && !isWanted && out.bytes > ASKED_BYTES) {
    return (
      <section>
        <h3>{member}</h3>
        <p class="hint">{bytesText(out.bytes)}. It is read when you ask for it.</p>
        <div class="row">
          <Button kind="small" onClick={() => setWanted(true)}>
            Read {bytesText(out.bytes)}
          </Button>
        </div>
      </section>
    );
  }
  if (out !== null && !out.isHidden) return <ReadPayload place={place} event={event.id} />;
  return (
    <>
      {member !== null && (
        <section>
          <h3>{member}</h3>
          <Payload value={payload} name={`event-${event.id}`} />
        </section>
      )}
      <section>
        <div class="row">
          <button type="button" class="button quiet small" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
            {isWhole ? "Hide" : "Show"} the event as recorded
          </button>
        </div>
        {isWhole && <Json text={textOf(event.event)} name={`event-${event.id}`} />}
      </section>
    </>
  );
}

function ReadPayload({ place, event }: { place: Place; event: number }): JSX.Element {
  const loaded = useLoad((signal) => wholeEvent(place, event, signal), [place.id, place.execution, event]);
  return (
    <Part of={loaded}>
      {(whole) => (
        <section>
          <h3>{payloadMember(whole)}</h3>
          <Payload value={payloadOf(whole)} name={`event-${event}`} />
        </section>
      )}
    </Part>
  );
}

/** Two events side by side. */
export function CompareEvents({
  place,
  left,
  right,
  onClose,
}: {
  place: Place;
  left: number;
  right: number;
  onClose: () => void;
}): JSX.Element {
  const loaded = useLoad(
    async (signal) => Promise.all([wholeEvent(place, left, signal), wholeEvent(place, right, signal)]),
    [left, right],
  );
  const [isAll, setAll] = useState(false);
  return (
    <Dialog title={`Events ${left} and ${right}`} isWide class="ev-compare" onClose={onClose}>
      <label class="row">
        <input type="checkbox" checked={isAll} onChange={(event) => setAll(event.currentTarget.checked)} /> The whole events, and
        not only their payloads
      </label>
      <Part of={loaded}>
        {([one, other]) => {
          const text = (event: EventRecord) =>
            textOf(isAll ? event.event : payloadMember(event) === null ? bodyOf(event) : payloadOf(event));
          return (
            <Diff
              left={text(one)}
              right={text(other)}
              leftName={`${one.id} ${kindOf(one)}`}
              rightName={`${other.id} ${kindOf(other)}`}
            />
          );
        }}
      </Part>
    </Dialog>
  );
}

export function Diff({
  left,
  right,
  leftName,
  rightName,
}: {
  left: string;
  right: string;
  leftName: string;
  rightName: string;
}): JSX.Element {
  const lines = diffLines(prettyLines(left), prettyLines(right));
  const different = lines.filter((line) => !line.isSame).length;
  return (
    <div class="ev-diff">
      <p class="hint" role="status">
        {different === 0 ? "They are the same." : `${different} ${different === 1 ? "line differs" : "lines differ"}.`}
      </p>
      <div class="ev-diff-line head">
        <span>{leftName}</span>
        <span>{rightName}</span>
      </div>
      <Virtual class="ev-diff-lines" label="Comparison" count={lines.length} rowHeight={20} keyOf={(index) => index}>
        {(index) => {
          const line = lines[index];
          if (line === undefined) return null;
          return (
            <div class={`ev-diff-line ${line.isSame ? "" : "differs"}`}>
              <span class={line.left === null ? "none" : ""}>{visible((line.left ?? "").slice(0, 500))}</span>
              <span class={line.right === null ? "none" : ""}>{visible((line.right ?? "").slice(0, 500))}</span>
            </div>
          );
        }}
      </Virtual>
    </div>
  );
}
