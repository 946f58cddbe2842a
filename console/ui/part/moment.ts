// Dates that a person types.
import { preferences } from "../app/preferences";

/** The last millisecond of a day such as `2026-11-22` in the chosen time zone. */
export function dateEnd(date: string): number {
  const end = Date.parse(`${date}T23:59:59.999${preferences.zone.value === "utc" ? "Z" : ""}`);
  return Number.isNaN(end) ? 0 : end;
}

/** A date whose fields in UTC are those of a moment in the chosen time zone. */
export function zoned(at: number): Date {
  const shift = preferences.zone.value === "utc" ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - shift);
}

/** The day of a moment as `2026-11-22` in the chosen time zone. */
export const dateOf = (at: number | null): string => (at === null ? "" : zoned(at).toISOString().slice(0, 10));

/** The first moment of a day such as `2026-11-22`, or of one `days` later, in the chosen time zone; null if it is no date. */
export function dateStart(date: string, days = 0): number | null {
  const utc = Date.parse(`${date}T00:00:00Z`);
  if (Number.isNaN(utc)) return null;
  const [year, month, day] = date.split("-").map(Number) as [number, number, number];
  return preferences.zone.value === "utc" ? Date.UTC(year, month - 1, day + days) : new Date(year, month - 1, day + days).getTime();
}
