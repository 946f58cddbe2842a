// The actions of the audit in words.

/** What was done, by the verb of an action; other verbs stand as they are. */
const DONE: Record<string, string> = {
  ack: "acknowledged",
  bind: "shared",
  cancel: "cancelled",
  connect: "connected",
  create: "created",
  delete: "deleted",
  disable: "disabled",
  disconnect: "disconnected",
  edit: "changed",
  enable: "enabled",
  forget: "forgotten",
  open: "opened",
  probe: "probed",
  put: "changed",
  remove: "removed",
  replace: "changed",
  resolve: "resolved",
  retry: "retried",
  reveal: "revealed",
  revoke: "revoked",
  rotate: "rotated",
  sync: "synced",
  test: "tested",
  unbind: "no longer shared",
  verify: "verified",
};

/** `endpoint coding changed` for `endpoint.replace` of `endpoint/coding`; a generated id is left out. */
export function actionWords({ action, object }: { action: string; object: string }): string {
  const [kind = "", verb = ""] = action.split(".");
  const id = object.slice(object.indexOf("/") + 1);
  const name = id && !/^[a-z]{3}_/.test(id) ? ` ${id}` : "";
  return `${kind.replace(/_/g, " ")}${name} ${DONE[verb] ?? verb.replace(/_/g, " ")}`.trim();
}
