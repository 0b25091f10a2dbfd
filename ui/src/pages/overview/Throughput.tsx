// How many were started and how many ended, and how, by time.
import type { JSX } from "preact";

import type { StatsHistory } from "../../api/ops.ts";
import { Chart, Key, type Bar, type Series } from "../../design/Chart.tsx";
import { Time } from "../../design/time.tsx";
import { go, href } from "../../router/router.ts";

const OUTCOMES = [
  { name: "completed", colour: "color-mix(in srgb, var(--green) 74%, var(--bg))" },
  { name: "failed", colour: "var(--red)" },
  { name: "terminated", colour: "var(--violet)" },
  { name: "cancelled", colour: "var(--line-field)" },
] as const satisfies readonly Series[];
const STARTED: readonly Series[] = [{ name: "started", colour: "color-mix(in srgb, var(--accent) 78%, var(--bg))" }];

export function Throughput({ history, per }: { history: StatsHistory; per: string }): JSX.Element {
  const { buckets, width_ms: width } = history;
  const from = buckets[0]?.from_ms ?? 0;
  const knownFrom = history.started_from_ms ?? 0;
  const started: Bar[] = buckets.map((bucket) => ({
    from: bucket.from_ms,
    to: bucket.from_ms + width,
    values: bucket.from_ms < knownFrom ? null : [Object.values(bucket.started).reduce((sum, count) => sum + count.rows, 0)],
  }));
  const ended: Bar[] = buckets.map((bucket) => ({
    from: bucket.from_ms,
    to: bucket.from_ms + width,
    values: OUTCOMES.map(({ name }) => bucket.ended[name]?.rows ?? 0),
    more: Object.values(bucket.ended).some((count) => count.more),
  }));
  const total = (bars: readonly Bar[], which: number) => bars.reduce((sum, bar) => sum + (bar.values?.[which] ?? 0), 0);
  const isMore = ended.some((bar) => bar.more === true);
  return (
    <div class="card overview-charts">
      <figure>
        <figcaption>
          <h3>
            Started <span class="muted">{per}</span>
          </h3>
          <a class="push chart-total" href={href(["instances"], { created_from_ms: from })}>
            {total(started, 0).toLocaleString("en")}
            {history.partial ? "+" : ""} started
          </a>
        </figcaption>
        <Chart
          label={`Started ${per}`}
          series={STARTED}
          bars={started}
          onOpen={(bar) => go(["instances"], { created_from_ms: bar.from, created_before_ms: bar.to })}
        />
        {history.partial && (
          <p class="hint">
            Starts before <Time ms={knownFrom} form="clock" /> are not counted: there are too many.
          </p>
        )}
      </figure>
      <figure>
        <figcaption>
          <h3>
            Ended <span class="muted">{per}</span>
          </h3>
          <span class="push row wrap chart-legend">
            {OUTCOMES.map(({ name, colour }, which) => (
              <a key={name} class="chart-total" href={href(["instances"], { status: name, ended_from_ms: from })}>
                <Key colour={colour} /> {total(ended, which).toLocaleString("en")}
                {isMore ? "+" : ""} {name}
              </a>
            ))}
          </span>
        </figcaption>
        <Chart
          label={`Ended ${per}`}
          series={OUTCOMES}
          bars={ended}
          onOpen={(bar) => go(["instances"], { ended_from_ms: bar.from, ended_before_ms: bar.to })}
        />
      </figure>
    </div>
  );
}
