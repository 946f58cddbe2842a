// One object of the admin API as signals: what was read last, the error of the last attempt, and when.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { call, Fault, readable, returns } from "./client";

export class Resource<T> {
  readonly data: Signal<T | null> = signal(null);
  readonly error: Signal<Error | null> = signal(null);
  readonly busy: Signal<boolean> = signal(false);
  /** The time at which `data` was read. */
  readonly readAt: Signal<number> = signal(0);
  etag: string | null = null;
  /** The number of mounted components that show it. */
  shown = 0;
  private running: Promise<void> | null = null;

  constructor(
    readonly path: string,
    private readonly hasPlace = false,
  ) {}

  load(): Promise<void> {
    this.running ??= this.read().finally(() => {
      this.running = null;
    });
    return this.running;
  }

  appear(): void {
    void this.load();
  }

  private async read(): Promise<void> {
    this.busy.value = true;
    try {
      const { data, etag } = await call<T>("GET", this.path, { hasPlace: this.hasPlace });
      this.take(data, etag);
    } catch (error) {
      // An object that is gone is not shown on.
      if (error instanceof Fault && error.status === 404) this.data.value = null;
      this.error.value = error as Error;
    }
    this.busy.value = false;
  }

  /** Takes an answer to a write as the object's new state. */
  take(data: T, etag: string | null): void {
    this.data.value = data;
    this.etag = etag;
    this.error.value = null;
    this.readAt.value = Date.now();
  }
}

export interface Cached {
  readonly path: string;
  shown: number;
  load(): Promise<void>;
  /** Reads what a page needs when it appears. */
  appear(): void;
}

const known = new Map<string, Cached>();

/** Returns the object that is kept under `key`, or makes it. The least recently used are forgotten. */
export function kept<C extends Cached>(key: string, make: () => C): C {
  const found = (known.get(key) as C | undefined) ?? make();
  known.delete(key);
  known.set(key, found);
  for (const [old, cached] of known) {
    if (known.size <= KEPT_MAX) break;
    if (cached.shown === 0 && cached !== (found as Cached)) known.delete(old);
  }
  return found;
}

/** Reads what is shown below `prefix` again, and forgets what is not shown. */
export function changed(...prefixes: string[]): void {
  for (const [key, cached] of known) {
    if (!prefixes.some((prefix) => cached.path.startsWith(prefix))) continue;
    if (cached.shown > 0) void cached.load();
    else known.delete(key);
  }
}

/** Forgets everything: the next session may see other things. */
export function forgetAll(): void {
  known.clear();
}

/** Counts a component that shows `cached`, and reads it when it appears and when the gateway answers again. */
export function useCached<C extends Cached>(cached: C | null): C | null {
  const back = returns.value;
  useEffect(() => {
    if (!cached) return;
    cached.shown += 1;
    cached.appear();
    return () => {
      cached.shown -= 1;
    };
  }, [cached, back]);
  return cached;
}

/**
 * Returns the object at `path`, which is read when the component appears. Without a path it stays empty. A page does not wait for
 * an object that has a place of its own size.
 */
export function useResource<T>(wanted: string | null, { hasPlace = false } = {}): Resource<T> {
  const path = wanted !== null && readable(wanted) ? wanted : null;
  const resource = useMemo(() => (path === null ? new Resource<T>("") : kept(path, () => new Resource<T>(path, hasPlace))), [path]);
  useCached(path === null ? null : resource);
  return resource;
}

const KEPT_MAX = 60;
