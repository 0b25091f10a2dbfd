// What every page shows at its top: the store, how fresh the data is, how many instances are blocked, and who one is.
import type { JSX } from "preact";

import { connection, lastHeard } from "../api/stream/stream.ts";
import { Segments, countText } from "../design/Controls.tsx";
import { keysAreOn } from "../design/keys.ts";
import { Menu, MenuItem } from "../design/Menu.tsx";
import { Icon } from "../design/icons.tsx";
import { Time, clock, timeForm, serverTime } from "../design/time.tsx";
import { href } from "../router/router.ts";
import { Mark } from "./Mark.tsx";
import { openPalette, showHelp } from "./overlays.ts";
import { frozenSince, logOut, session, stats } from "./state.ts";
import { theme } from "./theme.ts";

export function TopBar(): JSX.Element {
  return (
    <header class="topbar">
      <a class="brand" href={href([])}>
        <Mark />
        <span class="clip">{storeName()}</span>
      </a>
      <button type="button" class="search-button" aria-label="Go to… Ctrl K" onClick={() => openPalette()}>
        <Icon name="search" size={14} />
        <span>Go to…</span>
        <kbd>Ctrl K</kbd>
      </button>
      <div class="row push">
        <BlockedCount />
        <Freshness />
        <Settings />
        <Who />
      </div>
    </header>
  );
}

function storeName(): string {
  return session.value.value?.store ?? "Perennial";
}

function BlockedCount(): JSX.Element | null {
  const blocked = stats.value?.blocked;
  if (blocked === undefined || blocked.rows === 0) return null;
  return (
    <a class="chip amber" href={href(["blocked"])}>
      <Icon name="blocked" size={14} />
      {countText(blocked)} <span class="wide-only">blocked</span>
    </a>
  );
}

function Freshness(): JSX.Element {
  const state = connection.value;
  const isFrozen = frozenSince.value !== null;
  const heard = lastHeard.value;
  const [kind, text] = isFrozen
    ? ["frozen", "Frozen"]
    : state.is === "live"
      ? ["live", "Live"]
      : state.is === "away"
        ? ["away", "Away"]
        : state.is === "refused"
          ? ["away", "Not live"]
          : ["waiting", "Connecting"];
  const age =
    heard === 0 ? "" : `The server was last heard from ${Math.max(0, Math.round((clock.value - heard) / 1_000))} s ago. `;
  return (
    <button
      type="button"
      class={`freshness ${kind}`}
      aria-pressed={isFrozen}
      title={`${age}Click to ${isFrozen ? "go on" : "freeze the page"}.`}
      onClick={() => (frozenSince.value = isFrozen ? null : serverTime())}
    >
      <span class="dot" />
      {state.is === "away" && !isFrozen ? (
        <>
          as of <Time ms={state.since} form="relative" />
        </>
      ) : (
        text
      )}
    </button>
  );
}

function Settings(): JSX.Element {
  return (
    <Menu
      button={<Icon name="sliders" />}
      buttonClass="button quiet icon"
      label="Times, theme and keys"
      role="dialog"
      class="settings"
    >
      {() => (
        <div class="stack">
          <div class="labelled">
            <span class="label">Times</span>
            <Segments
              label="Times"
              value={timeForm.value}
              onChange={(form) => (timeForm.value = form)}
              options={[
                ["relative", "Relative"],
                ["local", "Local"],
                ["utc", "UTC"],
              ]}
            />
          </div>
          <div class="labelled">
            <span class="label">Theme</span>
            <Segments
              label="Theme"
              value={theme.value}
              onChange={(next) => (theme.value = next)}
              options={[
                ["system", "System"],
                ["light", "Light"],
                ["dark", "Dark"],
              ]}
            />
          </div>
          <label class="row">
            <input
              type="checkbox"
              checked={keysAreOn.value}
              onChange={(event) => (keysAreOn.value = event.currentTarget.checked)}
            />
            Single-key shortcuts
          </label>
          <button type="button" class="button small" onClick={() => showHelp()}>
            All keys <kbd>?</kbd>
          </button>
        </div>
      )}
    </Menu>
  );
}

function Who(): JSX.Element {
  const who = session.value.value;
  const role = who?.role ?? "nobody";
  const name = who?.name === undefined || who.name === "" ? role : who.name;
  return (
    <Menu
      button={
        <>
          <Icon name="user" />
          <span class="wide-only clip">{name}</span>
          {name !== role && <span class="count wide-only">{role}</span>}
        </>
      }
      buttonClass="button quiet who"
      label={name === role ? `You are an ${role}`.replace("an r", "a r") : `${name}, ${role}`}
    >
      {(close) => (
        <>
          <div class="heading">
            {role === "reader" ? "Readers look and ask queries." : "Operators look, ask and change."}
            {who?.payloads_hidden === true && " Payloads are hidden from you."}
          </div>
          {who?.can_log_in === true ? (
            <MenuItem
              onClick={() => {
                close();
                void logOut();
              }}
            >
              Log out
            </MenuItem>
          ) : (
            <MenuItem whyNot="no tokens here">Log out</MenuItem>
          )}
        </>
      )}
    </Menu>
  );
}
