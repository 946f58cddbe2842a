// The live stream of the gateway: one connection for the whole console while a page shows it. It is closed while the page is
// hidden for long, and opened again when it is seen.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { awaited } from "./arrival";
import { gatewayPath } from "./base";
import { call, may } from "./client";
import { seeAlerts } from "./open_alerts";
import type { Change, LiveEvents, LiveProvider, Running, Watched } from "./shapes";
import { seeVersion } from "./version";

/** How the connection is: `waiting` until the first frame, `closed` after the gateway has ended it or while the page is hidden. */
export type LiveState = "waiting" | "open" | "closed" | "too_many";

type Name = keyof LiveEvents;

/** The time of the last frame of a stream that has been silent for five seconds; null while frames come. */
export const silentSince: Signal<number | null> = signal(null);

let lastFrameAt = 0;

/** True while a stream brings frames: the gateway lives, and need not be asked. */
export const framesCome = (): boolean => Date.now() - lastFrameAt < SILENT_MS;

export class Live {
  readonly state: Signal<LiveState> = signal("waiting");
  readonly hello: Signal<LiveEvents["hello"] | null> = signal(null);
  readonly figures: Signal<LiveEvents["figures"] | null> = signal(null);
  readonly providers: Signal<Map<string, LiveProvider>> = signal(new Map());
  readonly running: Signal<Map<string, Running>> = signal(new Map());
  /** The number of running requests that are not listed. */
  readonly more: Signal<number> = signal(0);
  readonly changes: Signal<Change[]> = signal([]);
  readonly seen: Signal<Watched[]> = signal([]);
  private source: EventSource | null = null;
  /** Called with the first frame, or when there will be none: the page waits for it. */
  private there: () => void = () => {};
  private hiding: ReturnType<typeof setTimeout> | undefined;
  private reopening: ReturnType<typeof setTimeout> | undefined;
  private silence: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly path: string) {}

  /** Opens the stream until the returned function is called. */
  start(): () => void {
    const visibility = (): void => {
      clearTimeout(this.hiding);
      if (document.hidden) this.hiding = setTimeout(() => this.close("closed"), HIDDEN_MS);
      else if (!this.source) this.open();
    };
    document.addEventListener("visibilitychange", visibility);
    this.open();
    return () => {
      document.removeEventListener("visibilitychange", visibility);
      clearTimeout(this.hiding);
      this.close("closed");
    };
  }

  private open(): void {
    if (!may("see_usage")) return;
    this.close("waiting");
    this.there = awaited();
    const source = new EventSource(gatewayPath(`/admin/api/${this.path}`));
    this.source = source;
    const listen = <N extends Name>(name: N): void =>
      source.addEventListener(name, (event) => this.take(name, JSON.parse((event as MessageEvent<string>).data)));
    for (const name of NAMES) listen(name);
    // A rejected stream is not opened again by the browser. The session may have ended: the next call finds out.
    source.onerror = (): void => {
      if (source.readyState !== EventSource.CLOSED) {
        this.state.value = "waiting";
        return;
      }
      this.source = null;
      this.there();
      void call("GET", knock()).then(
        () => this.later(),
        () => this.later(),
      );
    };
  }

  private later(): void {
    clearTimeout(this.reopening);
    if (this.source || this.state.value === "closed") return;
    this.reopening = setTimeout(() => this.open(), REOPEN_MS);
  }

  /** Waits for the next frame. Frames come once a second, so a gateway that hangs is known by their absence. */
  private heard(): void {
    const at = Date.now();
    lastFrameAt = at;
    clearTimeout(this.silence);
    silentSince.value = null;
    this.silence = setTimeout(() => {
      silentSince.value = at;
    }, SILENT_MS);
  }

  private close(state: LiveState): void {
    clearTimeout(this.reopening);
    if (state === "closed") {
      clearTimeout(this.silence);
      silentSince.value = null;
    }
    this.there();
    this.source?.close();
    this.source = null;
    this.state.value = state;
  }

  /** Takes one frame. The first frames of a connection hold everything. */
  take<N extends Name>(name: N, data: LiveEvents[N]): void {
    this.heard();
    const takers: { [Each in Name]: (data: LiveEvents[Each]) => void } = {
      hello: (hello) => {
        this.hello.value = hello;
        seeVersion(hello.version);
        this.state.value = "open";
        this.changes.value = [];
        this.running.value = new Map();
        this.more.value = 0;
        this.providers.value = new Map();
      },
      figures: (figures) => {
        this.figures.value = figures;
        seeAlerts(figures.alerts);
        this.there();
      },
      alive: () => {},
      providers: (providers) => {
        this.providers.value = new Map([...this.providers.value, ...providers.map((of): [string, LiveProvider] => [of.provider, of])]);
      },
      running: ({ begun_or_changed, ended, more }) => {
        // A human gets no figures.
        this.there();
        const next = new Map(this.running.value);
        for (const of of begun_or_changed) next.set(of.request_id, of);
        for (const id of ended) next.delete(id);
        this.running.value = next;
        this.more.value = more;
      },
      change: (change) => {
        this.changes.value = [...this.changes.value, change].slice(-CHANGES_MAX);
      },
      seen: (watched) => {
        this.seen.value = [...this.seen.value, watched].slice(-CHANGES_MAX);
      },
      bye: ({ reason }) => {
        this.there();
        // The end was announced: no frame is missing.
        clearTimeout(this.silence);
        this.source?.close();
        this.source = null;
        this.state.value = reason === "too_many" ? "too_many" : "waiting";
        if (reason === "signed_out") void call("GET", knock()).then(() => this.open());
        else this.reopening = setTimeout(() => this.open(), reason === "too_many" ? CROWDED_MS : REOPEN_MS);
      },
    };
    takers[name](data);
  }
}

/** A path that the caller may read while the session is open. */
const knock = (): string => (may("administer") ? "state" : "principals?limit=1");

/** Opens the live stream as long as the component is shown. With `watch` it also reports the requests with that key. */
export function useLive(watch?: string): Live {
  const live = useMemo(() => new Live(watch ? `live?watch=${encodeURIComponent(watch)}` : "live"), [watch]);
  useEffect(() => live.start(), [live]);
  return live;
}

const NAMES: Name[] = ["hello", "figures", "alive", "providers", "running", "change", "seen", "bye"];
/** A page that is hidden for this long closes the stream. */
const HIDDEN_MS = 60_000;
const REOPEN_MS = 2_000;
/** A stream without a frame for this long is silent. */
const SILENT_MS = 5_000;
const CROWDED_MS = 30_000;
/** The changes and watched requests that are kept. */
const CHANGES_MAX = 50;
