// The number of open alerts, as the last answer that had it.
import { signal } from "@preact/signals";
import type { OpenAlerts } from "./types";

/** Null before the first answer. */
export const openAlerts = signal<OpenAlerts | null>(null);

/** Takes the number from an answer; one that lacks it changes nothing. */
export function seeAlerts(seen: OpenAlerts | null | undefined): void {
  const known = openAlerts.value;
  if (seen && (seen.total !== known?.total || seen.bad !== known.bad)) openAlerts.value = seen;
}
