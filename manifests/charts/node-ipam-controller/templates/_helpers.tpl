{{/* Name of all objects: the release's, with the chart's unless that is part of it. */}}
{{- define "node-ipam-controller.fullname" -}}
{{- $name := include "node-ipam-controller.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "node-ipam-controller.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "node-ipam-controller.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "node-ipam-controller.fullname" .) -}}
{{- end }}

{{/* A Deployment's selector cannot change. These are also the labels of kubernetes-sigs/node-ipam-controller's chart, so a
release of that one can be upgraded to this. */}}
{{- define "node-ipam-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "node-ipam-controller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "node-ipam-controller.labels" -}}
{{ include "node-ipam-controller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What values.schema.json cannot check, or not with words that help. */}}
{{- define "node-ipam-controller.validate" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: make the image (make image REGISTRY=registry.example.com), push it to that registry, and set image.repository=registry.example.com/node-ipam-controller" }}
{{- end }}
{{- if not .Values.leaderElection.enabled }}
{{- if gt (int .Values.replicaCount) 1 }}
{{- fail "replicaCount is more than 1 and leaderElection.enabled is false: the replicas would all give out addresses. Set leaderElection.enabled=true or replicaCount=1" }}
{{- end }}
{{- if .Values.fencing.enabled }}
{{- fail "fencing.enabled needs leaderElection.enabled=true: the policy admits what the holder of the Lease writes, and without election nobody holds it" }}
{{- end }}
{{- end }}
{{- if eq (int .Values.service.port) (int .Values.service.securePort) }}
{{- fail "service.port and service.securePort must differ: one is HTTP, the other HTTPS" }}
{{- end }}
{{- range .Values.extraArgs }}
{{- if regexMatch "^--(apiserver|enable-leader-election|health-probe-address|leader-elect-[a-z-]+|secure-port|webserver-bind-address)(=|$)" . }}
{{- fail (printf "extraArgs: %s does not belong here. Use apiServer, leaderElection or service, because permissions, probes and fencing follow those; the Lease is always in the release's namespace" .) }}
{{- end }}
{{- end }}
{{- end }}
