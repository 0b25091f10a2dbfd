// The columns of the table, and the person's choice of them.
import type { ComponentChildren } from "preact";

import { textOf } from "../../api/json.ts";
import type { ListedInstance } from "../../api/types.ts";
import { Id, Text } from "../../design/Id.tsx";
import { Status, WORDS, standingOf } from "../../design/Status.tsx";
import { Duration, Time, serverTime } from "../../design/time.tsx";
import { oneOf, remembered } from "../../router/memory.ts";
import { href } from "../../router/router.ts";
import { DoesNow, waitFilter } from "./DoesNow.tsx";

export interface Column {
  id: string;
  label: string;
  /** A track of the grid. */
  width: string;
  draw: (row: ListedInstance) => ComponentChildren;
  /** What a click on the cell adds to the filter, and how it is called. */
  filter?: (row: ListedInstance) => [name: string, value: string, words: string] | null;
}

const COLUMNS: readonly Column[] = [
  {
    id: "status",
    label: "Status",
    width: "minmax(6.5rem, 7.5rem)",
    draw: (row) => <Status is={standingOf(row)} />,
    filter: (row) => {
      const standing = standingOf(row);
      const words = `status ${WORDS[standing].toLowerCase()}`;
      if (standing === "blocked" || standing === "paused") return [standing, "true", words];
      return ["status", standing, words];
    },
  },
  {
    id: "id",
    label: "Id",
    width: "minmax(8rem, 1.4fr)",
    draw: (row) => <Id text={row.id} href={href(["instances", row.id])} isClipped />,
  },
  {
    id: "name",
    label: "Orchestration",
    width: "minmax(6rem, 1fr)",
    draw: (row) => (
      <span class="clip">
        <Text text={row.name} />
      </span>
    ),
    filter: (row) => ["name", row.name, `orchestration ${row.name}`],
  },
  {
    id: "version",
    label: "Version",
    width: "4.5rem",
    draw: (row) => (
      <span class="clip muted-2">
        <Text text={row.version} />
      </span>
    ),
    // It is chosen by the first turn, and empty before.
    filter: (row) => (row.version === "" ? null : ["version", row.version, `version ${row.version}`]),
  },
  {
    id: "started",
    label: "Started",
    width: "minmax(5.5rem, 8.5rem)",
    draw: (row) => (
      <span class="muted-2">
        <Time ms={row.created_ms} />
      </span>
    ),
    filter: (row) => ["created_from_ms", String(row.created_ms), "started since then"],
  },
  {
    id: "took",
    label: "Took",
    width: "5.5rem",
    draw: (row) => (
      <span class="muted-2">
        {row.ended_ms === null ? <Duration since={row.created_ms} /> : <Duration ms={row.ended_ms - row.created_ms} />}
      </span>
    ),
    filter: (row) => [
      "min_duration_ms",
      String(Math.max(1, (row.ended_ms ?? serverTime()) - row.created_ms)),
      "took at least as long",
    ],
  },
  {
    id: "now",
    label: "What it does now",
    width: "minmax(12rem, 3fr)",
    draw: (row) => <DoesNow row={row} />,
    filter: (row) => {
      const waits = row.ended_ms === null ? waitFilter(row) : null;
      return waits === null ? null : ["waits_for", waits, `waits for ${waits}`];
    },
  },
  {
    id: "parent",
    label: "Parent",
    width: "minmax(6rem, 1fr)",
    draw: (row) => (row.parent === null ? null : <Id text={row.parent.instance} isClipped />),
    filter: (row) => (row.parent === null ? null : ["parent", row.parent.key, `child of ${row.parent.instance}`]),
  },
  {
    id: "published",
    label: "Published status",
    width: "minmax(6rem, 1fr)",
    draw: (row) =>
      row.published === null || row.published === undefined ? null : (
        <span class="clip">
          <Text text={plain(row.published)} />
        </span>
      ),
  },
];
const BY_ID = new Map(COLUMNS.map((column) => [column.id, column]));
/** What is shown before anybody chose. */
export const DEFAULT_COLUMNS = ["status", "id", "name", "version", "started", "took", "now"];
export const FIXED_COLUMNS: readonly string[] = COLUMNS.map((column) => column.id);

function plain(value: unknown): string {
  return typeof value === "string" ? value : textOf(value);
}

function attributeColumn(id: string): Column {
  const name = id.slice("attr.".length);
  return {
    id,
    label: name,
    width: "minmax(5rem, 0.8fr)",
    draw: (row) =>
      Object.hasOwn(row.attributes, name) ? (
        <span class="clip">
          <Text text={plain(row.attributes[name])} />
        </span>
      ) : null,
    filter: (row) =>
      Object.hasOwn(row.attributes, name) ? [id, textOf(row.attributes[name]), `${name} ${plain(row.attributes[name])}`] : null,
  };
}

export function columnOf(id: string): Column | null {
  return BY_ID.get(id) ?? (id.startsWith("attr.") ? attributeColumn(id) : null);
}

const isTexts = (value: unknown): value is string[] => Array.isArray(value) && value.every((each) => typeof each === "string");
export const chosenColumns = remembered<string[]>("columns", DEFAULT_COLUMNS, isTexts);
export const density = remembered<"comfortable" | "compact">("density", "comfortable", oneOf("comfortable", "compact"));

export function shownColumns(): Column[] {
  const shown = chosenColumns.value.flatMap((id) => columnOf(id) ?? []);
  // Without an id a row cannot be opened.
  return shown.some((column) => column.id === "id") ? shown : [columnOf("id") as Column, ...shown];
}
