// What stops everything, across the whole width.
import type { JSX } from "preact";

import { connection, reconnect } from "../api/stream/stream.ts";
import { Text } from "../design/Id.tsx";
import { Icon } from "../design/icons.tsx";
import { Time, clock } from "../design/time.tsx";
import { frozenSince, noRuntimeSince, version } from "./state.ts";

export function Banners(): JSX.Element {
  return (
    <div role="status">
      <Away />
      <NoRuntime />
      <NewVersion />
      <Frozen />
    </div>
  );
}

function Away(): JSX.Element | null {
  const state = connection.value;
  if (state.is !== "away") return null;
  const seconds = Math.max(0, Math.ceil((state.retryAt - clock.value) / 1_000));
  return (
    <div class="banner red">
      <Icon name="warning" />
      <span>
        {state.why === null ? "The server cannot be reached" : "The server cannot serve this store"} since{" "}
        <Time ms={state.since} form="clock" />
        {state.why === null ? (
          ""
        ) : (
          <>
            : <Text text={state.why} />
          </>
        )}
        . What is shown is from then. {seconds > 0 ? `Next try in ${seconds} s.` : "Trying…"}
      </span>
      <button type="button" class="button small push" onClick={reconnect}>
        Try now
      </button>
    </div>
  );
}

function NoRuntime(): JSX.Element | null {
  const none = noRuntimeSince.value;
  if (none === null || connection.value.is === "away") return null;
  return (
    <div class="banner amber">
      <Icon name="warning" />
      <span>
        {none.since === null ? (
          "No runtime runs on this store"
        ) : (
          <>
            No runtime has run on this store since <Time ms={none.since} form="clock" />
          </>
        )}
        ; nothing moves until one is started.
      </span>
    </div>
  );
}

function NewVersion(): JSX.Element | null {
  const versions = version.value;
  if (versions === null || versions.first === versions.now) return null;
  return (
    <div class="banner blue">
      <span>
        The server is now version {versions.now}. This page is of version {versions.first} and keeps working.
      </span>
      <button type="button" class="button small push" onClick={() => location.reload()}>
        Reload
      </button>
    </div>
  );
}

function Frozen(): JSX.Element | null {
  const since = frozenSince.value;
  if (since === null) return null;
  return (
    <div class="banner blue">
      <Icon name="freeze" />
      <span>
        Frozen as of <Time ms={since} form="clock" />. Changes wait.
      </span>
      <button type="button" class="button small push" onClick={() => (frozenSince.value = null)}>
        Go on
      </button>
    </div>
  );
}
