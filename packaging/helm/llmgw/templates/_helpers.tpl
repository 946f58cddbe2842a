{{/* The name of every object: the release's, with the chart's if that is not part of it. */}}
{{- define "llmgw.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "llmgw.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "llmgw.labels" -}}
{{ include "llmgw.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "llmgw.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "llmgw.secret" -}}
{{- .Values.secret.existing | default (include "llmgw.fullname" .) -}}
{{- end -}}

{{- define "llmgw.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "llmgw.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The text of the configuration file; empty without one. */}}
{{- define "llmgw.config" -}}
{{- if kindIs "string" .Values.config -}}
{{- .Values.config -}}
{{- else if .Values.config -}}
{{- toYaml .Values.config -}}
{{- end -}}
{{- end -}}

{{/* The sections of the file that take effect at a start only, as JSON. */}}
{{- define "llmgw.configOfStart" -}}
{{- $config := include "llmgw.config" . | fromYaml -}}
{{- with $config.Error -}}
{{- fail (printf "config: not valid YAML: %s" .) -}}
{{- end -}}
{{- pick $config "server" "cors" "policies" | toJson -}}
{{- end -}}

{{- define "llmgw.scheme" -}}
{{- if .Values.tls.existingSecret -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* Fails with what is to do if values do not fit together; single values are checked by values.schema.json. */}}
{{- define "llmgw.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository: set the registry and name of the image, such as registry.example.com/llmgw; none is published yet" -}}
{{- end -}}
{{- if and .Values.secret.existing .Values.secret.values -}}
{{- fail "secret: set `existing` or `values`, not both" -}}
{{- end -}}
{{- if not (or .Values.secret.existing .Values.secret.values) -}}
{{- fail "secret: set `existing` to the name of a Secret with LLMGW_API_KEY and LLMGW_CREDENTIAL_ENCRYPTION_KEY, or both in `values`" -}}
{{- end -}}
{{- if and .Values.config .Values.existingConfigMap -}}
{{- fail "config: set `config` or `existingConfigMap`, not both" -}}
{{- end -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail "replicas: one process owns a state, so there can be 1 replica, or 0" -}}
{{- end -}}
{{- $own := list "LLMGW_HOST" "LLMGW_PORT" "LLMGW_STATE_DIR" "LLMGW_CONFIG" "LLMGW_DRAIN_DELAY_SECONDS" "LLMGW_DRAIN_SECONDS" -}}
{{- range $variable, $_ := .Values.env -}}
{{- if has $variable (concat $own (list "LLMGW_API_KEY" "LLMGW_CREDENTIAL_ENCRYPTION_KEY" "LLMGW_TLS_CERT_FILE" "LLMGW_TLS_KEY_FILE")) -}}
{{- fail (printf "env.%s: the chart sets this variable from other values; values.yaml has them" $variable) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: name at least one host" -}}
{{- end -}}
{{- end -}}
