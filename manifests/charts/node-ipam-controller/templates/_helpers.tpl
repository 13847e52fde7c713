{{/* Name of all objects: the release's name and the chart's name, or only the former if it contains the latter. */}}
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

{{/* A Deployment's selector cannot change. These are also the labels in the chart of kubernetes-sigs/node-ipam-controller, so a
release of that chart can be upgraded to this one. */}}
{{- define "node-ipam-controller.selectorLabels" -}}
app.kubernetes.io/name: {{ include "node-ipam-controller.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "node-ipam-controller.labels" -}}
{{ include "node-ipam-controller.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Whether Pods that run now use no Lease, or another one. Where an upgrade that changed that is not over, its old Pods may still run. */}}
{{- define "node-ipam-controller.changesLease" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (include "node-ipam-controller.fullname" .) }}
{{- $args := (first .spec.template.spec.containers).args | default list }}
{{- $status := .status | default dict }}
{{- $over := and (ge (int64 $status.observedGeneration) (int64 .metadata.generation)) (eq (int64 $status.updatedReplicas) (int64 $status.replicas)) }}
{{- if not (has (printf "--leader-elect-resource-name=%s" $.Values.leaderElection.resourceName) $args) }}true{{ end }}
{{- if and (eq (dig "strategy" "type" "" .spec) "Recreate") (not $over) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Checks that values.schema.json cannot make, or not with a helpful message. */}}
{{- define "node-ipam-controller.validate" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: make the image (make image REGISTRY=registry.example.com), push it to that registry, and set image.repository=registry.example.com/node-ipam-controller" }}
{{- end }}
{{- if not .Values.leaderElection.enabled }}
{{- if gt (int .Values.replicaCount) 1 }}
{{- fail "replicaCount is more than 1 and leaderElection.enabled is false: all replicas would allocate podCIDRs. Set leaderElection.enabled=true or replicaCount=1" }}
{{- end }}
{{- if .Values.fencing.enabled }}
{{- fail "fencing.enabled=true needs leaderElection.enabled=true: the policy admits only writes of the holder of the Lease, and without leader election nobody holds it. Set leaderElection.enabled=true or fencing.enabled=false" }}
{{- end }}
{{- end }}
{{- if eq (int .Values.service.port) (int .Values.service.securePort) }}
{{- fail "service.port and service.securePort are equal: one is for HTTP, the other for HTTPS. Set them to different ports" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not (include "node-ipam-controller.servicePorts" .)) }}
{{- fail "serviceMonitor.enabled needs a port that Prometheus can reach: set service.securePort. Or set service.bindAddress=\"\", and everybody who can reach the Nodes can read the metrics" }}
{{- end }}
{{- range .Values.extraArgs }}
{{- /* The program reads _ in the name of a flag as -. */ -}}
{{- if regexMatch "^--(apiserver|enable-leader-election|health-probe-address|leader-elect-[a-z-]+|secure-port|webserver-bind-address)(=|$)" (include "node-ipam-controller.flag" .) }}
{{- fail (printf "extraArgs: %s is not allowed here, because permissions, probes and the fencing policy would not know of it. Use apiServer, leaderElection or service instead. The Lease is always in the release's namespace" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* An argument, with the name of its flag as the program reads it. */}}
{{- define "node-ipam-controller.flag" -}}
{{- $name := regexFind "^[^=]*" . -}}
{{- . | trimPrefix $name | printf "%s%s" ($name | replace "_" "-") -}}
{{- end }}

{{/* The address of the HTTP server. The kubelet probes a Pod that has its own network at the Pod's address. */}}
{{- define "node-ipam-controller.bindAddress" -}}
{{- if .Values.hostNetwork }}{{ .Values.service.bindAddress }}{{ end -}}
{{- end }}

{{/* The ports that can be reached from outside of the Node: none if HTTP is on loopback and HTTPS is off. */}}
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

{{/* Whether the controller creates a ClusterCIDR from --cluster-cidr, or may: what is in a file, the chart cannot know. */}}
{{- define "node-ipam-controller.makesClusterCIDR" -}}
{{- range .Values.extraArgs }}{{ if regexMatch "^--cluster-cidr=." (include "node-ipam-controller.flag" .) }}true{{ end }}{{ end -}}
{{- end }}
