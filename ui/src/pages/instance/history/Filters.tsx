// The filters of a history, with how many events they match.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Button, Chip, Segments, countText } from "../../../design/Controls.tsx";
import { useKeys } from "../../../design/keys.ts";
import { Icon } from "../../../design/icons.tsx";
import { session } from "../../../frame/state.ts";
import { change, param } from "../../../router/router.ts";
import { KINDS } from "./events.ts";
import { isActive, type Filter, type Search } from "./search.ts";

export function filterFromUrl(): Filter {
  return {
    kinds: param("kinds") ?? "",
    name: param("name") ?? "",
    unit: param("unit") ?? "",
    failed: param("failed") === "true",
    text: param("text") ?? "",
  };
}

export function Filters(props: {
  filter: Filter;
  search: Search | null;
  last: number;
  at: number | null;
  comparing: number | null;
  onStep: (by: number) => void;
  onJump: (event: number) => void;
}): JSX.Element {
  const { filter, search } = props;
  const [text, setText] = useState(filter.text);
  const [name, setName] = useState(filter.name);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => setText(filter.text), [filter.text]);
  useEffect(() => setName(filter.name), [filter.name]);
  useEffect(() => {
    if (text === filter.text && name === filter.name) return;
    const timer = setTimeout(() => change({ text, name }, { replace: true }), 300);
    return () => clearTimeout(timer);
  }, [text, name]);
  useKeys([{ keys: "/", does: "Search in the history", act: () => input.current?.focus(), group: "History" }], []);
  const isHidden = session.value.value?.payloads_hidden === true;
  return (
    <div class="ev-tools" role="search" aria-label="Filter of the history">
      <input
        ref={input}
        class="field ev-search"
        type="search"
        placeholder={isHidden ? "Payloads are hidden from you" : "Search names, payloads, errors"}
        aria-label="Text"
        disabled={isHidden}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && props.onStep(event.shiftKey ? -1 : 1)}
      />
      <select
        class="field"
        aria-label="Kind"
        value={filter.kinds}
        onChange={(event) => change({ kinds: event.currentTarget.value })}
      >
        <option value="">all kinds</option>
        {KINDS.map((kind) => (
          <option key={kind} value={kind}>
            {kind}
          </option>
        ))}
      </select>
      <input
        class="field ev-name"
        placeholder="name"
        aria-label="Name"
        value={name}
        spellcheck={false}
        onInput={(event) => setName(event.currentTarget.value)}
      />
      <Button pressed={filter.failed} onClick={() => change({ failed: filter.failed ? null : "true" })}>
        Failed
      </Button>
      {filter.unit !== "" && (
        <Chip isOn onRemove={() => change({ unit: null })} removeLabel="All units">
          unit {filter.unit}
        </Chip>
      )}
      {isActive(filter) && search !== null && <Found search={search} last={props.last} at={props.at} onStep={props.onStep} />}
      {props.comparing !== null && (
        <Chip isOn onRemove={() => change({ vs: null })} removeLabel="Stop comparing">
          compare event {props.comparing} with…
        </Chip>
      )}
      <span class="push row">
        <JumpTo onJump={props.onJump} />
        {!isActive(filter) && (
          <Segments
            label="Form"
            options={[
              ["turns", "Turns"],
              ["operations", "Operations"],
            ]}
            value={param("by") === "operations" ? "operations" : "turns"}
            onChange={(by) => change({ by: by === "turns" ? null : by })}
          />
        )}
      </span>
    </div>
  );
}

function Found({
  search,
  last,
  at,
  onStep,
}: {
  search: Search;
  last: number;
  at: number | null;
  onStep: (by: number) => void;
}): JSX.Element {
  const [count, searched] = [search.matches.value.length, search.at.value];
  const place = at === null ? "" : `${countText(at + 1)} of `;
  const progress = searched === null ? "" : `, searched ${last === 0 ? 0 : Math.floor((searched / last) * 100)} %`;
  return (
    <span class="row ev-found">
      <span role="status">
        {place}
        {countText(count)}
        {search.isFull ? "+" : ""} {count === 1 ? "match" : "matches"}
        {progress}
      </span>
      <Button
        kind="quiet small icon"
        label="Previous match"
        whyNot={count === 0 ? "Nothing matches." : null}
        onClick={() => onStep(-1)}
      >
        <Icon name="chevronLeft" size={14} />
      </Button>
      <Button
        kind="quiet small icon"
        label="Next match"
        whyNot={count === 0 ? "Nothing matches." : null}
        onClick={() => onStep(1)}
      >
        <Icon name="chevronRight" size={14} />
      </Button>
      <Button kind="quiet small" onClick={() => change({ kinds: null, name: null, unit: null, failed: null, text: null })}>
        Clear
      </Button>
    </span>
  );
}

function JumpTo({ onJump }: { onJump: (event: number) => void }): JSX.Element {
  const [text, setText] = useState("");
  return (
    <form
      class="row"
      onSubmit={(event) => {
        event.preventDefault();
        if (/^\d{1,15}$/.test(text.trim())) onJump(Number(text.trim()));
      }}
    >
      <input
        class="field ev-jump"
        inputMode="numeric"
        placeholder="to event"
        aria-label="Go to event"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
    </form>
  );
}
