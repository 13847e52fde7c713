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
{{- if and .Values.serviceMonitor.enabled (not (include "node-ipam-controller.servicePorts" .)) }}
{{- fail "serviceMonitor.enabled needs a port that Prometheus can reach: set service.securePort, or service.bindAddress=\"\" to let everybody read metrics who can reach the Nodes" }}
{{- end }}
{{- range .Values.extraArgs }}
{{- /* The program takes _ for -. */ -}}
{{- if regexMatch "^--(apiserver|enable-leader-election|health-probe-address|leader-elect-[a-z-]+|secure-port|webserver-bind-address)(=|$)" (include "node-ipam-controller.flag" .) }}
{{- fail (printf "extraArgs: %s does not belong here. Use apiServer, leaderElection or service, because permissions, probes and fencing follow those; the Lease is always in the release's namespace" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* An argument with its flag's name as the program understands it. */}}
{{- define "node-ipam-controller.flag" -}}
{{- $name := regexFind "^[^=]*" . -}}
{{- . | trimPrefix $name | printf "%s%s" ($name | replace "_" "-") -}}
{{- end }}

{{/* The address of the HTTP server. A Pod with a network of its own is probed at its own address. */}}
{{- define "node-ipam-controller.bindAddress" -}}
{{- if .Values.hostNetwork }}{{ .Values.service.bindAddress }}{{ end -}}
{{- end }}

{{/* The ports that others can reach: none, if HTTP is on loopback and HTTPS is off. */}}
{{- define "node-ipam-controller.servicePorts" -}}
{{- if not (include "node-ipam-controller.bindAddress" .) -}}
- name: http
  port: {{ .Values.service.port }}
  targetPort: http
{{ end -}}
{{- with .Values.service.securePort -}}
- name: https
  port: {{ . }}
  targetPort: https
{{- end -}}
{{- end }}

{{/* Whether the controller makes a ClusterCIDR from --cluster-cidr. */}}
{{- define "node-ipam-controller.makesClusterCIDR" -}}
{{- range .Values.extraArgs }}{{ if regexMatch "^--cluster-cidr=." (include "node-ipam-controller.flag" .) }}true{{ end }}{{ end -}}
{{- end }}
