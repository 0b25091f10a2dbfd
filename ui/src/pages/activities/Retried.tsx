// What failed and waits for its next attempt, by name, with errors grouped by their text.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { get } from "../../api/client.ts";
import type { TaskGroup } from "../../api/ops.ts";
import { Button, countText } from "../../design/Controls.tsx";
import { Fold } from "../../design/Fold.tsx";
import { Changing, Holding, useHeld } from "../../design/hold.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Icon } from "../../design/icons.tsx";
import { Time, now } from "../../design/time.tsx";
import { OperateDialog, type Plan } from "../../frame/Operate.tsx";
import { whyReadOnly } from "../../frame/state.ts";
import { change, go, href, param } from "../../router/router.ts";

/** In the URL: none is open, although there is only one. */
const CLOSED = "-";
const keyOf = (group: TaskGroup) => `${group.name}\u0000${group.tag ?? ""}`;

export function Retried({ groups }: { groups: readonly TaskGroup[] }): JSX.Element | null {
  const opened = param("activity");
  const held = useHeld(groups, keyOf, opened !== null && opened !== CLOSED);
  if (held.rows.length === 0) return null;
  return (
    <section class="stack">
      <div class="section-head">
        <h2>Retried now</h2>
        <p>These failed and wait for their next attempt.</p>
      </div>
      <Holding of={held}>
        <ul class="folds">
          {held.rows.map((group) => (
            <Group
              key={keyOf(group)}
              group={group}
              isGone={held.isGone(group)}
              isOpen={opened === keyOf(group) || (opened === null && held.rows.length === 1)}
            />
          ))}
        </ul>
      </Holding>
    </section>
  );
}

function Group({ group, isGone, isOpen }: { group: TaskGroup; isGone: boolean; isOpen: boolean }): JSX.Element {
  const [plan, setPlan] = useState<Plan | null>(null);
  const first = group.errors[0];
  const retryAll: Plan = {
    title: `Retry ${group.name} now`,
    action: "retry_activities",
    activity: group.name,
    filter: "retrying=true",
    verb: "Retry",
    sentence: (count, isOne) =>
      `In ${isOne ? "1 instance" : `up to ${count} instances`} the activities ${group.name} that wait for a retry are ` +
      "attempted at once. Their attempts count as usual.",
  };
  return (
    <Fold
      isOpen={isOpen}
      onToggle={() => change({ activity: isOpen ? CLOSED : keyOf(group) })}
      title={
        <span class="fold-title">
          <span class="row wrap">
            <b class="activity-name">
              <Id text={group.name} />
            </b>
            {group.tag !== undefined && (
              <span class="chip plain">
                tag <Id text={group.tag} />
              </span>
            )}
          </span>
          {first !== undefined && (
            <span class="sub clip">
              <Text text={plain(first.text)} />
              {group.errors.length > 1 && ` and ${group.errors.length - 1} other errors`}
            </span>
          )}
        </span>
      }
      body={() => <Errors group={group} />}
    >
      {isGone ? (
        <span class="figure activity-done">
          <b class="row">
            <Icon name="check" size={14} /> 0
          </b>
          <span>none left</span>
        </span>
      ) : (
        <>
          <span class="figure">
            <b>
              <Changing text={countText(group.count)} />
            </b>
            <span>{group.count === 1 ? "activity" : "activities"}</span>
          </span>
          <span class="figure">
            <b>{group.max_attempt.toLocaleString("en")}</b>
            <span>highest attempt</span>
          </span>
          <span class="figure activity-next">
            <b>{group.next_ms === undefined ? "–" : <Next at={group.next_ms} />}</b>
            <span>next attempt</span>
          </span>
        </>
      )}
      <Button whyNot={isGone ? "None waits for a retry any more." : whyReadOnly.value} onClick={() => setPlan(retryAll)}>
        Retry all now…
      </Button>
      {plan !== null && <OperateDialog plan={plan} onClose={() => setPlan(null)} />}
    </Fold>
  );
}

function Next({ at }: { at: number }): JSX.Element {
  return at <= now.value ? <span>now</span> : <Time ms={at} />;
}

/** An error that is a JSON string is shown without its quotes. */
export function plain(error: string): string {
  return /^"[^"\\]*"$/.test(error) ? error.slice(1, -1) : error;
}

function Errors({ group }: { group: TaskGroup }): JSX.Element {
  return (
    <>
      <table class="table cards activity-errors">
        <thead>
          <tr>
            <th scope="col">Error, with ids and numbers left out as #</th>
            <th scope="col" class="num">
              Activities
            </th>
            <th scope="col">For example</th>
            <th scope="col">
              <span class="sr-only">Instance</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {group.errors.map((error) => (
            <tr key={error.text}>
              <td class="mono whole">
                <Text text={plain(error.text)} />
              </td>
              <td class="num" data-label="Activities">
                {countText(error.count)}
              </td>
              <td class="muted activity-sample" data-label="For example">
                <Text text={plain(error.sample)} />
              </td>
              <td>
                <Instance key_={error.key} event={error.event} />
              </td>
            </tr>
          ))}
          {group.other_errors > 0 && (
            <tr>
              <td class="muted">other texts</td>
              <td class="num">{countText(group.other_errors)}</td>
              <td />
              <td />
            </tr>
          )}
        </tbody>
      </table>
      <div class="row wrap">
        <a class="link" href={href(["instances"], { waits_for: `activity:${group.name}` })}>
          Instances that wait for <Id text={group.name} />
        </a>
        <a class="link" href={href(["instances"], { retrying: true })}>
          All that are retrying
        </a>
      </div>
    </>
  );
}

/** Groups name an instance by its key; its id is looked up when it is wanted. */
function Instance({ key_, event }: { key_: string; event: number }): JSX.Element {
  const open = async () => {
    const { places } = await get("search", { query: { q: key_ } });
    const found = places.find((each) => each.kind === "instance");
    if (found !== undefined) go(["instances", found.name], { tab: "waits", event });
    else go(["instances"], { retrying: true });
  };
  return (
    <button type="button" class="button quiet small" onClick={() => void open()}>
      Open
    </button>
  );
}
