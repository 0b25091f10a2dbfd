// Activities that need somebody's eyes: those that are retried, those that no node can run, those that run or are silent for
// long.
import type { JSX } from "preact";

import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import type { Stats } from "../../api/types.ts";
import type { TaskGroup } from "../../api/ops.ts";
import { useRowKeys } from "../../design/Fold.tsx";
import { Empty, Part } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";
import { useRefresh } from "../../frame/refresh.ts";
import { stats } from "../../frame/state.ts";
import { countText } from "../../design/Controls.tsx";
import { Longest } from "./Longest.tsx";
import { Retried } from "./Retried.tsx";
import { Unrunnable, Queued } from "./Unrunnable.tsx";
import "./activities.css";

export default function ActivitiesPage(): JSX.Element {
  const groups = useLoad((signal) => get("tasks/groups", { signal }), []);
  const running = useLoad((signal) => get("tasks", { signal, query: { state: "leased", limit: 500 } }), []);
  useRefresh([groups, running], { everyMs: 10_000 });
  useRowKeys();
  const now = stats.value;
  return (
    <Page title="Activities" beside={now !== null && <span class="muted">{whatWaits(now)}</span>}>
      <Part of={groups}>{(value) => <Groups groups={value.groups} isPartial={value.partial} scanned={value.scanned} />}</Part>
      <Part of={running} waiting={<></>}>
        {(value) => <Longest tasks={value.rows} isPartial={value.next !== null} />}
      </Part>
    </Page>
  );
}

function Groups({
  groups,
  isPartial,
  scanned,
}: {
  groups: readonly TaskGroup[];
  isPartial: boolean;
  scanned: number;
}): JSX.Element {
  const retried = groups.filter((group) => group.state === "waiting");
  const stranded = groups.filter((group) => group.nodes === 0 && group.state !== "waiting");
  const queued = groups.filter((group) => group.state === "queued" && group.nodes > 0);
  const isQuiet = groups.every((group) => group.state === "leased");
  return (
    <>
      <Retried groups={retried} />
      {isQuiet && <Nothing />}
      {stranded.length > 0 && <Unrunnable groups={stranded} />}
      {queued.length > 0 && <Queued groups={queued} />}
      {isPartial && <p class="hint">Counted from the first {scanned.toLocaleString("en")} activities; there are more.</p>}
    </>
  );
}

function Nothing(): JSX.Element {
  return (
    <Empty title="No activity is retried">
      <p>
        An activity that failed waits here for its next attempt, by name, with its errors, and can be tried at once. Activities
        whose name or tag no live node serves stand here as well: they wait until one does.
      </p>
    </Empty>
  );
}

function whatWaits({ tasks_waiting, tasks_queued, tasks_leased }: Stats): string {
  const [waiting, queued, leased] = [tasks_waiting, tasks_queued, tasks_leased].map(countText);
  return `${waiting} wait for a retry · ${queued} queued · ${leased} with workers`;
}
