// The buttons of the head: what helps most as things stand, and a menu with everything.
import type { JSX } from "preact";

import type { InstanceDetails } from "../../api/types.ts";
import { Button } from "../../design/Controls.tsx";
import { Text } from "../../design/Id.tsx";
import { Menu, MenuItem } from "../../design/Menu.tsx";
import { Icon } from "../../design/icons.tsx";
import { useCommands, useKeys } from "../../design/keys.ts";
import { whyReadOnly } from "../../frame/state.ts";
import { param } from "../../router/router.ts";
import { actionsFor, awaitedEvents, raise, resume, retry, retryActivity, type Action } from "./acting.tsx";
import type { WaitRecord } from "./data.ts";
import type { InstanceModel } from "./model.ts";

export function Actions({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const actions = actionsFor({ model, details });
  const state = actions.map((action) => `${action.name} ${action.whyNot ?? ""}`).join();
  useCommands(
    actions.map(({ name, run, whyNot }) => ({ name: name.replace("…", ""), run, whyNot })),
    [state, details],
  );
  useKeys(
    [
      {
        keys: ".",
        does: "Open the actions",
        group: "Instance",
        act: () => document.querySelector<HTMLElement>(".one-actions-button")?.click(),
      },
    ],
    [],
  );
  return (
    <>
      {param("turn") === null && <Foremost model={model} details={details} />}
      <Menu
        button={
          <>
            Actions <Icon name="chevronDown" size={12} />
          </>
        }
        buttonClass="button one-actions-button"
        label="Actions"
      >
        {(close) =>
          actions.map((action, index) => <Item key={action.name} action={action} before={actions[index - 1]} close={close} />)
        }
      </Menu>
    </>
  );
}

function Item({ action, before, close }: { action: Action; before: Action | undefined; close: () => void }): JSX.Element {
  const isFirstDanger = action.isDanger === true && before?.isDanger !== true;
  return (
    <>
      {isFirstDanger && <hr />}
      <MenuItem
        isDanger={action.isDanger === true && action.whyNot === null}
        whyNot={action.whyNot}
        onClick={() => {
          close();
          action.run();
        }}
      >
        {action.name}
      </MenuItem>
    </>
  );
}

function Foremost({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element | null {
  const about = { model, details };
  if (details.blocked !== null) {
    const isPaused = details.blocked.pause !== undefined;
    return (
      <Button kind="primary" whyNot={whyReadOnly.value} onClick={() => (isPaused ? resume(about) : retry(about))}>
        {isPaused ? "Resume…" : "Retry…"}
      </Button>
    );
  }
  const pausing = (details.waits_for as WaitRecord[]).find((wait) => wait.kind === "activity" && wait.state === "retry");
  if (pausing?.event !== undefined) {
    const event = pausing.event;
    return (
      <Button kind="primary" whyNot={whyReadOnly.value} onClick={() => retryActivity(about, event, pausing.name ?? "")}>
        Retry{" "}
        <span class="one-verb-name clip">
          <Text text={pausing.name ?? ""} />
        </span>{" "}
        now…
      </Button>
    );
  }
  const awaited = awaitedEvents(details)[0];
  if (awaited === undefined || model.isOver) return null;
  return (
    <Button kind="primary" whyNot={whyReadOnly.value} onClick={() => raise(about, awaited)}>
      Raise{" "}
      <span class="one-verb-name clip">
        <Text text={awaited} />…
      </span>
    </Button>
  );
}
