// What is done to many instances at once. The server does it: closing the browser stops none.
import type { JSX } from "preact";

import { post } from "../../api/client.ts";
import type { FullOperation } from "../../api/ops.ts";
import { connection } from "../../api/stream/stream.ts";
import { confirm } from "../../design/Confirm.tsx";
import { Button, countText } from "../../design/Controls.tsx";
import { Code } from "../../design/Copy.tsx";
import { Fold, useRowKeys } from "../../design/Fold.tsx";
import { Changing, Holding, useAnnounced, useHeld } from "../../design/hold.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Empty, Waiting } from "../../design/Problem.tsx";
import { Time } from "../../design/time.tsx";
import { filterParts, listHref } from "../../frame/filter-text.tsx";
import { Page } from "../../frame/Page.tsx";
import { useFrozen } from "../../frame/refresh.ts";
import { operations, whyReadOnly } from "../../frame/state.ts";
import { change, href, param } from "../../router/router.ts";
import { Progress } from "./Progress.tsx";
import { reasonsOf } from "./reasons.ts";
import "./operations.css";

export default function OperationsPage(): JSX.Element {
  useRowKeys();
  const shown = useFrozen(operations.value as readonly FullOperation[]);
  const running = shown.filter((operation) => operation.state === "running").length;
  useAnnounced(running === 0 ? "No operation runs" : `${running} ${running === 1 ? "operation runs" : "operations run"}`);
  return (
    <Page title="Operations" beside={running > 0 && <span class="chip blue">{running} running</span>}>
      {shown.length === 0 ? connection.value.is === "connecting" ? <Waiting /> : <Nothing /> : <List all={shown} />}
    </Page>
  );
}

function Nothing(): JSX.Element {
  return (
    <Empty title="No operation has been started">
      <p>
        An operation cancels, terminates, retries, pauses or deletes all instances that a filter shows, or raises an event in
        them. The server does it, shows its progress here, and can stop it. It is remembered for a day.
      </p>
      <p>
        To start one, select rows in{" "}
        <a class="link" href={href(["instances"])}>
          Instances
        </a>
        , or act on a cause in{" "}
        <a class="link" href={href(["blocked"])}>
          Blocked
        </a>
        . You see the count before anything happens.
      </p>
    </Empty>
  );
}

function List({ all }: { all: readonly FullOperation[] }): JSX.Element {
  const opened = param("operation");
  const held = useHeld(all, (operation) => operation.id, false);
  const isLost = opened !== null && !all.some((operation) => operation.id === opened);
  return (
    <>
      {isLost && (
        <p class="operation-lost" role="status">
          The operation in this link is not known here: operations are remembered for a day, by the server that does them.
        </p>
      )}
      <Holding of={held}>
        <ul class="folds">
          {held.rows.map((operation) => (
            <Row key={operation.id} operation={operation} isOpen={operation.id === opened} />
          ))}
        </ul>
      </Holding>
    </>
  );
}

const WORDS: Record<string, string> = {
  cancel: "Cancel",
  terminate: "Terminate",
  raise: "Raise an event",
  retry: "Retry",
  retry_activities: "Retry activities",
  pause: "Pause",
  resume: "Resume",
  delete: "Delete",
  prune: "Delete ended",
};
const STATES: Record<FullOperation["state"], [string, string]> = {
  running: ["Running", "blue"],
  done: ["Done", "green"],
  stopped: ["Stopped", "plain"],
  failed: ["Failed", "red"],
};

function Row({ operation, isOpen }: { operation: FullOperation; isOpen: boolean }): JSX.Element {
  const [word, tone] = STATES[operation.state];
  return (
    <Fold
      isOpen={isOpen}
      onToggle={() => change({ operation: isOpen ? null : operation.id })}
      title={
        <span class="fold-title">
          <span class="row wrap">
            <b>{WORDS[operation.action] ?? operation.action}</b> {filterParts(operation.filter)}
          </span>
          <span class="sub">
            by {operation.by === "" ? "somebody (there is no login)" : <Text text={operation.by} />} ·{" "}
            <Time ms={operation.began_ms} />
          </span>
        </span>
      }
      body={() => <Body operation={operation} />}
    >
      <span class="operation-progress">
        <span class="row">
          <span class={`chip ${tone}`}>{word}</span>
          <Counts operation={operation} />
        </span>
        <Progress operation={operation} />
      </span>
      {operation.state === "running" && (
        <Button kind="small" whyNot={whyReadOnly.value} onClick={() => askStop(operation)}>
          Stop…
        </Button>
      )}
    </Fold>
  );
}

function Counts({ operation: { done, skipped, failed, state, total } }: { operation: FullOperation }): JSX.Element {
  return (
    <span class="push nowrap">
      <Changing text={done.toLocaleString("en")} />
      {state === "running" && <span class="muted"> of {countText(total)}</span>}
      <span class="muted"> done{skipped > 0 && `, ${skipped.toLocaleString("en")} skipped`}</span>
      {failed > 0 && <span class="operation-bad">, {failed.toLocaleString("en")} failed</span>}
    </span>
  );
}

function askStop(operation: FullOperation): void {
  confirm({
    title: "Stop this operation",
    sentence:
      "It ends after the instance it is at. " +
      `What it has done to ${operation.done.toLocaleString("en")} instances stays done.`,
    verb: "Stop",
    sameAs: () => ({ cli: null, method: "POST", path: `operations/${operation.id}/stop` }),
    act: async () => {
      await post("operations/{o}/stop", undefined as never, { path: [operation.id] });
    },
  });
}

function Body({ operation }: { operation: FullOperation }): JSX.Element {
  const reasons = reasonsOf(operation);
  return (
    <>
      <dl class="operation-facts">
        <div>
          <dt>Seen</dt>
          <dd>{operation.seen.toLocaleString("en")}</dd>
        </div>
        <div>
          <dt>Done</dt>
          <dd>{operation.done.toLocaleString("en")}</dd>
        </div>
        <div>
          <dt>Skipped</dt>
          <dd title="They had ended, were gone, or had nothing to do">{operation.skipped.toLocaleString("en")}</dd>
        </div>
        <div>
          <dt>Failed</dt>
          <dd class={operation.failed > 0 ? "bad" : ""}>{operation.failed.toLocaleString("en")}</dd>
        </div>
        {operation.ended_ms !== undefined && (
          <div>
            <dt>Ended</dt>
            <dd>
              <Time ms={operation.ended_ms} />
            </dd>
          </div>
        )}
        {operation.reason !== undefined && operation.reason !== "" && (
          <div>
            <dt>Reason</dt>
            <dd>
              <Text text={operation.reason} />
            </dd>
          </div>
        )}
        {operation.ended_because !== undefined && (
          <div>
            <dt>Ended because</dt>
            <dd>
              <Text text={operation.ended_because} />
            </dd>
          </div>
        )}
      </dl>
      {reasons.length > 0 && (
        <table class="table cards operation-reasons">
          <caption class="sr-only">Failures by reason</caption>
          <thead>
            <tr>
              <th scope="col">Why they failed</th>
              <th scope="col" class="num">
                How many
              </th>
              <th scope="col">For example</th>
            </tr>
          </thead>
          <tbody>
            {reasons.map((reason) => (
              <tr key={reason.code + reason.text}>
                <td class="whole">
                  {reason.code !== "" && (
                    <>
                      <Code code={reason.code} />{" "}
                    </>
                  )}
                  <Text text={reason.text} />
                </td>
                <td class="num" data-label="How many">
                  {reason.count.toLocaleString("en")}
                </td>
                <td class="operation-ids">
                  {reason.ids.slice(0, 3).map((id) => (
                    <a key={id} class="chip" href={href(["instances", id])}>
                      <Id text={id} isClipped />
                    </a>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <a class="link" href={listHref(operation.filter)}>
        What the filter shows now
      </a>
    </>
  );
}
