// The store at a glance: what is wrong, how much happens, how long it takes. Every number leads to the list of what it counts.
import type { JSX } from "preact";

import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import { Segments } from "../../design/Controls.tsx";
import { useRowKeys } from "../../design/Fold.tsx";
import { Part, Waiting } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";
import { useRefresh } from "../../frame/refresh.ts";
import { change, choice } from "../../router/router.ts";
import { Durations } from "./Durations.tsx";
import { Findings } from "./Findings.tsx";
import { Throughput } from "./Throughput.tsx";
import { Statuses, Vitals } from "./Vitals.tsx";
import "./overview.css";
import { serverTime } from "../../design/time.tsx";

const MINUTE = 60_000;
const WINDOWS = {
  hour: { buckets: 60, width: MINUTE, per: "per minute", everyMs: 10_000 },
  day: { buckets: 96, width: 15 * MINUTE, per: "per 15 minutes", everyMs: 60_000 },
  week: { buckets: 168, width: 60 * MINUTE, per: "per hour", everyMs: 120_000 },
} as const;

export default function OverviewPage(): JSX.Element {
  const span = choice("span", ["hour", "day", "week"]);
  const window = WINDOWS[span];
  const history = useLoad(
    (signal) => {
      // On whole buckets, so that bars grow and do not change their borders.
      const to = Math.floor(serverTime() / window.width + 1) * window.width;
      return get("stats/history", {
        signal,
        query: { from_ms: to - window.buckets * window.width, to_ms: to, buckets: window.buckets },
      });
    },
    [span],
  );
  const doctor = useLoad((signal) => get("doctor", { signal }), []);
  const durations = useLoad((signal) => get("stats/durations", { signal }), []);
  useRefresh([history], { afterMs: window.everyMs / 4, everyMs: window.everyMs });
  useRefresh([doctor, durations], { afterMs: 5_000 });
  useRowKeys();
  return (
    <Page title="Overview">
      <Vitals />
      <Part of={doctor}>
        {(value) => <Findings findings={value.findings} waiting={value.waiting} isComplete={value.is_complete} />}
      </Part>
      <section class="stack">
        <div class="section-head overview-span">
          <h2>Throughput</h2>
          <span class="push" />
          <Segments
            label="Time span"
            value={span}
            onChange={(next) => change({ span: next === "hour" ? null : next })}
            options={[
              ["hour", "Hour"],
              ["day", "Day"],
              ["week", "Week"],
            ]}
          />
        </div>
        <Part
          of={history}
          waiting={
            <div class="card overview-charts">
              <Waiting />
              <Waiting />
            </div>
          }
        >
          {(value) => <Throughput history={value} per={window.per} />}
        </Part>
      </section>
      <div class="overview-two">
        <section class="stack">
          <Part of={durations}>{(value) => <Durations rows={value.rows} from={value.from_ms} />}</Part>
        </section>
        <Statuses />
      </div>
    </Page>
  );
}
