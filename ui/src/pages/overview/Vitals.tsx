// The counts that the stream keeps fresh.
import type { JSX } from "preact";

import type { Count, Status as StatusName } from "../../api/types.ts";
import { countText } from "../../design/Controls.tsx";
import { Changing } from "../../design/hold.tsx";
import { Status, WORDS } from "../../design/Status.tsx";
import { durationText } from "../../design/time.tsx";
import { useFrozen } from "../../frame/refresh.ts";
import { stats } from "../../frame/state.ts";
import { href } from "../../router/router.ts";

const NONE: Count = { rows: 0, more: false };
/** Lag below this is what polling and batches make. */
const LATE_MS = 2_000;

interface Vital {
  name: string;
  text: string;
  says: string;
  href: string;
  tone?: "amber" | "red" | undefined;
}

function sum(...counts: Count[]): Count {
  return { rows: counts.reduce((total, count) => total + count.rows, 0), more: counts.some((count) => count.more) };
}

export function Vitals(): JSX.Element {
  const now = useFrozen(stats.value);
  const of = (status: StatusName): Count => now?.instances[status] ?? NONE;
  const tone = (count: Count | undefined, colour: "amber" | "red") => ((count?.rows ?? 0) > 0 ? colour : undefined);
  const count = (of: Count | undefined) => (of === undefined ? "–" : countText(of));
  const lag = now?.lag_ms;
  const vitals: Vital[] = [
    {
      name: "Open",
      text: now === null ? "–" : countText(sum(of("running"), of("pending"))),
      says: "instances",
      href: href(["instances"], { status: "running,pending" }),
    },
    {
      name: "Blocked",
      text: count(now?.blocked),
      says: "cannot go on",
      href: href(["blocked"]),
      tone: tone(now?.blocked, "amber"),
    },
    {
      name: "Retrying",
      text: count(now?.tasks_waiting),
      says: "activities that failed",
      href: href(["activities"]),
      tone: tone(now?.tasks_waiting, "amber"),
    },
    { name: "Queued", text: count(now?.tasks_queued), says: "activities to be taken", href: href(["activities"]) },
    { name: "Inbox", text: count(now?.inbox), says: "messages not taken yet", href: href(["nodes"]) },
    {
      name: "Lag",
      text: lag === undefined ? "–" : lag === 0 ? "0 s" : durationText(lag),
      says: "oldest due work waits",
      href: href(["nodes"]),
      tone: (lag ?? 0) > LATE_MS ? "red" : undefined,
    },
  ];
  return (
    <ul class="vitals">
      {vitals.map((vital) => (
        <li key={vital.name}>
          <a href={vital.href} class={vital.tone ?? ""}>
            <span class="vital-name">{vital.name}</span>
            <span class="vital-number">
              <Changing text={vital.text} />
            </span>
            <span class="vital-says">{vital.says}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

const ORDER: readonly StatusName[] = ["running", "pending", "completed", "failed", "cancelled", "terminated"];
const COLOURS: Record<StatusName, string> = {
  running: "var(--blue)",
  pending: "var(--line-field)",
  completed: "var(--green)",
  failed: "var(--red)",
  cancelled: "var(--text-3)",
  terminated: "var(--violet)",
};

/** How many instances there are, by status. */
export function Statuses(): JSX.Element {
  const now = useFrozen(stats.value);
  const rows = ORDER.map((status) => ({ status, count: now?.instances[status] ?? NONE }));
  const total = rows.reduce((all, row) => all + row.count.rows, 0);
  return (
    <section class="card sizes">
      <header>
        <h2>In the store</h2>
        <span class="muted push">{countText(sum(...rows.map((row) => row.count)))} instances</span>
      </header>
      <div class="body stack">
        <div class="sizes-bar" aria-hidden="true">
          {total > 0 &&
            rows.map(
              ({ status, count }) =>
                count.rows > 0 && (
                  <span key={status} style={{ flexGrow: count.rows, background: COLOURS[status] }} title={WORDS[status]} />
                ),
            )}
        </div>
        <ul>
          {rows.map(({ status, count }) => (
            <li key={status}>
              <a href={href(["instances"], { status })}>
                <Status is={status} />
                <span class="push">
                  <Changing text={countText(count)} />
                </span>
              </a>
            </li>
          ))}
        </ul>
        <Bytes />
      </div>
    </section>
  );
}

/** Sizes, if the store tells them. */
function Bytes(): JSX.Element | null {
  const bytes = (stats.value as { bytes?: Record<string, number> } | null)?.bytes;
  if (bytes === undefined) return null;
  return (
    <dl class="sizes-bytes">
      {Object.entries(bytes).map(([part, size]) => (
        <div key={part}>
          <dt>{part}</dt>
          <dd>{sizeText(size)}</dd>
        </div>
      ))}
    </dl>
  );
}

export function sizeText(bytes: number): string {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(1, bytes)) / 10), units.length - 1);
  return `${power === 0 ? bytes : (bytes / 1024 ** power).toFixed(1)} ${units[power] ?? ""}`;
}
