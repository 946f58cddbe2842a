// What a person has to decide: open alerts, backups that are too old, limits that are nearly used up, requests that no sum contains.
import { useEffect, useRef } from "preact/hooks";
import { openAlerts } from "../../api/open_alerts";
import { useResource } from "../../api/resource";
import type { Alert, BackupState, GatewayState, OpenAlerts, Page as PageOf, Quota } from "../../api/types";
import { href } from "../../app/router";
import { count, moment, plural, zoneName } from "../../part/format";
import { Mark } from "../../part/icon";
import { amount, limitName, shareOf } from "../../part/limits";
import { Card } from "../../part/page";
import { alertTitle } from "../alerts/object";
import { reachedAt } from "../quotas";

const SHOWN_MAX = 5;
/** The limits that need a person, the fullest first. Each of the alerts that are shown may be about one. */
export const NEAR_LIMITS = `quotas?sort=share&order=desc&share_percent_min=80&limit=${2 * SHOWN_MAX}`;
const DAY_MS = 86_400_000;
/** The age from which the last good backup is too old. */
const OLD_MS = 2 * DAY_MS;
export type Need = { key: string; kind: "warn" | "bad"; text: string; to: string; note: string };

/** The open alerts by their titles; those that are not listed as their number. */
function alertNeeds(open: OpenAlerts | null | undefined, listed: Alert[]): Need[] {
  if (!open || open.total === 0) return [];
  const shown = listed.filter(({ state }) => state === "open").slice(0, Math.min(SHOWN_MAX, open.total));
  if (shown.length) {
    const lines = shown.map(
      (alert): Need => ({
        key: alert.id,
        kind: alert.severity,
        text: alertTitle(alert),
        to: href("/alerts", { alert: alert.id }),
        note: alert.text,
      }),
    );
    const more = open.total - shown.length;
    if (more > 0)
      lines.push({ key: "alerts", kind: "warn", text: `${plural(more, "more alert")}`, to: href("/alerts"), note: "They are open." });
    return lines;
  }
  const urgent = open.bad > 0;
  const one = urgent ? "It is urgent." : "It is not urgent.";
  const note = open.total === 1 ? one : urgent ? `${count(open.bad)} of them urgent.` : "None is urgent.";
  return [
    { key: "alerts", kind: urgent ? "bad" : "warn", text: plural(open.total, "open alert"), to: href("/alerts", { state: "open" }), note },
  ];
}

/** The last backup, if it failed or is too old. */
export function backupNeed({ last_good_at_ms: good, last_failure: failure }: BackupState, alert: Alert | undefined, now: number): Need[] {
  const state = alert ? ` Its alert is ${alert.state}${alert.acked_by ? ` by ${alert.acked_by}` : ""}.` : "";
  const age = good === null ? null : Math.floor((now - good) / DAY_MS);
  const last = good === null ? "There is no good backup." : `The last good one is of ${moment(good)} ${zoneName()}.`;
  const need = { key: "backup", to: href("/backups") };
  if (failure) {
    const note = `At ${moment(failure.at_ms)} ${zoneName()}: ${failure.message}. ${last}${state}`;
    return [{ ...need, kind: "bad", text: "The last backup failed", note }];
  }
  if (good === null)
    return [{ ...need, kind: "warn", text: "No backup was made yet", note: "A disk that fails takes everything with it." }];
  if (now - good < OLD_MS) return [];
  return [{ ...need, kind: "warn", text: `The last good backup is ${plural(age ?? 0, "day")} old`, note: last }];
}

function limitNeed(quota: Quota, now: number): Need {
  const at = reachedAt(quota, now);
  const name = quota.subject.name ?? quota.subject.id ?? "the gateway";
  const consequence = quota.enforcement === "hard" ? "further requests get 429" : "warns only";
  return {
    key: quota.id,
    kind: quota.exceeded ? "bad" : "warn",
    text: `${name}: ${limitName(quota)} ${quota.exceeded ? "is used up" : `is used to ${Math.floor(shareOf(quota) * 100)} %`}`,
    to: href("/quotas", { kind: quota.subject.kind }),
    note: `${amount(quota.metric, quota.limit)}, ${consequence}${at && !quota.exceeded ? `; reached ${moment(at)} at this rate` : ""}`,
  };
}

type Props = {
  state: GatewayState | null;
  /** True once nothing of the set-up is left: before that a backup would hold little. */
  isSetUp: boolean;
  /** The limits of which most is used, and the number of all that are nearly used up. */
  limits: { fullest: Quota[]; near: number };
  unpriced: number;
  now: number;
  /** The alert about the last backup, if it failed. */
  backupAlert?: Alert | undefined;
  /** The newest open alerts. */
  alerts?: Alert[];
};

/** The limits that are nearly used up, without those that have an alert; those that are not listed as their number. */
function limitNeeds({ fullest, near }: Props["limits"], alerts: Alert[], now: number): Need[] {
  const alerted = new Set(alerts.map(({ object }) => object));
  const others = fullest.filter(({ id }) => !alerted.has(id));
  const shown = others.slice(0, SHOWN_MAX);
  const more = near - (fullest.length - others.length) - shown.length;
  const rest: Need = {
    key: "limits",
    kind: "warn",
    text: plural(more, "more limit"),
    to: href("/quotas", { sort: "share", order: "desc" }),
    note: more === 1 ? "It is nearly used up." : "They are nearly used up.",
  };
  return [...shown.map((quota) => limitNeed(quota, now)), ...(more > 0 ? [rest] : [])];
}

export function needsOf({ state, isSetUp, limits, unpriced, now, backupAlert, alerts = [] }: Props): Need[] {
  const backup = state && (isSetUp || state.backup.last_failure) ? backupNeed(state.backup, backupAlert, now) : [];
  const price: Need = {
    key: "price",
    kind: "warn",
    text: `${plural(unpriced, "attempt")} of today without a price`,
    to: href("/models", { priced: "false" }),
    note: unpriced === 1 ? "It is in no sum of costs." : "They are in no sum of costs.",
  };
  return [...alertNeeds(state?.alerts, alerts), ...backup, ...limitNeeds(limits, alerts, now), ...(unpriced > 0 ? [price] : [])];
}

export function NeedsYou(props: Props) {
  const hasFailed = props.state?.backup.last_failure != null;
  const alerts = useResource<PageOf<Alert>>(hasFailed ? "alerts?kind=backup_failed&limit=1" : null);
  const open = openAlerts.value?.total ?? props.state?.alerts?.total ?? 0;
  const listed = useResource<PageOf<Alert>>(open > 0 ? `alerts?state=open&limit=${SHOWN_MAX}` : null);
  const total = useRef(open);
  useEffect(() => {
    if (total.current !== open && total.current > 0 && open > 0) void listed.load();
    total.current = open;
  }, [open]);
  const shown = listed.data.value?.data ?? [];
  // The live stream counts on; the navigation shows the same number.
  const state = props.state && { ...props.state, alerts: openAlerts.value ?? props.state.alerts };
  const needs = needsOf({ ...props, state, backupAlert: alerts.data.value?.data[0], alerts: open > 0 ? shown : [] });
  return (
    <Card title="Needs you" aside={needs.length > 0 && <span class="tag num">{count(needs.length)}</span>}>
      {needs.length === 0 ? (
        <p class="muted">Nothing.</p>
      ) : (
        <ul>
          {needs.map(({ key, kind, text, to, note }) => (
            <li key={key} class="two-line">
              <span class="state wrap">
                <Mark kind={kind} />
                <a href={to}>{text}</a>
              </span>
              <span class="help wrap">{note}</span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
