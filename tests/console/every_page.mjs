// The addresses of all pages, for pictures of each.

/** Every page that has something to show without any data. */
export const EMPTY = {
  overview: "/", requests: "/requests", usage: "/usage", providers: "/providers", "providers-new": "/providers?connect=choose", extensions: "/providers?tab=extensions", routes: "/routes", "routes-new": "/routes?new=1", models: "/models?q=none", playground: "/playground", access: "/access", humans: "/access?tab=humans",
  keys: "/keys", "keys-new": "/keys?new=1", quotas: "/quotas", "quotas-new": "/quotas?new=1", connect: "/connect", device: "/device", alerts: "/alerts", rules: "/alerts/rules", "rules-new": "/alerts/rules?new=1", webhooks: "/webhooks", "webhooks-new": "/webhooks?new=1", outbox: "/outbox", "outbox-filtered": "/outbox?state=dead", "alerts-filtered": "/alerts?state=acknowledged", "oauth-new": "/providers?connect=oauth_partner", audit: "/audit?action=none", backups: "/backups", settings: "/settings?q=nothing-like-it",
  "setup-access": "/setup?step=access", "setup-sync": "/setup?step=sync", "setup-test": "/setup?step=test", "setup-routes": "/setup?step=routes", "setup-keys": "/setup?step=keys", "setup-client": "/setup?step=client", missing: "/nothing/here", "request-missing": "/requests/none",
};

/** Every page with data, by name. */
export async function everyPage(gateway) {
  const first = async (path) => (await gateway.api("GET", path)).data[0];
  const [project, human, key, request, failed, record, alert, webhook] = await Promise.all(["projects?q=agents", "principals", "keys?q=ci-agents", "requests?failed_over=true&limit=1", "requests?failed=true&limit=1", "audit?limit=1", "alerts?limit=1", "webhooks"].map(first));
  return {
    overview: "/", "overview-week": "/?period=7d&by=model", requests: "/requests?period=24h", request: `/requests/${request.request_id}`, ...(failed ? { "request-failed": `/requests/${failed.request_id}` } : {}), usage: "/usage?by=model", "usage-two": "/usage?by=client&and=project&compare=1", "usage-latency": "/usage?figure=latency", "usage-outcomes": "/usage?figure=outcomes",
    providers: "/providers", "providers-new": "/providers?connect=choose", provider: "/providers/openai-main", "provider-oauth": "/providers/partner", "oauth-new": "/providers?connect=oauth_partner", extensions: "/providers?tab=extensions", routes: "/routes", route: "/routes/coding?fail=anthropic-main%3Ahang", "route-new": "/routes?new=1", models: "/models", "models-open": "/models?open=openai-main%2Fgpt-5.4", playground: "/playground?model=coding",
    access: "/access", humans: "/access?tab=humans", project: `/access/projects/${project.id}`, "project-keys": `/access/projects/${project.id}?tab=keys`, "project-limits": `/access/projects/${project.id}?tab=limits`, "project-edit": `/access/projects/${project.id}?edit=1`, "project-access": `/access/projects/${project.id}/access`, human: `/access/humans/${human.id}`,
    keys: "/keys", "keys-new": "/keys?new=1", key: `/keys/${key.id}`, "key-edit": `/keys/${key.id}?edit=1`, "key-access": `/keys/${key.id}/access`, quotas: "/quotas", connect: `/connect?key=${key.id}`,
    alerts: "/alerts", ...(alert ? { alert: `/alerts?alert=${alert.id}` } : {}), rules: "/alerts/rules", webhooks: "/webhooks", ...(webhook ? { webhook: `/webhooks?webhook=${webhook.id}` } : {}), outbox: "/outbox", audit: "/audit", "audit-record": `/audit/${record.id}`, backups: "/backups", settings: "/settings", setup: "/setup", "setup-client": `/setup?step=client&key=${key.id}`,
  };
}
