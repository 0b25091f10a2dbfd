// What an instance waits for, in words that follow the clock.
import type { JSX } from "preact";

import { Id, Text } from "../../design/Id.tsx";
import { Time, Since } from "../../design/time.tsx";
import { href } from "../../router/router.ts";
import type { WaitRecord } from "./data.ts";
import { EventLink, ServerText, errorText } from "./parts.tsx";

/** What is waited for, in words that follow the clock. */
export function WaitText(props: {
  wait: WaitRecord;
  id: string;
  isSentence?: boolean;
  /** When it was so, if that is past. */
  at?: number | undefined;
}): JSX.Element {
  const { wait, id, isSentence = false, at } = props;
  const lead = (word: string) => (isSentence ? `Waits for ${word}` : word.charAt(0).toUpperCase() + word.slice(1));
  switch (wait.kind) {
    case "activity":
      return (
        <>
          {lead("activity")}{" "}
          <code>
            <Text text={wait.name ?? ""} />
          </code>{" "}
          <Proof wait={wait} id={id} />: <ActivityState wait={wait} at={at} />
        </>
      );
    case "event":
      return (
        <>
          {lead("event")}{" "}
          <code>
            <Text text={wait.name ?? ""} />
          </code>{" "}
          <Proof wait={wait} id={id} /> <Since ms={wait.since_ms ?? 0} at={at} />
          {wait.timer_ms !== undefined && (
            <>
              , gives up <Time ms={wait.timer_ms} />
            </>
          )}
          .
        </>
      );
    case "timer":
      return (wait.due_ms ?? 0) >= 253_402_300_799_999 ? (
        <>
          {lead("a timer")} that never fires <Proof wait={wait} id={id} />.
        </>
      ) : (
        <>
          {lead("a timer")} <Proof wait={wait} id={id} /> until <Time ms={wait.due_ms ?? 0} form="clock" /> (
          <Time ms={wait.due_ms ?? 0} form="relative" />
          ).
        </>
      );
    case "child":
      return (
        <>
          {lead("child")} <Id text={wait.id ?? ""} href={href(["instances", wait.id ?? ""])} /> <Proof wait={wait} id={id} />{" "}
          <Since ms={wait.since_ms ?? 0} at={at} />
          {isSentence && wait.waits?.[0] !== undefined && (
            <>
              , which waits for <Deepest wait={wait.waits[0]} />
            </>
          )}
          .
        </>
      );
    case "start":
      return (
        <>
          Starts <Time ms={wait.due_ms ?? 0} form="clock" /> (<Time ms={wait.due_ms ?? 0} form="relative" />
          ).
        </>
      );
    case "cancellation":
      return (
        <>
          Cancel requested <Time ms={wait.since_ms ?? 0} />
          {wait.reason !== undefined && (
            <>
              :{" "}
              <q>
                <Text text={wait.reason} />
              </q>
            </>
          )}
          . It ends at the latest <Time ms={wait.until_ms ?? 0} />.
        </>
      );
    case "blocked":
      return (
        <>
          Blocked: <ServerText text={(wait.reason ?? "").replace(/^PER-\d+ /, "")} id={id} />. Tried{" "}
          {wait.attempts === 1 ? "once" : `${wait.attempts ?? 0} times`}, blocked <Since ms={wait.since_ms ?? 0} at={at} />.
        </>
      );
    default:
      return (
        <>
          {capital(wait.text, id)}
          {wait.text.endsWith(".") ? "" : "."}
        </>
      );
  }
}

function capital(text: string, id: string): JSX.Element {
  return <ServerText text={text.charAt(0).toUpperCase() + text.slice(1)} id={id} />;
}

function Proof({ wait, id }: { wait: WaitRecord; id: string }): JSX.Element | null {
  return wait.event === undefined ? null : (
    <>
      (<EventLink id={id} event={wait.event} />)
    </>
  );
}

/** The end of a chain of children that wait for children. */
function Deepest({ wait }: { wait: WaitRecord }): JSX.Element {
  let at = wait;
  while (at.kind === "child" && at.waits?.[0] !== undefined) at = at.waits[0];
  return at.kind === "child" ? (
    <>
      child <Id text={at.id ?? ""} />
    </>
  ) : (
    <ServerText text={at.text} />
  );
}

function ActivityState({ wait, at }: { wait: WaitRecord; at: number | undefined }): JSX.Element {
  const attempt = wait.attempt ?? 1;
  const of = wait.max_attempts === undefined || wait.max_attempts <= 1 ? "" : ` of ${wait.max_attempts}`;
  const failed = wait.failed !== undefined && (
    <>
      attempt {attempt - 1}
      {of} failed <Time ms={wait.failed.at_ms} form="relative" /> with{" "}
      <q class="red">
        <Text text={errorText(wait.failed.error)} />
      </q>
      ,{" "}
    </>
  );
  switch (wait.state) {
    case "retry":
      return (
        <>
          {failed}the next is <Time ms={wait.due_ms ?? 0} form="relative" /> at <Time ms={wait.due_ms ?? 0} form="clock" />.
        </>
      );
    case "running":
      return (
        <>
          {failed}attempt {attempt}
          {of} runs on <Text text={wait.node ?? "a node"} /> <Since ms={wait.since_ms ?? 0} at={at} />
          {wait.heard_ms != null && (
            <>
              , last heartbeat <Time ms={wait.heard_ms} form="relative" />
            </>
          )}
          .
        </>
      );
    case "with_owner":
      return (
        <>
          {failed}attempt {attempt}
          {of} is with <Text text={wait.node ?? "its node"} /> <Since ms={wait.since_ms ?? 0} at={at} />, running or waiting for a
          slot.
        </>
      );
    case "not_registered":
      return (
        <>
          queued <Since ms={wait.since_ms ?? 0} at={at} />; no live node has it registered
          {wait.tag != null && (
            <>
              {" "}
              and serves the tag{" "}
              <code>
                <Text text={wait.tag} />
              </code>
            </>
          )}
          .
        </>
      );
    default:
      return (
        <>
          {failed}
          {wait.state === undefined ? "open" : wait.state.replaceAll("_", " ")}{" "}
          <Since ms={wait.since_ms ?? wait.scheduled_ms ?? 0} at={at} />.
        </>
      );
  }
}
