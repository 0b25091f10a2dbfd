// Where an instance stands: a shape, a word and a colour, of which each is enough.
import type { JSX } from "preact";

import type { Instance, Status as StatusName } from "../api/types.ts";
import { Drawing } from "./icons.tsx";

export type Standing = StatusName | "blocked" | "paused";

/** What a person is told: an instance that is blocked or paused is still running by its record. */
export function standingOf(instance: Pick<Instance, "status" | "blocked">): Standing {
  if (instance.blocked === null) return instance.status;
  return instance.blocked.pause === undefined ? "blocked" : "paused";
}

export const WORDS: Record<Standing, string> = {
  pending: "Pending",
  running: "Running",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  terminated: "Terminated",
  blocked: "Blocked",
  paused: "Paused",
};

export function Status({ is, isBare = false }: { is: Standing; isBare?: boolean }): JSX.Element {
  return (
    <span class={`status ${is}`} title={isBare ? WORDS[is] : undefined}>
      <StatusSign is={is} />
      {isBare ? <span class="sr-only">{WORDS[is]}</span> : WORDS[is]}
    </span>
  );
}

const LINE = {
  fill: "none",
  stroke: "currentColor",
  "stroke-width": 1.6,
  "stroke-linecap": "round",
  "stroke-linejoin": "round",
} as const;
const CUT = {
  fill: "none",
  stroke: "var(--bg)",
  "stroke-width": 1.6,
  "stroke-linecap": "round",
  "stroke-linejoin": "round",
} as const;

function StatusSign({ is }: { is: Standing }): JSX.Element {
  switch (is) {
    case "pending":
      return (
        <Drawing>
          <circle cx="8" cy="8" r="5.6" {...LINE} stroke-dasharray="2.1 2.3" />
        </Drawing>
      );
    case "running":
      return (
        <Drawing>
          <circle cx="8" cy="8" r="5.6" {...LINE} />
          <path d="M8 4.800a3.2 3.2 0 0 1 0 6.400z" fill="currentColor" />
        </Drawing>
      );
    case "completed":
      return (
        <Drawing>
          <circle cx="8" cy="8" r="6.4" fill="currentColor" />
          <path d="M5.3 8.200l1.9 1.9 3.5-3.9" {...CUT} />
        </Drawing>
      );
    case "failed":
      return (
        <Drawing>
          <path d="M8 1.200L14.8 8 8 14.8 1.2 8z" fill="currentColor" />
          <path d="M6.2 6.200l3.6 3.600M9.8 6.200l-3.6 3.6" {...CUT} />
        </Drawing>
      );
    case "cancelled":
      return (
        <Drawing>
          <circle cx="8" cy="8" r="5.6" {...LINE} />
          <path d="M4.3 11.700l7.4-7.4" {...LINE} />
        </Drawing>
      );
    case "terminated":
      return (
        <Drawing>
          <rect x="2.5" y="2.5" width="11" height="11" rx="2" {...LINE} />
          <rect x="5.5" y="5.5" width="5" height="5" fill="currentColor" />
        </Drawing>
      );
    case "blocked":
      return (
        <Drawing>
          <path d="M5.3 1.800h5.400l3.5 3.500v5.400l-3.5 3.500H5.300l-3.5-3.500V5.300z" fill="currentColor" />
          <path d="M8 4.800v3.800M8 11.200h.01" {...CUT} />
        </Drawing>
      );
    case "paused":
      return (
        <Drawing>
          <circle cx="8" cy="8" r="5.6" {...LINE} />
          <path d="M6.5 6v4M9.5 6v4" {...LINE} />
        </Drawing>
      );
  }
}
