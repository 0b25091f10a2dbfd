// Blocked instances, one row per cause. A cause that is gone stays as resolved until one leaves the page, so that nobody wonders
// where it went.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";

import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import type { Cause } from "../../api/ops.ts";
import { countText } from "../../design/Controls.tsx";
import { useRowKeys } from "../../design/Fold.tsx";
import { Holding, useAnnounced, useHeld } from "../../design/hold.tsx";
import { Empty, Part } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";
import { useFrozen, useRefresh } from "../../frame/refresh.ts";
import { stats } from "../../frame/state.ts";
import { href, param } from "../../router/router.ts";
import { CauseRow } from "./CauseRow.tsx";
import { WaitingForCode } from "./WaitingForCode.tsx";
import "./blocked.css";
import { causeId } from "./cause.ts";

export default function BlockedPage(): JSX.Element {
  const causes = useLoad((signal) => get("blocked", { signal }), []);
  const doctor = useLoad((signal) => get("doctor", { signal }), []);
  const paused = useLoad((signal) => get("count", { query: { paused: true }, signal }), []);
  useRefresh([causes], { afterMs: 1_000 });
  useRefresh([doctor, paused], { afterMs: 5_000 });
  useRowKeys();
  const count = useFrozen(stats.value?.blocked);
  useAnnounced(count === undefined ? "" : `${countText(count)} instances are blocked`);
  const pausedRows = paused.value.value?.rows ?? 0;
  return (
    <Page
      title="Blocked"
      beside={count !== undefined && count.rows > 0 && <span class="muted">{countText(count)} instances</span>}
    >
      <Part of={causes}>{(value) => <Causes causes={value.causes} isPartial={value.partial} />}</Part>
      <Part of={doctor} waiting={<></>}>
        {(value) => <WaitingForCode findings={value.waiting} />}
      </Part>
      {pausedRows > 0 && (
        <p class="muted">
          Paused instances are blocked on purpose and not shown here:{" "}
          <a class="link" href={href(["instances"], { paused: true })}>
            {countText(paused.value.value ?? 0)} paused
          </a>
          .
        </p>
      )}
    </Page>
  );
}

function Causes({ causes, isPartial }: { causes: readonly Cause[]; isPartial: boolean }): JSX.Element {
  const opened = param("cause");
  const seen = useRef(new Map<string, Cause>());
  const now = new Map(causes.map((cause) => [causeId(cause), cause]));
  for (const [id, cause] of now) seen.current.set(id, cause);
  const resolved = [...seen.current].filter(([id]) => !now.has(id)).map(([, cause]) => ({ ...cause, count: 0 }));
  const held = useHeld([...causes, ...resolved], causeId, opened !== null);
  const isLost = opened !== null && !held.rows.some((cause) => causeId(cause) === opened);
  if (held.rows.length === 0 && !isLost) return <Nothing />;
  return (
    <>
      {isLost && (
        <p class="blocked-lost" role="status">
          The cause in this link is gone: its instances go on, have ended, or are blocked by another cause by now.{" "}
          <a class="link" href={href(["blocked"])}>
            Show all causes
          </a>
        </p>
      )}
      {held.rows.length > 0 && (
        <Holding of={held} one="new cause" many="new causes">
          <ul class="folds">
            {held.rows.map((cause) => (
              <CauseRow key={causeId(cause)} cause={cause} isOpen={causeId(cause) === opened} />
            ))}
          </ul>
        </Holding>
      )}
      {isPartial && <p class="hint">Counts are of the first 10,000 blocked instances; there are more.</p>}
    </>
  );
}

function Nothing(): JSX.Element {
  return (
    <Empty title="No instance is blocked">
      <p>
        An instance is blocked when it cannot go on with the code that is registered: the code decides something else than the
        history says, it panics, or its version is missing. Nothing is lost then; it waits, and goes on after the fix.
      </p>
      <p>
        Here would stand one row per cause, with both sides of the difference, the line of source, and what to do. A preflight
        finds the same before a deployment: see{" "}
        <a class="link" href={href(["deploy"])}>
          Deploy
        </a>
        .
      </p>
    </Empty>
  );
}
