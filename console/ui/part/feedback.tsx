// What a page shows while it waits, when there is nothing, and when something failed; and short notices of what was done.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Fault } from "../api/client";
import type { Resource } from "../api/resource";
import { lastPart, path } from "../app/router";
import { clock, zoneName } from "./format";
import { Icon, type IconName } from "./icon";

/** Rows of the height of those that will come. It appears after 150 ms, so that quick answers do not flicker. */
export function Skeleton({ rows = 4 }: { rows?: number }) {
  const [shown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), 150);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class={shown ? "skeleton shown" : "skeleton"} aria-busy="true">
      <span class="sr">{shown ? "Reading" : ""}</span>
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} class="skeleton-row">
          <span class="ghost" />
        </div>
      ))}
    </div>
  );
}

type ErrorProps = {
  error: Error;
  retry?: () => unknown;
  /** When what is still shown was read. */
  since?: number;
};

export function ErrorBox({ error, retry, since }: ErrorProps) {
  const id = error instanceof Fault ? error.requestId : null;
  return (
    <div class="alert bad row" role="alert">
      <Icon name="octagon-x" />
      <div class="grow">
        <p>{error.message}</p>
        <p class="help">
          {since ? `What is shown is from ${clock(since, "second")} ${zoneName()}. ` : ""}
          {id && (
            <>
              Request <span class="mono wrap">{id}</span>
            </>
          )}
        </p>
      </div>
      {retry && (
        <button type="button" class="btn small" onClick={() => retry()}>
          Try again
        </button>
      )}
    </div>
  );
}

type EmptyProps = {
  icon: IconName;
  title: string;
  children?: ComponentChildren;
  action?: ComponentChildren;
  /** True if nothing else is on the page. */
  page?: boolean;
};

/** In place of an empty list: what would stand here, why there is nothing, and one thing to do. */
export function Empty({ icon, title, children, action, page }: EmptyProps) {
  return (
    <div class="empty">
      <span class="empty-sign">
        <Icon name={icon} />
      </span>
      {page ? <h1>{title}</h1> : <h2>{title}</h2>}
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

/** True once an object was read, or could not be. */
export const isSettled = (resource: Resource<unknown>): boolean => resource.data.value !== null || resource.error.value !== null;

/** The title of an object's page until the object is there: its name in the address. */
function PlaceHead() {
  return (
    <div class="page-head">
      <h1 class="wrap grow">{lastPart(path.value)}</h1>
    </div>
  );
}

type LoadedProps<T> = {
  resource: Resource<T>;
  rows?: number;
  children: (data: T) => ComponentChildren;
  missing?: ComponentChildren;
  /** True if the object is only a part of its page. */
  part?: boolean;
};

/** Shows an object once it is read; after an error what was there stays, greyed, with its time. */
export function Loaded<T>({ resource, rows = 4, children, missing, part }: LoadedProps<T>) {
  const data = resource.data.value;
  const error = resource.error.value;
  if (data === null) {
    if (error instanceof Fault && error.status === 404 && missing) return <>{missing}</>;
    return (
      <>
        {missing && !part && <PlaceHead />}
        {error ? (
          <ErrorBox error={error} retry={() => resource.load()} />
        ) : (
          <div class="card">
            <Skeleton rows={rows} />
          </div>
        )}
      </>
    );
  }
  return (
    <>
      {error && <ErrorBox error={error} retry={() => resource.load()} since={resource.readAt.value} />}
      <div class={error ? "page-stack stale" : "page-stack"}>{children(data)}</div>
    </>
  );
}

const notices = signal<{ id: number; text: string }[]>([]);
let last = 0;

/** Shows a notice for a few seconds and says it aloud. */
export function notify(text: string): void {
  last += 1;
  const id = last;
  notices.value = [...notices.value.slice(-2), { id, text }];
  setTimeout(() => {
    notices.value = notices.value.filter((notice) => notice.id !== id);
  }, 6000);
}

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map(({ id, text }) => (
        <p key={id} class="notice">
          <Icon name="circle-check" small />
          {text}
        </p>
      ))}
    </div>
  );
}
