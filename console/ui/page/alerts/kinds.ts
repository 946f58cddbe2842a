// The kinds of alerts: their words, what they are about, and the values that a new rule begins with. The gateway judges every value.
import type { AlertKind, AlertRule } from "../../api/types";
import { dollars } from "../../part/format";

/** The sort of objects that the alerts of a kind are about. */
export type About = "quota" | "key" | "provider" | "endpoint" | "spender" | "backup" | "file" | "disk" | "node";

type Defaults = Pick<AlertRule, "threshold" | "floor_micro_usd" | "severity" | "hold_seconds" | "clear_seconds">;

export type KindOfAlert = Defaults & {
  title: string;
  about: About;
  /** The name and unit of the threshold, for the kinds that have one. */
  unit?: string;
};

const serious = { threshold: null, floor_micro_usd: null, severity: "bad", hold_seconds: 0, clear_seconds: 300 } as const;
const mild = { ...serious, severity: "warn" } as const;

export const KINDS: Record<AlertKind, KindOfAlert> = {
  quota_warning: { ...mild, title: "Quota nearly used up", about: "quota", unit: "Used (% of the limit)", threshold: 80 },
  quota_exhausted: { ...serious, title: "Quota used up", about: "quota" },
  key_expiring: { ...mild, title: "Key expires", about: "key", unit: "Days before the end", threshold: 7, clear_seconds: 60 },
  provider_down: { ...serious, title: "Provider down", about: "provider", hold_seconds: 20, clear_seconds: 120 },
  provider_recovered: { ...mild, title: "Provider works again", about: "provider", clear_seconds: 0 },
  credential_expiring: {
    ...mild,
    title: "Credential expires",
    about: "provider",
    unit: "Hours before the end",
    threshold: 1,
    hold_seconds: 60,
  },
  credential_broken: { ...serious, title: "Credential rejected", about: "provider", hold_seconds: 20 },
  certificate_expiring: {
    ...mild,
    title: "Certificate expires",
    about: "provider",
    unit: "Days before the end",
    threshold: 14,
    clear_seconds: 60,
  },
  spend_anomaly: {
    ...serious,
    title: "Unusual spending",
    about: "spender",
    unit: "Times the usual spending of the hour",
    threshold: 3,
    floor_micro_usd: 5_000_000,
    clear_seconds: 3600,
  },
  catalog_drift: { ...mild, title: "Model no longer listed", about: "endpoint" },
  config_reload_failed: { ...serious, title: "Changed configuration is invalid", about: "file", clear_seconds: 30 },
  disk_low: {
    ...serious,
    title: "Disk nearly full",
    about: "disk",
    unit: "Free (% of the disk)",
    threshold: 10,
    hold_seconds: 60,
    clear_seconds: 600,
  },
  backup_failed: { ...serious, title: "Backup failed", about: "backup", clear_seconds: 0 },
  node_lost: { ...serious, title: "Node lost", about: "node", hold_seconds: 60, clear_seconds: 60 },
  node_skew: { ...mild, title: "Node differs from the others", about: "node", hold_seconds: 600, clear_seconds: 60 },
  shipping_behind: {
    ...serious,
    title: "Usage is not stored",
    about: "node",
    unit: "Minutes that usage waits",
    threshold: 5,
    clear_seconds: 60,
  },
};

/** The names of the kinds, in the order in which they are offered. */
export const KIND_NAMES = Object.keys(KINDS) as AlertKind[];

/** What the objects of a kind are; null if its alerts are about the gateway. */
export const aboutOf = (kind: string): About | null => KINDS[kind as AlertKind]?.about ?? null;

/** `80 %`, `7 days`, `3 times, above $5.00`. */
export function thresholdText({
  kind,
  threshold,
  floor_micro_usd: floor,
}: Pick<AlertRule, "kind" | "threshold" | "floor_micro_usd">): string | null {
  if (threshold === null) return null;
  const units: Partial<Record<AlertKind, string>> = {
    quota_warning: "% used",
    key_expiring: threshold === 1 ? "day before" : "days before",
    certificate_expiring: threshold === 1 ? "day before" : "days before",
    credential_expiring: threshold === 1 ? "hour before" : "hours before",
    spend_anomaly: "times the usual",
    disk_low: "% free",
    shipping_behind: threshold === 1 ? "minute" : "minutes",
  };
  return `${threshold} ${units[kind] ?? ""}${floor === null ? "" : `, above ${dollars(floor)}`}`.trim();
}

/** `usual_max_micro_usd` as `Usual max`. */
export function figureName(name: string): string {
  const words = name.replace(/_(micro_usd|percent)$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** `free_percent` with 4.2631 as `4.26 %`; money in dollars. */
export function figureText(name: string, value: number): string {
  if (name.endsWith("_micro_usd")) return dollars(value);
  const shown = Number.isInteger(value) ? value : Number(value.toPrecision(3));
  return name.endsWith("_percent") ? `${shown} %` : String(shown);
}
