// The frame around every page: navigation, the way back, search, sign-out, and the bar that says when the gateway is silent.
import { useEffect, useState } from "preact/hooks";
import { arrived } from "../api/arrival";
import { closeSession, may, offlineSince, session, signInWanted } from "../api/client";
import { watchHealth } from "../api/health_watch";
import { silentSince } from "../api/live";
import { openAlerts, seeAlerts } from "../api/open_alerts";
import { nodeName, reach, reachWords } from "../api/reach";
import { changed, forgetAll, useResource } from "../api/resource";
import type { Setup } from "../api/shapes";
import type { GatewayState, Nodes } from "../api/types";
import { newVersion, seeVersion } from "../api/version";
import { failingProviders } from "../page/overview/verdict";
import { keptParams } from "../page/requests/filters";
import { stepsLeft } from "../page/setup/steps";
import { Empty, Notices } from "../part/feedback";
import { ago, clock, count, zoneName } from "../part/format";
import { Brand, Icon } from "../part/icon";
import { ALERTS, entryOf, HOME, PROVIDERS, permittedPages, ROUTES, SETUP, shownGroups, start } from "./nav";
import { Palette } from "./palette";
import { isDark, preferences } from "./preferences";
import { href, lastPart, match, path } from "./router";
import { Shortcuts, startShortcuts } from "./shortcuts";
import { SignIn } from "./sign_in";

export function App() {
  const open = session.value !== null;
  return (
    <>
      {open && <Shell />}
      {signInWanted.value && <SignIn first={!open} />}
      <Notices />
    </>
  );
}

function Shell() {
  const [overlay, setOverlay] = useState<"none" | "search" | "keys">("none");
  useEffect(() => startShortcuts({ search: () => may("search") && setOverlay("search"), help: () => setOverlay("keys") }), []);
  useEffect(watchHealth, []);
  const state = useResource<GatewayState>("state").data.value;
  useEffect(() => {
    if (state) {
      seeVersion(state.version);
      nodeName.value = state.node?.name ?? null;
    }
    seeAlerts(state?.alerts);
  }, [state]);
  // Not on a timer: a page that is left open must not keep its session alive.
  useEffect(() => changed("state"), [path.value]);
  return (
    <>
      <a class="skip" href="#content">
        Skip to content
      </a>
      <div class={arrived.value ? "shell" : "shell arriving"}>
        <Side />
        <div class="main">
          <Bar onSearch={() => setOverlay("search")} />
          <OfflineBar />
          <UpdateBar />
          <ReachBar />
          <main class={noAnswerSince() === null ? "page" : "page stale"} id="content" tabIndex={-1}>
            <Current />
          </main>
        </div>
      </div>
      {overlay === "search" && <Palette onClose={() => setOverlay("none")} onHelp={() => setOverlay("keys")} />}
      {overlay === "keys" && <Shortcuts onClose={() => setOverlay("none")} />}
    </>
  );
}

function Current() {
  const here = path.value === HOME ? start() : path.value;
  const entry = entryOf(here);
  const isPermitted = entry === undefined || permittedPages().includes(entry);
  for (const [pattern, Component] of isPermitted ? ROUTES : []) {
    const parts = match(pattern, here);
    if (parts) return <Component key={here} {...parts} />;
  }
  return (
    <Empty
      page
      icon="search"
      title="There is no such page"
      action={
        <a class="btn" href={href(start())}>
          Go to the start
        </a>
      }
    >
      The console has nothing at <span class="mono wrap">{here}</span>.
    </Empty>
  );
}

function Navigation({ id }: { id: string }) {
  const current = entryOf(path.value);
  const setup = useResource<Setup>("setup").data.value;
  const left = setup ? stepsLeft(setup) : 0;
  const verdict = useResource<GatewayState>("state").data.value?.verdict;
  const failing = verdict ? failingProviders(verdict).length : 0;
  return (
    <>
      {shownGroups().map((group) => (
        <div key={group.title}>
          {group.title && (
            <div class="nav-group" id={`${id}-${group.title}`}>
              {group.title}
            </div>
          )}
          <ul class="nav" aria-labelledby={group.title ? `${id}-${group.title}` : undefined}>
            {group.pages
              .filter((page) => page.path !== SETUP || left > 0)
              .map((page) => (
                <li key={page.path}>
                  <a href={href(page.path)} aria-current={current === page ? "page" : undefined}>
                    <Icon name={page.icon} />
                    {page.title}
                    {page.path === SETUP && <span class="count">{left} left</span>}
                    {page.path === ALERTS && <OpenCount />}
                    {page.path === PROVIDERS && failing > 0 && <span class="count bad">{count(failing)} failing</span>}
                  </a>
                </li>
              ))}
          </ul>
        </div>
      ))}
    </>
  );
}

/** The number of open alerts, red if one of them is urgent. */
function OpenCount() {
  const { total, bad } = openAlerts.value ?? { total: 0, bad: 0 };
  if (total === 0) return null;
  return (
    <span class={bad > 0 ? "count bad" : "count"} title={bad > 0 ? `${count(bad)} urgent` : undefined}>
      {count(total)} open
    </span>
  );
}

function Side() {
  return (
    <nav class="side" aria-label="Console">
      <a class="brand" href={href("/")}>
        <Brand />
        llmgw
      </a>
      <Navigation id="side" />
      <SideFoot />
    </nav>
  );
}

/** The version, since when the gateway runs, and what a person can switch everywhere. */
function SideFoot() {
  const state = useResource<GatewayState>("state").data.value;
  const dark = isDark();
  return (
    <div class="side-foot">
      <span>
        {session.value?.human
          ? (session.value.human.email ?? session.value.human.name)
          : state
            ? `${state.version}${state.node ? ` · ${state.node.name}` : ""} · up ${ago(state.started_at_ms).replace(/ ago$|^now$/, "")}`
            : ""}
      </span>
      <span class="pair-plain">
        <button
          type="button"
          class="btn plain square small"
          aria-label={dark ? "Light theme" : "Dark theme"}
          onClick={() => {
            preferences.theme.value = dark ? "light" : "dark";
          }}
        >
          <Icon name="sun-moon" small />
        </button>
        <button type="button" class="btn plain square small" aria-label="Sign out" onClick={signOut}>
          <Icon name="log-out" small />
        </button>
      </span>
    </div>
  );
}

async function signOut(): Promise<void> {
  await closeSession();
  forgetAll();
  openAlerts.value = null;
}

function Bar({ onSearch }: { onSearch: () => void }) {
  const entry = entryOf(path.value);
  const here = path.value;
  return (
    <header class="bar">
      <details class="small-nav" key={here}>
        <summary class="btn plain square" aria-label="Navigation">
          <Icon name="menu" />
        </summary>
        <nav class="small-nav-box" aria-label="Console, small">
          <Navigation id="small" />
          <SideFoot />
        </nav>
      </details>
      {entry && here !== entry.path && (
        <nav class="crumbs" aria-label="Where you are">
          <a href={href(entry.path, entry.path === "/requests" ? keptParams() : {})}>{entry.title}</a>
          {entry.path === "/requests" && (
            <>
              <Icon name="chevron-right" small />
              <span aria-current="page" class="clip">
                {lastPart(here)}
              </span>
            </>
          )}
        </nav>
      )}
      <span class="grow" />
      <button
        type="button"
        class="btn plain small wide-only"
        onClick={() => {
          preferences.zone.value = preferences.zone.value === "utc" ? "local" : "utc";
        }}
        aria-label={`Times are ${preferences.zone.value === "utc" ? "UTC" : "local"}. Switch`}
      >
        <Icon name="clock" small />
        {zoneName() === "UTC" ? "UTC" : "Local time"}
      </button>
      {may("search") && (
        <button type="button" class="jump" aria-keyshortcuts="Meta+K Control+K" onClick={onSearch}>
          <Icon name="search" small />
          <span>Search or jump to…</span>
          <span class="kbd">Ctrl K</span>
        </button>
      )}
    </header>
  );
}

/** Offers to load the page again once the gateway has another version. It never does so by itself: something may be half typed. */
function UpdateBar() {
  return (
    <div role="status" class="offline-place">
      {newVersion.value && (
        <p class="offline">
          <Icon name="refresh-cw" small />
          The gateway has version {newVersion.value} now; this page is of an older one.
          <button type="button" class="btn small" onClick={() => location.reload()}>
            Reload
          </button>
        </p>
      )}
    </div>
  );
}

/** Says that the last change is not in force on all nodes, until that was read or the next change is. */
function ReachBar() {
  const nodes = useResource<Nodes>(reach.value?.silent.length ? "nodes" : null).data.value;
  const names = new Map(nodes?.data.map(({ node, name }) => [node, name]));
  return (
    <div role="status" class="offline-place">
      {reach.value && (
        <p class="offline">
          <Icon name="triangle-alert" small />
          {reachWords(reach.value, names)}
          <button
            type="button"
            class="btn small"
            onClick={() => {
              reach.value = null;
            }}
          >
            Dismiss
          </button>
        </p>
      )}
    </div>
  );
}

/** Since when requests have no answer or frames do not come; null while the gateway answers. What is shown is grey meanwhile. */
const noAnswerSince = (): number | null => offlineSince.value ?? silentSince.value;

function OfflineBar() {
  const since = noAnswerSince();
  return (
    <div role="status" class="offline-place">
      {since !== null && (
        <p class="offline">
          <Icon name="unplug" small />
          No answer from the gateway since {clock(since, "second")} {zoneName()}, trying again.
        </p>
      )}
    </div>
  );
}
