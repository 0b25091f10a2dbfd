// The filter as chips, which are typed or chosen. The values of a chip come with counts.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { get } from "../../api/client.ts";
import { textOf } from "../../api/json.ts";
import { useLoad } from "../../api/load.ts";
import { Chip, countText } from "../../design/Controls.tsx";
import { Text } from "../../design/Id.tsx";
import { Icon } from "../../design/icons.tsx";
import { Menu } from "../../design/Menu.tsx";
import { Part } from "../../design/Problem.tsx";
import { Status, type Standing } from "../../design/Status.tsx";
import { FIELDS, adding, asJson, fieldOf, readTyped, readValue, valueText, without, type Filter } from "./filter.ts";
import { serverTime } from "../../design/time.tsx";

const STATUSES: readonly Standing[] = ["pending", "running", "completed", "failed", "cancelled", "terminated"];
const TIMES = [
  ["15m", "15 minutes ago"],
  ["1h", "An hour ago"],
  ["24h", "A day ago"],
  ["7d", "A week ago"],
] as const;
const LENGTHS = ["1s", "10s", "1m", "10m", "1h", "1d"] as const;

export function FilterBar(props: {
  filter: Filter;
  attributes: () => readonly string[];
  onChange: (filter: Filter) => void;
}): JSX.Element {
  const { filter, onChange } = props;
  const [typed, setTyped] = useState("");
  const [isWrong, setWrong] = useState(false);
  const submit = () => {
    const read = readTyped(typed, serverTime());
    setWrong(read === null && typed.trim() !== "");
    if (read === null) return;
    setTyped("");
    onChange(adding(filter, read[0], read[1]));
  };
  return (
    <div class="filter-bar">
      <Icon name="filter" size={14} />
      {[...filter].map(([name, value]) => (
        <Chip key={name} isOn onRemove={() => onChange(without(filter, name))} removeLabel={`Remove ${fieldOf(name).label}`}>
          <EditMenu name={name} value={value} filter={filter} onChange={onChange} />
        </Chip>
      ))}
      <form
        class="filter-input"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <input
          id="filter-input"
          type="text"
          aria-label="Filter"
          placeholder={
            filter.size > 0 ? "Add: an id, status:failed, …" : "Filter: an id, status:failed, name:order, attr.region=eu"
          }
          autocomplete="off"
          spellcheck={false}
          value={typed}
          aria-invalid={isWrong}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") event.currentTarget.blur();
            const last = [...filter.keys()].at(-1);
            if (event.key === "Backspace" && typed === "" && last !== undefined) onChange(without(filter, last));
          }}
        />
      </form>
      <AddMenu {...props} />
      {filter.size > 1 && (
        <button type="button" class="button quiet small" onClick={() => onChange(new Map())}>
          Clear
        </button>
      )}
    </div>
  );
}

function EditMenu(props: { name: string; value: string; filter: Filter; onChange: (filter: Filter) => void }): JSX.Element {
  const { name, value } = props;
  const field = fieldOf(name);
  const shown = (
    <>
      <span class="muted-2">{field.label}</span>
      {(field.values !== "yes" || value !== "true") && (
        <b class="clip chip-value">
          <Text text={valueText(name, value)} />
        </b>
      )}
    </>
  );
  return (
    <Menu hasWords buttonClass="chip-button" button={shown} label={`Change ${field.label}`} role="dialog">
      {(close) => <Values {...props} close={close} />}
    </Menu>
  );
}

function AddMenu(props: {
  filter: Filter;
  attributes: () => readonly string[];
  onChange: (filter: Filter) => void;
}): JSX.Element {
  return (
    <Menu
      hasWords
      buttonClass="button quiet small"
      button={
        <>
          <Icon name="plus" size={14} /> Filter
        </>
      }
      label="Add a filter"
      role="dialog"
    >
      {(close) => <Add {...props} close={close} />}
    </Menu>
  );
}

function Add(props: {
  filter: Filter;
  attributes: () => readonly string[];
  onChange: (filter: Filter) => void;
  close: () => void;
}): JSX.Element {
  const [name, setName] = useState<string | null>(null);
  if (name !== null) return <Values {...props} name={name} value={props.filter.get(name) ?? ""} />;
  const choose = (chosen: string) => {
    if (fieldOf(chosen).values !== "yes") return setName(chosen);
    props.onChange(adding(props.filter, chosen, "true"));
    props.close();
  };
  return (
    <>
      {FIELDS.map((field) => (
        <button key={field.name} type="button" class="menu-item" onClick={() => choose(field.name)}>
          {field.label}
        </button>
      ))}
      {props.attributes().length > 0 && <div class="heading">Attributes</div>}
      {props.attributes().map((attribute) => (
        <button key={attribute} type="button" class="menu-item" onClick={() => choose(`attr.${attribute}`)}>
          <Text text={attribute} />
        </button>
      ))}
    </>
  );
}

/** The values of a field: those that the store has, with counts, or a place to type one. */
function Values(props: {
  name: string;
  value: string;
  filter: Filter;
  onChange: (filter: Filter) => void;
  close: () => void;
}): JSX.Element {
  const { name, filter, onChange } = props;
  const field = fieldOf(name);
  const set = (value: string) => {
    onChange(new Map(filter).set(name, value));
    props.close();
  };
  if (field.values === "status" || (field.values === "groups" && name !== "blocked_cause"))
    return <Counted {...props} set={set} />;
  const presets: readonly (readonly [string, string])[] =
    field.values === "time" ? TIMES : field.values === "length" ? LENGTHS.map((text) => [text, text] as const) : [];
  return (
    <>
      <div class="heading">{field.label}</div>
      {field.values === "yes" &&
        ["true", "false"].map((value) => (
          <button key={value} type="button" class="menu-item" onClick={() => set(value)}>
            {value === "true" ? "Yes" : "No"}
          </button>
        ))}
      {presets.map(([value, text]) => (
        <button key={value} type="button" class="menu-item" onClick={() => set(readValue(name, value, serverTime()) ?? value)}>
          {text}
        </button>
      ))}
      {field.values !== "yes" && (
        <TypeValue name={name} value={field.values === "text" || field.values === "waits" ? props.value : ""} set={set} />
      )}
    </>
  );
}

function TypeValue({ name, value, set }: { name: string; value: string; set: (value: string) => void }): JSX.Element {
  const [typed, setTyped] = useState(value);
  const field = fieldOf(name);
  const read = readValue(name, name.startsWith("attr.") ? asJson(typed) : typed, serverTime());
  const hint =
    field.hint ?? (field.values === "time" ? "2h (ago), or 2026-11-17 08:00" : field.values === "length" ? "90s, 2h, 1d" : "");
  return (
    <form
      class="type-value"
      onSubmit={(event) => {
        event.preventDefault();
        if (read !== null) set(read);
      }}
    >
      <input
        class="field"
        autofocus
        aria-label={field.label}
        placeholder={hint}
        value={typed}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <button type="submit" class="button small" disabled={read === null}>
        Set
      </button>
    </form>
  );
}

function Counted(props: {
  name: string;
  value: string;
  filter: Filter;
  onChange: (filter: Filter) => void;
  set: (value: string) => void;
}): JSX.Element {
  const { name, filter, onChange } = props;
  const field = fieldOf(name);
  const others = Object.fromEntries(without(filter, name));
  // By attribute the value is JSON text; names and versions are plain.
  const isJson = name.startsWith("attr.");
  const groups = useLoad((signal) => get("groups", { query: { ...others, by: name }, signal }), [name]);
  const chosen = field.isList === true ? props.value.split(",").filter((value) => value !== "") : [props.value];
  const toggle = (value: string) => {
    if (field.isList !== true) return props.set(value);
    const next = chosen.includes(value) ? chosen.filter((other) => other !== value) : [...chosen, value];
    onChange(next.length === 0 ? without(filter, name) : new Map(filter).set(name, next.join(",")));
  };
  return (
    <>
      <div class="heading">{field.label}</div>
      <Part of={groups}>
        {(answer) => {
          const counts = new Map(
            answer.groups
              .filter((group) => group.value !== null)
              .map((group) => [isJson || typeof group.value !== "string" ? textOf(group.value) : group.value, group.count]),
          );
          const values = field.values === "status" ? STATUSES : [...counts.keys()];
          return (
            <>
              {values.length === 0 && <p class="hint pad">No instance that the other filters show has one.</p>}
              {values.map((value) => (
                <label key={value} class="menu-item">
                  <input
                    type={field.isList === true ? "checkbox" : "radio"}
                    checked={chosen.includes(value)}
                    onChange={() => toggle(value)}
                  />
                  {field.values === "status" ? (
                    <Status is={value as Standing} />
                  ) : (
                    <span class="clip">
                      <Text text={value} />
                    </span>
                  )}
                  <span class="push">
                    {countText(counts.get(value) ?? 0)}
                    {answer.partial ? "+" : ""}
                  </span>
                </label>
              ))}
              {answer.others > 0 && <p class="hint pad">and {countText(answer.others)} with other values</p>}
            </>
          );
        }}
      </Part>
      {field.values !== "status" && <TypeValue name={name} value="" set={props.set} />}
    </>
  );
}
