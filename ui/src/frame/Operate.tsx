// Starts an operation over all instances that a filter shows: first a dry run, which counts them, then one sentence, a guard
// against more than were counted, the number typed if there are many, and the server does it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { post, randomKey } from "../api/client.ts";
import { useLoad } from "../api/load.ts";
import { Problem as ProblemError } from "../api/problem.ts";
import type { Count, Operation } from "../api/types.ts";
import { Button, countText } from "../design/Controls.tsx";
import { SameAs, type Equivalent } from "../design/Copy.tsx";
import { Dialog } from "../design/Dialog.tsx";
import { Id } from "../design/Id.tsx";
import { Part, Problem } from "../design/Problem.tsx";
import { toast } from "../design/Toast.tsx";
import { href } from "../router/router.ts";
import { cliFilter, filterParts } from "./filter-text.tsx";

/** What `POST operations` takes, with `retry_activities`. */
export type OperationVerb = Operation["action"] | "retry_activities";

export interface Plan {
  title: string;
  action: OperationVerb;
  /** As lists take it. */
  filter: string;
  /** The verb on the button: "Retry". */
  verb: string;
  /** What happens to that many: "3 instances are tried again with the code that is registered now." */
  sentence: (count: string, isOne: boolean) => string;
  isDanger?: boolean;
  hasReason?: boolean;
  /** The number has to be typed even if it is small: for what ends or deletes running instances. */
  isTyped?: boolean;
  /** The name of the activities that are retried. */
  activity?: string;
  /** More members of the request. */
  more?: Record<string, unknown>;
}

interface Preview {
  count: Count;
  samples: string[];
}

/** From this number on it has to be typed. */
const MANY = 100;

export function OperateDialog({
  plan,
  onClose,
  onBegun,
}: {
  plan: Plan;
  onClose: () => void;
  onBegun?: (operation: Operation) => void;
}): JSX.Element {
  const [key] = useState(randomKey);
  const [reason, setReason] = useState("");
  const [typed, setTyped] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<ProblemError | null>(null);
  const body = {
    action: plan.action,
    filter: plan.filter,
    ...(plan.activity === undefined ? {} : { activity: plan.activity }),
    ...plan.more,
  };
  const preview = useLoad(
    (signal) => post("operations", { ...body, dry_run: true } as never, { signal }) as unknown as Promise<Preview>,
    [],
  );
  const count = preview.value.value?.count;
  const guarded = {
    ...body,
    ...(reason.trim() === "" ? {} : { reason: reason.trim() }),
    ...(count === undefined || count.more ? {} : { at_most: count.rows }),
  };
  const isMany = count !== undefined && count.rows > 0 && (plan.isTyped === true || count.more || count.rows > MANY);
  const wanted = String(count?.rows ?? 0);
  const whyNot =
    count === undefined
      ? "It is being counted."
      : count.rows === 0
        ? "No instance matches now."
        : isBusy
          ? "It is being sent."
          : isMany && typed.replaceAll(/[\s,.]/g, "") !== wanted
            ? `Type ${wanted} first.`
            : null;
  const submit = async () => {
    if (whyNot !== null) return;
    setBusy(true);
    setProblem(null);
    try {
      const operation = (await post("operations", guarded as never, { idempotencyKey: key })) as unknown as Operation;
      toast(
        <>
          The operation has begun.{" "}
          <a class="link" href={href(["operations"], { operation: operation.id })}>
            Show it
          </a>
        </>,
        "The operation has begun.",
      );
      onBegun?.(operation);
      onClose();
    } catch (error) {
      setProblem(ProblemError.from(error));
      setBusy(false);
    }
  };
  const footer = (
    <>
      <Button kind="quiet" onClick={onClose}>
        Cancel
      </Button>
      <Button kind={plan.isDanger === true ? "danger" : "primary"} whyNot={whyNot} onClick={() => void submit()}>
        {plan.verb}
        {count !== undefined && count.rows > 0 ? ` ${countText(count)}` : ""}
      </Button>
    </>
  );
  return (
    <Dialog title={plan.title} onClose={onClose} footer={footer} onSubmit={() => void submit()}>
      <Part of={preview}>{(value) => <Counted plan={plan} preview={value} />}</Part>
      <div class="labelled">
        <span class="label">Which</span>
        <span class="row wrap">{filterParts(plan.filter)}</span>
      </div>
      {plan.hasReason === true && (
        <div class="labelled">
          <label for="operate-reason">Reason (recorded with your name)</label>
          <input
            id="operate-reason"
            class="field"
            value={reason}
            maxLength={1000}
            autocomplete="off"
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        </div>
      )}
      {isMany && (
        <div class="labelled">
          <label for="operate-typed">
            Type <code>{wanted}</code> to confirm
          </label>
          <input
            id="operate-typed"
            class="field mono"
            value={typed}
            inputMode="numeric"
            autocomplete="off"
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </div>
      )}
      {problem !== null && <Problem problem={problem} />}
      <SameAs of={sameAs(plan, reason.trim(), guarded)} />
    </Dialog>
  );
}

function Counted({ plan, preview: { count, samples } }: { plan: Plan; preview: Preview }): JSX.Element {
  if (count.rows === 0) return <p>No instance matches the filter now; nothing would be done.</p>;
  const named = samples.slice(0, 5);
  return (
    <div class="stack">
      <p>{plan.sentence(countText(count), count.rows === 1 && !count.more)}</p>
      <p class="hint">
        {named.map((id, index) => (
          <>
            {index > 0 && ", "}
            <Id key={id} text={id.length > 60 ? `${id.slice(0, 60)}…` : id} />
          </>
        ))}
        {(count.more || count.rows > named.length) && (
          <> and {count.more ? "more" : (count.rows - named.length).toLocaleString("en")} others</>
        )}
      </p>
      <p class="hint">
        The server does it; closing the browser does not stop it.{" "}
        {count.more
          ? "There are more than were counted, and it acts on all of them."
          : `It stops after ${countText(count)}, if more match meanwhile.`}
      </p>
    </div>
  );
}

function sameAs(plan: Plan, reason: string, body: Record<string, unknown>): Equivalent {
  const filter = cliFilter(plan.filter);
  const verb = ["cancel", "terminate", "retry", "delete"].includes(plan.action) && plan.more === undefined ? plan.action : null;
  const cli =
    verb === null || filter === null
      ? null
      : [verb, ...filter, ...(reason !== "" && plan.hasReason === true ? ["--reason", reason] : [])];
  return { cli, method: "POST", path: "operations", body: JSON.stringify(body) };
}
